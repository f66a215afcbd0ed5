"""Everything that happened to one key: in one state table, in all tables that share it, and in a fork's ancestors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.duckdb_sql import listed, quoted
from streamstate.snapshots.layout import TIME
from streamstate.snapshots.names import unused
from streamstate.snapshots.operators import HASH
from streamstate.state_inspect.branches.ancestors import ancestors
from streamstate.state_inspect.differences.cause_rules import UNKNOWN
from streamstate.state_inspect.differences.causes import KeyRows
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.keys import check_key, invalid_key, key_condition, key_of, typed_key
from streamstate.state_inspect.recorded_query import ChangeLog, RecordedQuery
from streamstate.state_inspect.results.result_columns import result_columns
from streamstate.state_inspect.results.results import plan_throughout, table_of_result, with_result
from streamstate.state_inspect.snapshot import choose_table
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

_EPOCH, _COMMITTED = pa.field("epoch", pa.int64()), pa.field("committed_at", TIME)
_TABLE, _CHANGE, _CAUSE = (pa.field(name, pa.string()) for name in ("table", "change", "cause"))
_FIXED = (_EPOCH, _TABLE, _CHANGE, _CAUSE, _COMMITTED)


_Row = Mapping[str, Any]
"""One change of one row: ``epoch``, ``change``, ``cause``, keys ``k0``, … and values ``v0``, …, none if removed."""


def key_history(query: RecordedQuery, table: str | None, given: Mapping[str, Any]) -> pd.DataFrame:
    """The changes of a whole key in one state table of one query; see :meth:`History.key_history`."""
    query.live_entry()  # raises if no epoch is captured
    name = choose_table(table, query.tables(), query.name)
    log = query.columns(name)
    key = key_of(given, log.key_columns)
    check_key(key, log.key_columns, name)
    intervals = query.versions_of(name, typed_key(key, log.schema), -1)
    return _of_changes(list(_changes(query, name, intervals, key)), intervals)


def result_history(query: RecordedQuery, table: str | None, given: Mapping[str, Any]) -> pd.DataFrame:
    """As :func:`key_history`, with the columns that the query returns."""
    newest = query.live_entry()  # raises if no epoch is captured
    name = table_of_result(query, table, query.tables(), newest.epoch)
    log = query.columns(name)
    plan = plan_throughout(query, name, query.known_entries.captured[0], newest.epoch)
    columns = result_columns(
        plan, pa.schema([log.schema.field(column) for column in log.columns]), log.key_columns, name
    )
    names = list(columns.keys.values())
    key = key_of(given, names)
    check_key(key, names, name)
    in_state = {column: key[shown] for column, shown in columns.keys.items()}
    intervals = with_result(query.versions_of(name, typed_key(in_state, log.schema), -1), plan, name, newest.epoch)
    return _of_changes(list(_changes(query, name, intervals, in_state)), intervals)


def _of_changes(changes: Sequence[_Row], intervals: IntervalTable) -> pd.DataFrame:
    taken = ["epoch", "change", "committed_at", *intervals.value_columns]
    columns = [(field, [row[field.name] for row in changes]) for field in (_EPOCH, _CHANGE, _COMMITTED)]
    for at, value in enumerate(intervals.value_columns):
        columns.append((intervals.schema.field(value).remove_metadata(), [row.get(f"v{at}") for row in changes]))
    columns.append((_CAUSE.with_name(unused("cause", taken)), [row["cause"] for row in changes]))
    return _frame(columns)


def key_life(query: RecordedQuery, given: Mapping[str, Any]) -> pd.DataFrame:
    """The changes of a key in all tables whose key has its columns; see :meth:`History.life`."""
    query.live_entry()  # raises if no epoch is captured
    logs = {name: query.columns(name) for name in query.tables()}
    key = key_of(given, {column for log in logs.values() for column in log.key_columns})
    sharing = _sharing_tables(logs, key)
    tables = {name: query.versions_of(name, typed_key(key, logs[name].schema), -1) for name in sharing}
    found = [row for name, table in tables.items() for row in _changes(query, name, table, key)]
    found.sort(key=itemgetter("epoch"))
    columns = [(field, [row[field.name] for row in found]) for field in _FIXED]
    for field, numbers in _united_columns(tables, key).items():
        columns.append((field, [row.get(numbers.get(row["table"], "")) for row in found]))
    return _frame(columns)


def _changes(query: RecordedQuery, name: str, table: IntervalTable, key: Mapping[str, Any]) -> Iterator[_Row]:
    committed = query.known_entries.commit_times
    caused = query.causes().of(_key_rows(query, name, table, key), -1, table.high)
    changes = sorted((change for of_key in caused.values() for change in of_key), key=attrgetter("epoch"))
    for change in changes:
        if change.epoch in committed:
            cells = {number: cell for number, cell in change.version.items() if number[0] == "k" or not change.removed}
            kind = "delete" if change.removed else "keyframe" if change.epoch in table.starts else "put"
            facts = {"epoch": change.epoch, "table": name, "change": kind, "cause": change.cause}
            yield {**cells, **facts, "committed_at": committed[change.epoch]}


def _key_rows(query: RecordedQuery, name: str, table: IntervalTable, key: Mapping[str, Any]) -> KeyRows:
    """The keys that have some values; the columns of their versions are called ``k0``, … and ``v0``, …."""
    state = table.state
    condition, parameters = key_condition(state, key)
    sql = f"SELECT DISTINCT {listed([HASH, *state.key_columns])} FROM {state.relation} WHERE {condition}"
    try:
        found = query.index.query(f"{sql} ORDER BY {listed(state.key_columns)}", parameters)
    except duckdb.Error as error:
        raise invalid_key(key, state, error) from error
    columns = [f"{quoted(column)} AS k{at}" for at, column in enumerate(state.key_columns)]
    columns += [f"{table.in_state(column)} AS v{at}" for at, column in enumerate(table.value_columns)]
    rows = found.append_column("_row", pa.array(range(found.num_rows), pa.int64()))
    return KeyRows(name, state, rows, tuple(columns))


def _sharing_tables(tables: Mapping[str, ChangeLog], key: Mapping[str, Any]) -> list[str]:
    """The tables whose keys have all of some columns; raises if there is none, or no column."""
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
    """The tables' columns other than those of the given key, each with its number in each table.

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


def _frame(columns: Sequence[tuple[pa.Field, list[Any]]]) -> pd.DataFrame:
    arrays = [pa.array(cells, field.type) for field, cells in columns]
    return to_pandas(pa.table(arrays, schema=pa.schema([field.with_nullable(nullable=True) for field, _ in columns])))


def inherited_key_history(query: RecordedQuery, table: str | None, given: Mapping[str, Any]) -> pd.DataFrame:
    """A key's history that begins in a fork's ancestors; a last column, ``query``, names each row's query."""
    found = ancestors(query)
    queries = [query, *(ancestor.history.recorded for ancestor in found)]
    name = choose_table(table, list(dict.fromkeys(name for branch in queries for name in branch.tables())), query.name)
    # Each branch contributes the epochs after those that it shares with its parent.
    bounds = [ancestor.last for ancestor in found]
    parts: list[tuple[pd.DataFrame, str]] = []
    for branch, after, upto in reversed([*zip(queries, [*bounds, -1], [None, *bounds], strict=True)]):
        columns = branch.columns(name).key_columns if name in branch.tables() else []
        if columns and {*columns} == {*key_of(given, columns)}:
            frame = key_history(branch, name, given)
            if branch.begins_by(after):
                parts.append((_edited([part for part, _ in parts], frame, branch, after), branch.name))
            within = (frame["epoch"] > after) & (frame["epoch"] <= (frame["epoch"] if upto is None else upto))
            parts.append((frame[within], branch.name))
    if not parts:
        key_history(query, name, given)  # raises and says what is wrong with the key
    return _concatenated(parts)


def _edited(before: Sequence[pd.DataFrame], frame: pd.DataFrame, fork: RecordedQuery, epoch: int) -> pd.DataFrame:
    """The row for an edit of a fork's state at the epoch that it shares with its parent; empty if there was none."""
    earlier = next((_last_row(part) for part in reversed(before) if len(part)), None)
    own = _last_row(frame[frame["epoch"] <= epoch])
    if _values(earlier) == _values(own):
        return frame.head(0)
    if own is not None:
        return own.assign(epoch=epoch, change="put").astype(own.dtypes)
    assert earlier is not None
    schema = pa.Schema.from_pandas(earlier, preserve_index=False).remove_metadata()
    row = {"epoch": epoch, "change": "delete", "committed_at": fork.entry(epoch).committed_at}
    row |= {schema.names[-1]: UNKNOWN}
    return to_pandas(pa.table([pa.array([row.get(field.name)], field.type) for field in schema], schema=schema))


def _last_row(frame: pd.DataFrame) -> pd.DataFrame | None:
    """A history's last row; None if the key is not in the state after it."""
    last = frame.tail(1)
    return None if last.empty or last["change"].iloc[0] == "delete" else last


def _values(row: pd.DataFrame | None) -> str | None:
    """The values of a row, which lie between ``epoch``, ``change``, ``committed_at`` and the cause."""
    return None if row is None else repr(pa.Table.from_pandas(row.iloc[:, 3:-1], preserve_index=False).to_pylist())


def _concatenated(parts: Sequence[tuple[pd.DataFrame, str]]) -> pd.DataFrame:
    """The parts, oldest first; the columns of the newest part come first."""
    columns = list(dict.fromkeys(name for frame, _ in reversed(parts) for name in frame.columns))
    query_column = unused("query", columns)
    filled = [frame.assign(**{query_column: query}) for frame, query in parts]
    present = [frame for frame in filled if len(frame)] or filled[-1:]
    return pd.concat(present, ignore_index=True)[[*columns, query_column]]
