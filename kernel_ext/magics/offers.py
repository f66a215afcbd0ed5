"""What there is to complete with: queries, tables, columns, epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.magics.arguments import Completes

if TYPE_CHECKING:
    from streamstate.magics.notebook import Notebook
    from streamstate.state_inspect import History, StateTable, Store

__all__ = ["Offers"]

_EPOCHS = 100


class Offers:
    """Reads the names from the stores that the magics would read."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook

    def values(self, kind: Completes, relation: str, fragment: str, store: str | None) -> list[str]:
        """What an argument may be completed with.

        Args:
            kind: what the argument is.
            relation: the query and table that its line names.
            fragment: what is written of it.
            store: the store that its line names.
        """
        if kind == "running":
            return list(self._notebook.running)
        if kind == "query":
            return self._store(store, None).queries()
        if kind == "relation":
            return self.relations(store, within=fragment)
        if kind == "epoch":
            captured = self._history(relation, store).captured()
            return [str(epoch) for epoch in reversed(captured[-_EPOCHS:])]
        if kind == "key":
            return [f"{column}=" for column in self._table(relation, store).key_columns]
        return self.columns(relation, store) if kind == "column" else []

    def relations(self, store: str | None, *, within: str = "") -> list[str]:
        """Queries, and their tables where there are several or one was begun to be named."""
        found = []
        opened = self._store(store, None)
        for name in opened.queries():
            tables = opened[name].tables()
            found += [name] if not within.startswith(f"{name}.") else []
            if len(tables) > 1 or within.startswith(f"{name}."):
                found += [f"{name}.{table}" for table in tables]
        return found

    def columns(self, relation: str, store: str | None) -> list[str]:
        """The columns of a relation."""
        table = self._table(relation, store)
        return [*table.key_columns, *table.value_columns]

    def _store(self, path: str | None, query: str | None) -> Store:
        return self._notebook.open(path, query)

    def _history(self, relation: str, store: str | None) -> History:
        query = relation.partition(".")[0]
        if not query:
            return self._store(store, None)[self._store(store, None).queries()[0]]
        return self._store(store, query)[query]

    def _table(self, relation: str, store: str | None) -> StateTable:
        return self._history(relation, store).live().table(relation.partition(".")[2] or None)
