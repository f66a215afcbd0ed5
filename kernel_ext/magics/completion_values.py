"""The values that completion offers: queries, tables, columns, epochs, key values, variables and directories.

Only manifests, the schemas of changelogs and a bounded number of rows are read: completing a name never loads a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamstate.snapshots.checkpoint.bindings import SHARED, relation_of
from streamstate.snapshots.checkpoint.state_tables import EPOCH

if TYPE_CHECKING:
    from streamstate.magics.notebook_context import NotebookContext
    from streamstate.snapshots.store.changelog import ChangeLog
    from streamstate.state_inspect import History, Store
    from streamstate.state_inspect.results.results import ShownColumns

EPOCHS = 100
"""How many epochs to offer, the newest first."""

OFFERED = 50
"""How many values of a key column are offered."""

ROWS = 200_000
"""How many rows of a change log are looked at, the newest files first, where the state was not read before."""

BATCH = 20_000
"""So many of them at a time."""

_TABLES_OF = 50  # queries
_READ_ENTRIES = 1000
_OFFERED_DIRECTORIES = 50
_BACK = (0, 1, 2, 3, 4, 5, 10, 20, 50, 100, 500, 1000)


class CompletionValues:
    """Reads names, epochs and values from one store of a notebook: the one given, else the one in use."""

    def __init__(self, notebook: NotebookContext, store: str | None = None) -> None:
        self._notebook = notebook
        self._given = store

    def queries(self) -> list[str]:
        """The queries of the store."""
        return self._store(None).queries()

    def shared_variables(self) -> list[str]:
        """The shared variables of the store."""
        return self._store(None).variables()

    def running(self) -> list[str]:
        """The queries of the notebook."""
        return list(self._notebook.running)

    def stores(self, begun: str) -> list[str]:
        """The stores of the notebook, then directories."""
        return directories(begun, "store", self._notebook.known_stores())

    def relations(self, begun: str = "") -> list[str]:
        """Queries, and the tables of those that have several or whose table is being typed.

        Only the tables of queries that match ``begun``, the text so far, are read.
        """
        store = self._store(None)
        found = []
        for name in [query for query in store.queries() if query.startswith(begun.partition(".")[0])][:_TABLES_OF]:
            inside = begun.startswith(f"{name}.")
            tables = self.tables(name)
            found += [] if inside else [name]
            found += [f"{name}.{table}" for table in tables] if inside or len(tables) > 1 else []
        return found

    def tables(self, query: str) -> list[str]:
        """The state tables of a query."""
        history = self._history(query)
        return [*history.results(), *history.tables()]

    def columns(self, relation: str) -> list[str]:
        """The columns of a relation such as ``delays.op0.changes``, after those that a history or a changelog adds."""
        query, table, kind = self._parts(relation)
        log = _shown(self._history(query), table)
        own = {"history": ["_valid_from", "_valid_to", "_partition"], "changes": ["_epoch", "_change", "_partition"]}
        return [*own.get(kind, []), *log.columns]

    def key_columns(self, relation: str) -> list[str]:
        """The key columns of a relation."""
        query, table, _kind = self._parts(relation)
        return _shown(self._history(query), table).key_columns

    def values(self, relation: str, column: str, begun: str) -> list[str]:
        """A few values of a column that begin with a text, sorted, as written after ``COLUMN=``."""
        query, table, _kind = self._parts(relation)
        return _key_values(self._history(query), table, column, begun)

    def epochs(self, relation: str) -> list[str]:
        """Captured epochs, the newest first, then ``live``, ``live-1`` and so on."""
        captured = self._history(self._query(relation)).captured()
        known = set(captured)
        back = [distance for distance in _BACK if captured and captured[-1] - distance in known]
        named = [f"live-{distance}" if distance else "live" for distance in back]
        return [*(str(epoch) for epoch in reversed(captured[-EPOCHS:])), *named]

    def times(self, relation: str) -> list[str]:
        """Return the commit times of the captured epochs, the newest first, in UTC."""
        entries = self._history(self._query(relation)).recorded.entries()[-EPOCHS:]
        committed = [entry.committed_at for entry in reversed(entries) if entry.captured and entry.committed_at]
        return [moment.astimezone(UTC).isoformat() for moment in committed]

    def variables(self) -> list[str]:
        """The user's variables that hold data, the newest first."""
        return [
            name for name, value in self._user_variables() if not (callable(value) or isinstance(value, ModuleType))
        ]

    def frames(self) -> dict[str, Any]:
        """The user's variables that are DataFrames, by name."""
        from streamstate.state_inspect.sql.user_data import is_frame

        names = self._notebook.shell.user_ns
        return {name: names[name] for name in self.variables() if is_frame(names[name])}

    def codes(self) -> list[str]:
        """The user's functions and streaming DataFrames, the newest first."""
        return [name for name, value in self._user_variables() if _makes_query(value)]

    def _user_variables(self) -> list[tuple[str, Any]]:
        """The user's variables, the newest first."""
        shell = self._notebook.shell
        named = [(name, shell.user_ns[name]) for name in shell.user_ns if name not in shell.user_ns_hidden]
        return [(name, value) for name, value in reversed(named) if not name.startswith("_")]

    def _parts(self, relation: str) -> tuple[str, str, str]:
        """A relation's query, its table, and ``history`` or ``changes`` if it is one of those."""
        query = self._query(relation)
        rest = relation.removeprefix(query).split(".")[1:]
        kind = rest.pop() if rest and rest[-1] in ("history", "changes") else ""
        return query, ".".join(rest) or self._default_table(query, kind), kind

    @staticmethod
    def _query(relation: str) -> str:
        """The query of a relation, or the shared variable."""
        query, _, rest = relation.partition(".")
        return relation_of(rest.partition(".")[0]) if query == SHARED and rest else query

    def _default_table(self, query: str, kind: str) -> str:
        """Return the table that ``%state NAME`` shows: the result if it is known."""
        return (self._history(query).tables() if kind else self.tables(query))[0]

    def _history(self, query: str) -> History:
        store = self._store(query or None)
        return store[query or store.queries()[0]]

    def _store(self, query: str | None) -> Store:
        return self._notebook.peek(self._given, query)


def _makes_query(value: object) -> bool:
    """Return True if a value may be the code of a streaming query."""
    function = callable(value) and not isinstance(value, type) and hasattr(value, "__code__")
    return function or bool(getattr(value, "isStreaming", False))


def _shown(history: History, table: str) -> ShownColumns:
    from streamstate.state_inspect.results.results import shown_columns

    return shown_columns(history.recorded, table)


def _key_values(history: History, table: str, column: str, begun: str) -> list[str]:
    """Values of a column that begin with a text, sorted: a bounded number of rows is looked at."""
    shown = _shown(history, table)
    table, column = shown.state, shown.state_keys.get(column, column)
    log = history.recorded.changelog(table)
    if column not in log.columns:
        return []
    held = history.recorded.index.held(history.name, table)
    values = _held_values(history, held, column, begun) if held is not None else _newest_values(log, column)
    return sorted(_beginning(values, begun))


def _beginning(values: Iterable[pa.Array], begun: str) -> set[str]:
    """Some texts of values that begin with a text; a window is written by its start."""
    from streamstate.state_inspect.keys.key_text import is_window, spelled
    from streamstate.state_inspect.python_rows import python_values

    found: set[str] = set()
    seen = 0
    for some in values:
        starts = some.field("start") if is_window(some.type) else some
        distinct = starts if pa.types.is_nested(starts.type) else starts.unique()
        texts = {spelled(value) for value in python_values(distinct) if value is not None}
        found |= {text for text in texts if text.startswith(begun)}
        seen += len(some)
        if len(found) >= OFFERED or seen >= ROWS:
            break
    return set(sorted(found)[:OFFERED])


def _held_values(history: History, held: Any, column: str, begun: str) -> Iterable[pa.Array]:
    """In the index, which is at hand: the keys that the state has, and of texts those that begin with a text."""
    from streamstate.snapshots.store.duckdb_sql import quoted
    from streamstate.state_inspect.temporal_index.interval_table import held_at

    name, kind = quoted(column), held.schema.field(column).type
    condition, limit = held_at(held.high), BATCH
    if not (pa.types.is_nested(kind) or pa.types.is_temporal(kind)):
        condition += f" AND starts_with(CAST({name} AS VARCHAR), $1)"
        limit = OFFERED
    sql = f"SELECT DISTINCT {name} AS v FROM {held.relation} WHERE {condition} LIMIT {limit}"
    rows: pa.Table = history.recorded.index.query(sql, [begun] if "$1" in condition else None)
    return list(rows["v"].chunks)


def _newest_values(log: ChangeLog, column: str) -> Iterator[pa.Array]:
    """The values of a column in small portions, those of the newest file first."""
    for file in reversed(log.version.files(EPOCH)):
        for batch in log.version.scan_files([file], columns=[column]):
            for start in range(0, batch.num_rows, BATCH):
                yield batch.column(0).slice(start, BATCH)


def directories(begun: str, kind: str, known: Iterable[str] = ()) -> list[str]:
    """Directories that begin with a text: known ones, those of a kind (``store``, ``checkpoint``), then others."""
    first = [path for path in known if path.startswith(begun)]
    if "://" in begun:
        return first
    parent, slash, _last = begun.rpartition("/")
    found = [f"{parent}{slash}{path.name}" for path in _subdirectories(parent + slash or ".")]
    matching = [path for path in found if path.startswith(begun)]
    marks = {"store": ["_queries"], "checkpoint": ["metadata", "offsets"]}.get(kind, [])
    of_kind = [path for path in matching if marks and all((Path(path).expanduser() / mark).exists() for mark in marks)]
    rest = [f"{path}/" for path in matching if path not in of_kind]
    return list(dict.fromkeys([*first, *of_kind, *rest]))[:_OFFERED_DIRECTORIES]


def _subdirectories(path: str) -> list[Path]:
    """The visible directories in a directory, sorted; none if it cannot be read."""
    try:
        entries = list(islice(Path(path).expanduser().iterdir(), _READ_ENTRIES))
        return sorted(entry for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []
