"""Which queries a store has, and which of them are forks of which: the table of queries, kept open by a reader."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from deltalake import DeltaTable

from streamstate.snapshots.delta import open_table
from streamstate.snapshots.delta.commits import update
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.layout import Layout


@dataclass(frozen=True)
class Kin:
    """A query and where it comes from."""

    name: str
    query_id: str
    checkpoint: str
    parent: str | None = None
    """The query that it was forked from: its name where the store has it, else what the table of queries says."""
    parent_epoch: int | None = None
    """The last epoch that it shares with its parent."""


class Lineage:
    """The queries of a store, read again only when the table of queries has changed. Any thread may ask."""

    def __init__(self, layout: Layout) -> None:
        self._place = layout.queries
        self._table: DeltaTable | None = None
        self._known: tuple[Kin, ...] = ()
        self._lock = threading.Lock()

    def queries(self) -> tuple[Kin, ...]:
        """All queries, by name; the same object as long as nothing has changed.

        Raises:
            DamagedStoreError, StoreError: where the table of queries cannot be read.

        Example:
            >>> [kin.name for kin in Lineage(store.layout).queries() if kin.parent]  # doctest: +SKIP
            ['delays_test']
        """
        with self._lock:
            if self._table is None:
                self._table = open_table(self._place)
                changed = self._table is not None
            else:
                changed = update(self._place, self._table)
            if changed and self._table is not None:
                self._known = _kin(TableVersion(self._place, self._table))
            return self._known

    def forks_of(self, name: str) -> list[Kin]:
        """The queries that were forked from one, by the epoch at which they were."""
        return sorted((kin for kin in self.queries() if kin.parent == name), key=lambda kin: kin.parent_epoch or 0)

    def of(self, name: str) -> Kin | None:
        """One query; None where the store has none of that name."""
        return next((kin for kin in self.queries() if kin.name == name), None)


def _kin(version: TableVersion) -> tuple[Kin, ...]:
    columns = ["name", "query_id", "checkpoint", "parent", "parent_epoch"]
    rows = version.read("format", columns=columns).to_pylist()
    names = {row["query_id"]: row["name"] for row in rows}
    found = (Kin(**row | {"parent": names.get(row["parent"], row["parent"])}) for row in rows)
    return tuple(sorted(found, key=lambda kin: kin.name))
