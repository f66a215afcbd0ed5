"""Everything that happened to one key: in one state table, in all tables that share it, and in a fork's ancestors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.checkpoint.state_tables import HASH
from streamstate.snapshots.store.changelog import ChangeLog
from streamstate.snapshots.store.duckdb_sql import listed, quoted
from streamstate.snapshots.store.layout import TIME
from streamstate.snapshots.store.names import unused
from streamstate.state_inspect.branches.ancestors import ancestors
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.causes.cause_rules import UNKNOWN
from streamstate.state_inspect.causes.causes import KeyRows
from streamstate.state_inspect.cell_text import canonical
from streamstate.state_inspect.keys.key_rows import given_key, key_condition, typed_key
from streamstate.state_inspect.keys.table_key import TableKey
from streamstate.state_inspect.results.results import (
    RESULT,
    plan_throughout,
    shown_columns,
    table_of_result,
    with_result,
)
from streamstate.state_inspect.snapshot import choose_table
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

_EPOCH, _COMMITTED = pa.field("epoch", pa.int64()), pa.field("committed_at", TIME)
_TABLE, _CHANGE, _CAUSE, _QUERY = (pa.field(name, pa.string()) for name in ("table", "change", "cause", "query"))
_PUT, _DELETE = "put", "delete"
_FIXED = (_EPOCH, _TABLE, _CHANGE, _COMMITTED, _CAUSE)


_Row = Mapping[str, Any]
"""One change of one row: ``epoch``, ``change``, ``cause``, keys ``k0``, … and values ``v0``, …, none if removed."""


@dataclass(frozen=True)
class _Part:
    """The changes of a key in one query."""

    query: str
    keys: Mapping[str, pa.Field]
    """The key columns that were not given, by their names in the rows."""
    values: Mapping[str, pa.Field]
    rows: Sequence[_Row]
    """Ascending by epoch."""

    def key(self, row: _Row) -> Any:
        """Return the part of a row's key that the caller did not give."""
        return canonical([row.get(number) for number in self.keys])

    def row_values(self, row: _Row) -> dict[str, Any]:
        """Return the values of a row, by column."""
        return {field.name: canonical(row.get(number)) for number, field in self.values.items()}


def key_history(
    query: CapturedQuery, table: str | None, given: Mapping[str, Any], *, ancestors: bool = False, result: bool = False
) -> pa.Table:
    """Return the changes of a key, or of all keys with some values; see :meth:`History.key_history`."""
    if ancestors:
        return _united(_inherited(query, table, given), with_query=True)
    query.live_entry()  # raises if no epoch is captured
    if result:
        return _united([_of_result(query, table, given)])
    if table is None and len(query.tables()) > 1:
        return changes_in_all_tables(query, given)
    return _united([_of_state(query, choose_table(table, query.tables(), query.name), given)])


def _of_state(query: CapturedQuery, name: str, given: Mapping[str, Any]) -> _Part:
    log = query.columns(name)
    key = TableKey.of(query, name).given(given, whole=False)
    return _part(query, name, query.versions_of(name, typed_key(key, log.schema), -1), key)


def _of_result(query: CapturedQuery, table: str | None, given: Mapping[str, Any]) -> _Part:
    """With the columns that the query returns."""
    newest = query.live_entry()
    name = table_of_result(query, table, query.tables(), newest.epoch)
    plan = plan_throughout(query, name, query.known_entries.captured[0], newest.epoch)
    columns = shown_columns(query, f"{name}.{RESULT}")
    key = TableKey.of(query, f"{name}.{RESULT}").given(given, whole=False)
    in_state = {columns.state_keys[shown]: value for shown, value in key.items()}
    versions = query.versions_of(name, typed_key(in_state, query.columns(name).schema), -1)
    return _part(query, name, with_result(versions, plan, name, newest.epoch), in_state)


def _part(query: CapturedQuery, name: str, table: IntervalTable, key: Mapping[str, Any]) -> _Part:
    of_state = enumerate(zip(table.state.key_columns, table.key_columns, strict=True))
    keys = {f"k{at}": _field(table, shown) for at, (own, shown) in of_state if own not in key}
    values = {f"v{at}": _field(table, column) for at, column in enumerate(table.value_columns)}
    return _Part(query.name, keys, values, list(_changes(query, name, table, key)))


def _field(table: IntervalTable, column: str) -> pa.Field:
    return table.schema.field(column).remove_metadata()


def _inherited(query: CapturedQuery, table: str | None, given: Mapping[str, Any]) -> list[_Part]:
    """Return a key's history that begins in a fork's ancestors, oldest first."""
    found = ancestors(query)
    queries = [query, *(ancestor.history.recorded for ancestor in found)]
    name = choose_table(table, list(dict.fromkeys(name for branch in queries for name in branch.tables())), query.name)
    # Each branch contributes the epochs after those that it shares with its parent.
    bounds = [ancestor.last for ancestor in found]
    parts: list[_Part] = []
    for branch, after, upto in reversed([*zip(queries, [*bounds, -1], [None, *bounds], strict=True)]):
        if name not in branch.tables():
            continue
        part = _of_state(branch, name, given)
        edits = _edits(parts, part, branch, after) if branch.begins_by(after) else []
        own = [row for row in part.rows if row["epoch"] > after and (upto is None or row["epoch"] <= upto)]
        parts.append(replace(part, rows=[*edits, *own]))
    return parts


def _edits(before: Sequence[_Part], part: _Part, fork: CapturedQuery, epoch: int) -> list[_Row]:
    """Return a row for each edit of a fork's state at the epoch that it shares with its parent."""
    earlier = {earlier.key(row): (earlier, row) for earlier in before for row in earlier.rows}
    own = {part.key(row): row for row in part.rows if row["epoch"] <= epoch}
    found: list[_Row] = []
    for key in dict.fromkeys([*earlier, *own]):
        old, now = earlier.get(key), own.get(key)
        old_values = None if old is None or old[1]["change"] == _DELETE else old[0].row_values(old[1])
        new_values = None if now is None or now["change"] == _DELETE else part.row_values(now)
        if old_values == new_values:
            continue
        if now is not None and new_values is not None:
            found.append({**now, "epoch": epoch, "change": _PUT})
        elif old is not None:
            by_name = {field.name: old[1].get(number) for number, field in old[0].keys.items()}
            keys = {number: by_name.get(field.name) for number, field in part.keys.items()}
            committed = fork.entry(epoch).committed_at
            found.append(keys | {"epoch": epoch, "change": _DELETE, "cause": UNKNOWN, "committed_at": committed})
    return found


def _united(parts: Sequence[_Part], *, with_query: bool = False) -> pa.Table:
    """Return the changes of all parts as a table; the columns of the newest part come first."""
    newest_first = [*reversed(parts)]
    keys = {field.name: field for part in newest_first for field in part.keys.values()}
    values = {field.name: field for part in newest_first for field in part.values.values()}
    rows = [(part, row) for part in parts for row in part.rows]
    columns = [(field, [row[field.name] for _, row in rows]) for field in (_EPOCH, _CHANGE, _COMMITTED)]
    for kind, fields in (("keys", keys), ("values", values)):
        numbers = {part.query: {field.name: number for number, field in getattr(part, kind).items()} for part in parts}
        for name, field in fields.items():
            columns.append((field, [row.get(numbers[part.query].get(name, "")) for part, row in rows]))
    taken = [field.name for field, _ in columns]
    columns.append((_CAUSE.with_name(unused("cause", taken)), [row["cause"] for _, row in rows]))
    if with_query:
        columns.append((_QUERY.with_name(unused("query", [*taken, "cause"])), [part.query for part, _ in rows]))
    return _table(columns)


def changes_in_all_tables(query: CapturedQuery, given: Mapping[str, Any]) -> pa.Table:
    """Return the changes of a key in all tables whose key has its columns; see :meth:`History.key_history`."""
    query.live_entry()  # raises if no epoch is captured
    logs = {name: query.columns(name) for name in query.tables()}
    key = given_key(given, {column for log in logs.values() for column in log.key_columns})
    typed = {name: TableKey.of(query, name).given({"key": key}, whole=False) for name in _sharing_tables(logs, key)}
    tables = {name: query.versions_of(name, typed_key(typed[name], logs[name].schema), -1) for name in typed}
    found = [row for name, table in tables.items() for row in _changes(query, name, table, typed[name])]
    found.sort(key=itemgetter("epoch"))
    *first, cause = [(field, [row[field.name] for row in found]) for field in _FIXED]
    own = [
        (field, [row.get(numbers.get(row["table"], "")) for row in found])
        for field, numbers in _united_columns(tables, key).items()
    ]
    return _table([*first, *own, cause])


def _changes(query: CapturedQuery, name: str, table: IntervalTable, key: Mapping[str, Any]) -> Iterator[_Row]:
    committed = query.known_entries.commit_times
    caused = query.causes().of(_key_rows(query, name, table, key), -1, table.high)
    changes = sorted((change for of_key in caused.values() for change in of_key), key=attrgetter("epoch"))
    for change in changes:
        if change.epoch in committed:
            cells = {number: cell for number, cell in change.version.items() if number[0] == "k" or not change.removed}
            kind = _DELETE if change.removed else "keyframe" if change.epoch in table.starts else _PUT
            facts = {"epoch": change.epoch, "table": name, "change": kind, "cause": change.cause}
            yield {**cells, **facts, "committed_at": committed[change.epoch]}


def _key_rows(query: CapturedQuery, name: str, table: IntervalTable, key: Mapping[str, Any]) -> KeyRows:
    """Return the keys that have some values; the columns of their versions are called ``k0``, … and ``v0``, …."""
    state = table.state
    condition, parameters = key_condition(state, key)
    sql = f"SELECT DISTINCT {listed([HASH, *state.key_columns])} FROM {state.relation} WHERE {condition}"
    found = query.index.query(f"{sql} ORDER BY {listed(state.key_columns)}", parameters)
    columns = [f"{quoted(column)} AS k{at}" for at, column in enumerate(state.key_columns)]
    columns += [f"{table.in_state(column)} AS v{at}" for at, column in enumerate(table.value_columns)]
    rows = found.append_column("_row", pa.array(range(found.num_rows), pa.int64()))
    return KeyRows(name, state, rows, tuple(columns))


def _sharing_tables(tables: Mapping[str, ChangeLog], key: Mapping[str, Any]) -> list[str]:
    """Return the tables whose keys have all of some columns; raise if there is none, or no column."""
    listing = "\n".join(f"  {name}: {', '.join(table.key_columns)}" for name, table in tables.items())
    if not key:
        raise InvalidArgumentError(f"Pass a value for at least one key column.\nKey columns by table:\n{listing}")
    found = [name for name, table in tables.items() if {*key} <= {*table.key_columns}]
    if found:
        return found
    known = {column for table in tables.values() for column in table.key_columns}
    wrong = [name for name in key if name not in known] or list(key)
    raise UnknownColumnError(
        f"No state table has the key column{'s' * (len(wrong) > 1)} {', '.join(wrong)}"
        f"{' together' if len(wrong) > 1 else ''}.\nKey columns by table:\n{listing}"
    )


def _united_columns(tables: Mapping[str, IntervalTable], key: Mapping[str, Any]) -> dict[pa.Field, dict[str, str]]:
    """Return the tables' columns other than those of the given key, each with its number in each table.

    Columns with the same name and type become one. If only the names match, the later column is named after its table.
    """
    columns: dict[pa.Field, dict[str, str]] = {}
    fixed = {field.name for field in _FIXED}
    taken: dict[str, pa.Field] = {field.name: field for field in _FIXED}
    for name, table in tables.items():
        keys = [(column, f"k{at}") for at, column in enumerate(table.key_columns) if column not in key]
        for column, number in [*keys, *((column, f"v{at}") for at, column in enumerate(table.value_columns))]:
            field = table.schema.field(column).remove_metadata()
            if taken.get(column, field) != field or column in fixed:
                field = field.with_name(unused(f"{name}.{column}", taken))
            taken[field.name] = field
            columns.setdefault(field, {})[name] = number
    return columns


def _table(columns: Sequence[tuple[pa.Field, list[Any]]]) -> pa.Table:
    arrays = [pa.array(cells, field.type) for field, cells in columns]
    return pa.table(arrays, schema=pa.schema([field.with_nullable(nullable=True) for field, _ in columns]))
