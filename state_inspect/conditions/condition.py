"""Conditions on the rows of a state table or a result, and the epochs at which they were met.

The epochs follow from the intervals of the versions, not from reading epoch by epoch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa

from streamstate.errors import UnknownColumnError
from streamstate.snapshots.checkpoint.state_tables import HASH
from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.snapshots.store.entries import Entry
from streamstate.snapshots.store.layout import TIME
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.keys.key_rows import key_condition, typed_key
from streamstate.state_inspect.keys.table_key import TableKey
from streamstate.state_inspect.results.results import (
    RESULT,
    plan_throughout,
    results_shown,
    shown_columns,
    state_of,
    table_of_result,
    with_result,
)
from streamstate.state_inspect.snapshot import choose_table
from streamstate.state_inspect.sql.condition_policy import condition_failed, predicate_sql
from streamstate.state_inspect.temporal_index.index import Index
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at


class Condition:
    """A condition on the rows of a state table, or on those of a key, whose values have the columns' types."""

    def __init__(self, text: str, name: str, table: IntervalTable, key: Mapping[str, Any]) -> None:
        self.table = table
        self.sql = f"({predicate_sql(text, table.columns, name)})"
        """The condition on a version, for :meth:`query`."""
        self.parameters: list[Any] = []
        """Its parameters."""
        if key:
            of_key, self.parameters = key_condition(table, key)
            self.sql = f"{of_key} AND {self.sql}"

    def query(self, index: Index, sql: str, times: int = 1) -> pa.Table:
        """Run a statement that contains the condition a number of times."""
        try:
            return index.query(sql, self.parameters * times)
        except duckdb.Error as error:
            raise condition_failed(error) from error


@dataclass(frozen=True)
class ConditionInPart:
    """A condition on the rows of a part of a history."""

    condition: Condition
    first: int
    last: int

    @property
    def relation(self) -> str:
        """The relation that the part is read from."""
        return self.condition.table.relation

    @property
    def sql(self) -> str:
        """The condition that a version met it in the part."""
        return f"_valid_from <= {self.last} AND _valid_to > {self.first} AND {self.condition.sql}"

    @property
    def valid_from(self) -> str:
        """The epoch of the part from which on a version is valid."""
        return f"greatest(_valid_from, {self.first})"

    def goes_on(self, epoch: str) -> str:
        """Return SQL that is true for a span that continues from the part before."""
        return f"({epoch} <= {self.first})"


def table_of_condition(query: CapturedQuery, predicate: str, table: str | None, key: Mapping[str, Any]) -> str:
    """Return the table that a condition is about; without a name the result, if it has the columns, else the state."""
    if table is None and RESULT in results_shown(query):
        columns = shown_columns(query, RESULT)
        try:
            predicate_sql(predicate, columns.columns, RESULT)
            _given(query, RESULT, key)
        except UnknownColumnError:
            pass
        else:
            return RESULT
    return table if table is not None and state_of(table)[1] else choose_table(table, query.tables(), query.name)


def condition_on(query: CapturedQuery, predicate: str, table: str, key: Mapping[str, Any]) -> Condition:
    """Return a condition on the rows of a state table or a result at all epochs, perhaps only on those of one key."""
    columns = shown_columns(query, table)
    given = _given(query, table, key)
    state, is_result = state_of(table)
    if is_result:
        versions = _of_result(query, state, lambda name: query.interval_table(name, -1))
    else:
        versions = query.versions_of(table, typed_key(given, columns.schema) if given else None, -1)
    return Condition(predicate, table, versions, given)


def _given(query: CapturedQuery, table: str, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key that a call gives, or some of its columns, or none."""
    return TableKey.of(query, table).given(key, whole=False) if key else {}


def condition_in_parts(
    query: CapturedQuery, predicate: str, table: str, key: Mapping[str, Any]
) -> Iterator[ConditionInPart]:
    """As :func:`condition_on`, in parts of the history that fit into memory."""
    if key:
        condition = condition_on(query, predicate, table, key)
        yield ConditionInPart(condition, -1, condition.table.high)
        return
    state, is_result = state_of(table)
    if is_result:
        state = table_of_result(query, state, query.tables(), query.live_entry().epoch)
    for part in query.parts(state or table):
        rows = _of_result(query, state, part.has) if is_result else part.table
        yield ConditionInPart(Condition(predicate, table, rows, {}), part.first, part.last)


def _of_result(query: CapturedQuery, state: str | None, versions: Callable[[str], IntervalTable]) -> IntervalTable:
    """Versions of the result at all epochs, computed from those of the state."""
    epochs = query.entries().captured
    name = table_of_result(query, state, query.tables(), epochs[-1])
    plan = plan_throughout(query, name, epochs[0], epochs[-1])
    return with_result(versions(name), plan, name, epochs[-1])


def first_epoch_met(condition: Condition, index: Index, entries: Sequence[Entry]) -> int | None:
    """Return the first epoch at which any row met the condition; see :meth:`History.first`."""
    relation, high = condition.table.relation, condition.table.high
    sql = f"SELECT min(_valid_from) AS epoch FROM {relation} WHERE _valid_from <= {high} AND {condition.sql}"
    found = condition.query(index, sql)["epoch"][0].as_py()
    captured = [entry.epoch for entry in entries if entry.captured]
    if found is None or found in captured:
        return None if found is None else int(found)
    # Retention has dropped the epoch; the row may be gone from the next ones too.
    for epoch in captured[bisect_left(captured, found) :]:
        held = f"SELECT count(*) AS n FROM {relation} WHERE {held_at(epoch)} AND {condition.sql}"
        if condition.query(index, held)["n"][0].as_py():
            return epoch
    return None


def spans(parts: Iterable[ConditionInPart], index: Index, entries: Sequence[Entry]) -> pd.DataFrame:
    """Return the spans in which any row met the condition; see :meth:`History.when`."""
    found = _joined(
        parts,
        index,
        _spans_in,
        "WITH numbered AS (SELECT *, sum((NOT _goes_on)::INT) OVER (ORDER BY _part, _from) AS _span FROM parts)"
        " SELECT min(_from) AS _from, arg_max_null(_until, _part) AS _until, max(keys) AS keys"
        " FROM numbered GROUP BY _span ORDER BY _from",
    )
    columns = [found["_from"], found["_until"], _committed(found["_from"], entries), found["keys"]]
    return to_pandas(pa.table(columns, names=["held_from", "held_until", "committed_at", "keys"]))


def _spans_in(part: ConditionInPart) -> str:
    return (
        f"WITH met AS (SELECT {part.valid_from} AS _valid_from, _valid_to, count(*) AS n"
        f" FROM {part.relation} WHERE {part.sql} GROUP BY ALL),"
        " marks AS (SELECT _valid_from AS epoch, n FROM met UNION ALL"
        f" SELECT _valid_to, -n FROM met WHERE _valid_to <= {part.last}),"
        # How many rows met it from each epoch on, until the next.
        " numbers AS (SELECT epoch, sum(sum(n)) OVER (ORDER BY epoch) AS n, lead(epoch) OVER (ORDER BY epoch) AS next"
        " FROM marks GROUP BY epoch),"
        " numbered AS (SELECT *, count(*) FILTER (n = 0) OVER (ORDER BY epoch) AS span FROM numbers)"
        " SELECT min(epoch) AS _from, arg_max_null(next, epoch) AS _until, max(n)::BIGINT AS keys,"
        f" {part.goes_on('min(epoch)')} AS _goes_on FROM numbered WHERE n > 0 GROUP BY span"
    )


def spans_per_key(
    parts: Iterable[ConditionInPart], index: Index, entries: Sequence[Entry], names: Sequence[str]
) -> pd.DataFrame:
    """Return the spans in which each key met the condition; see :meth:`History.when`."""
    keys = [f"k{at}" for at in range(len(names))]
    key = f"{HASH}, {', '.join(keys)}"
    found = _joined(
        parts,
        index,
        _spans_per_key_in,
        f"WITH numbered AS (SELECT *, sum((NOT _goes_on)::INT) OVER (PARTITION BY {key} ORDER BY _part, _from) AS _span"
        f" FROM parts) SELECT {', '.join(keys)}, min(_from) AS _from, arg_max_null(_until, _part) AS _until"
        f" FROM numbered GROUP BY {key}, _span ORDER BY _from, {', '.join(f'{column} NULLS LAST' for column in keys)}",
    )
    columns = [*(found[key] for key in keys), found["_from"], found["_until"], _committed(found["_from"], entries)]
    return to_pandas(pa.table(columns, names=[*names, "held_from", "held_until", "committed_at"]))


def _spans_per_key_in(part: ConditionInPart) -> str:
    names = part.condition.table.key_columns
    keys = [f"k{at}" for at in range(len(names))]
    numbered = ", ".join(f"{quoted(name)} AS {number}" for name, number in zip(names, keys, strict=True))
    key = f"{HASH}, {', '.join(keys)}"
    return (
        f"WITH met AS (SELECT {HASH}, {numbered}, {part.valid_from} AS _valid_from, _valid_to"
        f" FROM {part.relation} WHERE {part.sql}),"
        f" marked AS (SELECT *, lag(_valid_to) OVER (PARTITION BY {key} ORDER BY _valid_from)"
        " IS DISTINCT FROM _valid_from AS _begins FROM met),"
        f" numbered AS (SELECT *, sum(_begins::INT) OVER (PARTITION BY {key} ORDER BY _valid_from) AS _span"
        " FROM marked)"
        f" SELECT {key}, min(_valid_from) AS _from,"
        f" CASE WHEN max(_valid_to) <= {part.last} THEN max(_valid_to) END AS _until,"
        f" {part.goes_on('min(_valid_from)')} AS _goes_on FROM numbered GROUP BY {key}, _span"
    )


def _joined(
    parts: Iterable[ConditionInPart], index: Index, spans_in: Callable[[ConditionInPart], str], sql: str
) -> pa.Table:
    """Return the spans of all parts; those that continue from one part to the next are joined."""
    try:
        return index.query_parts(((spans_in(part), part.condition.parameters) for part in parts), sql)
    except duckdb.Error as error:
        raise condition_failed(error) from error


def _committed(epochs: pa.ChunkedArray, entries: Sequence[Entry]) -> pa.Array:
    known = {entry.epoch: entry.committed_at for entry in entries}
    return pa.array([known.get(epoch) for epoch in epochs.to_pylist()], TIME)
