"""Several stores as one: their queries under names that tell them apart, in one index, so that SQL can join them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from streamstate.errors import InvalidArgumentError, choices
from streamstate.snapshots.store.delta.place import Place
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.names import is_name
from streamstate.snapshots.store.registry import Branch, Lineage
from streamstate.state_inspect.sql.result import Result
from streamstate.state_inspect.store import Store, open_store
from streamstate.state_inspect.temporal_index.index import Index

Stores = Mapping[str, "Store | str | Path"] | Sequence["Store | str | Path"]


@dataclass(frozen=True)
class _Layout(Layout):
    """The tables of several stores, by the names that their queries have here."""

    of: Mapping[str, Layout] = field(default_factory=dict, hash=False, compare=False)

    def manifest(self, query: str) -> Place:
        layout, name = self._of(query)
        return layout.manifest(name)

    def plans(self, query: str) -> Place:
        layout, name = self._of(query)
        return layout.plans(name)

    def control(self, query: str) -> Place:
        layout, name = self._of(query)
        return layout.control(name)

    def recording(self, query: str, source: int) -> Place:
        layout, name = self._of(query)
        return layout.recording(name, source)

    def changelog(self, query: str, table: str) -> Place:
        layout, name = self._of(query)
        return layout.changelog(name, table)

    def _of(self, query: str) -> tuple[Layout, str]:
        store, _, name = query.partition(".")
        return self.of[store], name


class _Lineage(Lineage):
    """The queries of several stores."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = stores

    def branches(self) -> tuple[Branch, ...]:
        return tuple(self._all())

    def _all(self) -> Iterator[Branch]:
        for name, store in self._stores.items():
            for branch in store.lineage.branches():
                parent = branch.parent if branch.parent not in store else f"{name}.{branch.parent}"
                yield replace(branch, name=f"{name}.{branch.name}", parent=parent)


class JoinedStore(Store):
    """Several stores as one, as :func:`sql` and :func:`streamstate.cut` make it: ``ours.delays`` is one of ``ours``."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = dict(stores)
        places = " and ".join(store.path for store in stores.values())
        self._layout = _Layout(places, of={name: store.layout for name, store in stores.items()})
        self.path = places
        self._lineage = _Lineage(self._stores)
        self._memory_limit = None
        self._index = Index(self._layout)
        self._histories = {}
        self._known = None

    def full_name(self, name: str) -> str:
        """Return the name of a query here, whose own name may do if only one store has it.

        Raises:
            InvalidArgumentError: several have it.
        """
        found = [known for known in self.queries() if known.partition(".")[2] == name]
        if len(found) > 1:
            raise InvalidArgumentError(f"Several stores have a query {name}: name {choices(found)}.")
        return found[0] if found else name

    def variables(self) -> list[str]:
        """Names of the shared variables: none, they belong to one store."""
        return []


def joined(stores: Stores) -> JoinedStore:
    """Return several stores as one.

    Args:
        stores: open stores or their paths, by name; of a sequence the first is ``store1``.

    Raises:
        InvalidArgumentError: a name is none, or there is no store.
    """
    named = stores if isinstance(stores, Mapping) else {f"store{at}": store for at, store in enumerate(stores, start=1)}
    if not named:
        raise InvalidArgumentError("No store is given.")
    if wrong := [name for name in named if not is_name(name)]:
        raise InvalidArgumentError(f"Invalid names of stores: {choices(wrong)}. Expected names such as 'ours'.")
    return JoinedStore(
        {name: store if isinstance(store, Store) else open_store(store) for name, store in named.items()}
    )


def sql(stores: Stores, sql: str, *, engine: Literal["duckdb", "spark"] = "duckdb", **options: Any) -> Result:
    """Run SQL over the state tables of several stores, one's own and those of others.

    ``ours.delays`` is the query ``delays`` of the store ``ours``; all else is as in :meth:`streamstate.Store.sql`.
    Relations are read at their newest epochs, or those that they name. :func:`streamstate.cut` chooses epochs that
    belong together.

    Args:
        stores: open stores or their paths, by name.
        sql: one SELECT statement.
        engine: as there.
        **options: the other options of :meth:`streamstate.Store.sql`.

    Example:
        >>> both = {"ours": store, "theirs": "store"}
        >>> ss.sql(both, "SELECT o.max, t.max FROM ours.delays AS o JOIN theirs.delays AS t USING (carrier)")
    """
    return joined(stores).sql(sql, engine=engine, **options)
