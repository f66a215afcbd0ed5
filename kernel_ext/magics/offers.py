"""What there is to complete with in the stores that the magics would read: queries, tables, columns, epochs, values.

Only the manifests and the schemas of the change logs are read, and a bounded number of rows for values: completing a
name must never load a state.
"""

from __future__ import annotations

import sys
from datetime import UTC
from typing import TYPE_CHECKING, Any

from streamstate.magics.key_values import key_values

if TYPE_CHECKING:
    from datetime import datetime

    from streamstate.magics.notebook import Notebook
    from streamstate.state_inspect import History, Store

__all__ = ["EPOCHS", "Offers"]

EPOCHS = 100
"""How many epochs are offered, the newest first."""

_TABLES_OF = 50  # queries
_BACK = (0, 1, 2, 3, 4, 5, 10, 20, 50, 100, 500, 1000)


class Offers:
    """Reads names, epochs and values from one store.

    Args:
        notebook: whose stores they are.
        store: the store that a line names; None: the one in use.
    """

    def __init__(self, notebook: Notebook, store: str | None = None) -> None:
        self._notebook = notebook
        self._given = store

    def queries(self) -> list[str]:
        """The queries of the store."""
        return self._store(None).queries()

    def running(self) -> list[str]:
        """The queries of the notebook."""
        return list(self._notebook.running)

    def relations(self, within: str = "") -> list[str]:
        """Queries, and their tables where there are several or one was begun to be named.

        Args:
            within: what is written already; tables are looked up of the queries that fit.
        """
        store = self._store(None)
        found = []
        begun = within.partition(".")[0]
        for name in [one for one in store.queries() if one.startswith(begun)][:_TABLES_OF]:
            inside = within.startswith(f"{name}.")
            tables = store[name].tables()
            found += [] if inside else [name]
            found += [f"{name}.{table}" for table in tables] if inside or len(tables) > 1 else []
        return found

    def tables(self, query: str) -> list[str]:
        """The state tables of a query."""
        return self._history(query).tables()

    def columns(self, relation: str) -> list[str]:
        """The columns of a relation, keys first, with those of its own where it is a history or a change log.

        Args:
            relation: ``delays``, ``delays.op0``, ``delays.history``, ``delays.op0.changes``, …
        """
        query, table, kind = self._parts(relation)
        log = self._history(query).change_log(table)
        own = {"history": ["_valid_from", "_valid_to", "_partition"], "changes": log.all_columns[:3]}
        return [*own.get(kind, []), *log.columns]

    def key_columns(self, relation: str) -> list[str]:
        """The key columns of a relation."""
        query, table, _kind = self._parts(relation)
        return self._history(query).change_log(table).keys

    def values(self, relation: str, column: str, begun: str) -> list[str]:
        """Values of a column that begin with a text, as they are written after ``--key COLUMN=``; few, and sorted."""
        query, table, _kind = self._parts(relation)
        return key_values(self._history(query), table, column, begun)

    def epochs(self, relation: str) -> list[str]:
        """Captured epochs, the newest first, then the ways to count back from the newest."""
        captured = self._history(relation.partition(".")[0]).captured()
        known = set(captured)
        back = [back for back in _BACK if captured and captured[-1] - back in known]
        named = ["live" if not one else f"live-{one}" for one in back]
        return [*(str(epoch) for epoch in reversed(captured[-EPOCHS:])), *named]

    def times(self, relation: str) -> list[str]:
        """When the captured epochs were committed, the newest first, in UTC."""
        entries = self._history(relation.partition(".")[0]).entries()[-EPOCHS:]
        return [_moment(one.committed_at) for one in reversed(entries) if one.captured and one.committed_at]

    def variables(self) -> list[str]:
        """The user's own variables, the newest last made first."""
        hidden = self._notebook.shell.user_ns_hidden
        names = [name for name in self._notebook.shell.user_ns if not name.startswith("_") and name not in hidden]
        return [name for name in reversed(names) if not _is_code(self._notebook.shell.user_ns[name])]

    def frames(self) -> dict[str, Any]:
        """The user's variables that are tables, by name."""
        from streamstate.state_inspect.sql import is_frame

        names = self._notebook.shell.user_ns
        return {name: names[name] for name in self.variables() if is_frame(names[name])}

    def codes(self) -> list[str]:
        """The user's functions and streaming DataFrames, the newest first."""
        user = self._notebook.shell
        names = [name for name in user.user_ns if not name.startswith("_") and name not in user.user_ns_hidden]
        return [name for name in reversed(names) if _makes_query(user.user_ns[name])]

    def _parts(self, relation: str) -> tuple[str, str, str]:
        """A relation's query, its state table, and whether its history or changes are meant."""
        query, *rest = relation.split(".")
        kind = rest.pop() if rest and rest[-1] in ("history", "changes") else ""
        return query, rest[0] if rest else self._history(query).tables()[0], kind

    def _history(self, query: str) -> History:
        store = self._store(query or None)
        return store[query or store.queries()[0]]

    def _store(self, query: str | None) -> Store:
        return self._notebook.peek(self._given, query)


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _makes_query(value: object) -> bool:
    """Whether a variable may hold what makes a streaming query."""
    function = callable(value) and not isinstance(value, type) and hasattr(value, "__code__")
    return function or bool(getattr(value, "isStreaming", False))


def _is_code(value: object) -> bool:
    """Whether a variable holds what was imported or defined, rather than data."""
    return callable(value) or isinstance(value, type(sys))
