"""When a condition on state held: found in the intervals of the versions, not by walking through the epochs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import sqlglot
from sqlglot import exp

from streamstate.snapshots.change_log import quoted
from streamstate.snapshots.errors import InvalidSQLError, UnknownColumnError
from streamstate.snapshots.layout import TIME
from streamstate.snapshots.operators import HASH
from streamstate.state_inspect.expressions import predicate_sql
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.state_table import bad_key
from streamstate.state_inspect.temporal_index.interval_table import held_at

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect.temporal_index.index import Index
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable


class Condition:
    """A condition on the rows of a state table, or on those of one key.

    Args:
        text: the condition, as after WHERE.
        name: the state table.
        table: its interval table.
        key: values for some or all of its key columns.

    Raises:
        InvalidSQLError: where it does not parse, or is more than a condition on one row.
        UnknownColumnError: where it names a column, or the key one, that the table does not have.
    """

    def __init__(self, text: str, name: str, table: IntervalTable, key: Mapping[str, Any]) -> None:
        self.text = text
        self.table = table
        self._key = key
        for column in key:
            if column not in table.key_columns:
                raise UnknownColumnError.among("key column", column, table.key_columns, where=f"in {name}")
        condition = predicate_sql(text, table.columns, name)
        if sqlglot.parse_one(text, read="duckdb").find(exp.AggFunc, exp.Window):
            raise InvalidSQLError(
                f"{text!r} is about many rows; a condition here is about one row at a time.\n"
                "Ask for aggregates at one epoch with store.sql, or compare two with diff(a, b).summary()."
            )
        self._sql = f"({condition})"
        self._parameters: list[Any] = []
        if key:
            self._of_key, self._parameters = key_condition(table, key)
            self._sql = f"{self._of_key} AND {self._sql}"

    @property
    def sql(self) -> str:
        """The condition on a version; its parameters are :attr:`parameters`."""
        return self._sql

    @property
    def parameters(self) -> list[Any]:
        """What the SQL needs."""
        return list(self._parameters)

    def query(self, index: Index, sql: str, times: int = 1) -> pa.Table:
        """Run a statement that has the condition in it some times.

        Raises:
            InvalidArgumentError: where the key's values do not fit.
            InvalidSQLError: where the condition cannot be run.
        """
        try:
            return index.query(sql, self._parameters * times)
        except duckdb.Error as error:
            if self._key:
                self._check_key(index)
            raise InvalidSQLError(f"The condition cannot be run: {str(error).splitlines()[0]}") from error

    def _check_key(self, index: Index) -> None:
        try:
            index.query(f"SELECT count(*) FROM {self.table.relation} WHERE {self._of_key}", self._parameters)
        except duckdb.Error as error:
            raise bad_key(self._key, self.table, error) from error


def first_epoch(condition: Condition, index: Index, entries: Sequence[Entry]) -> int | None:
    """The first epoch at which some row met the condition: see :meth:`History.first`."""
    relation, high = condition.table.relation, condition.table.high
    sql = f"SELECT min(_valid_from) AS epoch FROM {relation} WHERE _valid_from <= {high} AND {condition.sql}"
    found = condition.query(index, sql)["epoch"][0].as_py()
    captured = [entry.epoch for entry in entries if entry.captured]
    if found is None or found in captured:
        return None if found is None else int(found)
    # Retention has dropped the epoch since; the next ones may have lost the row as well.
    for epoch in captured[bisect_left(captured, found) :]:
        held = f"SELECT count(*) AS n FROM {relation} WHERE {held_at(epoch)} AND {condition.sql}"
        if condition.query(index, held)["n"][0].as_py():
            return epoch
    return None


def spans(condition: Condition, index: Index, entries: Sequence[Entry]) -> pd.DataFrame:
    """The spans in which some row met the condition: see :meth:`History.when`."""
    found = list(_spans(_numbers(condition, index)))
    columns = {
        "held_from": pa.array([start for start, _, _ in found], pa.int64()),
        "held_until": pa.array([end for _, end, _ in found], pa.int64()),
        "committed_at": _committed([start for start, _, _ in found], entries),
        "keys": pa.array([most for _, _, most in found], pa.int64()),
    }
    return to_pandas(pa.table(columns))


def spans_per_key(condition: Condition, index: Index, entries: Sequence[Entry]) -> pd.DataFrame:
    """The spans in which each key met the condition: see :meth:`History.when`."""
    table = condition.table
    own = [f"k{at}" for at in range(len(table.key_columns))]
    numbered = ", ".join(f"{quoted(name)} AS {number}" for name, number in zip(table.key_columns, own, strict=True))
    key = f"{HASH}, {', '.join(own)}"
    found = condition.query(
        index,
        f"WITH met AS (SELECT {HASH}, {numbered}, _valid_from, _valid_to FROM {table.relation}"
        f" WHERE _valid_from <= {table.high} AND {condition.sql}),"
        f" marked AS (SELECT *, lag(_valid_to) OVER (PARTITION BY {key} ORDER BY _valid_from)"
        " IS DISTINCT FROM _valid_from AS _begins FROM met),"
        f" numbered AS (SELECT *, sum(_begins::INT) OVER (PARTITION BY {key} ORDER BY _valid_from) AS _span"
        " FROM marked)"
        f" SELECT {', '.join(own)}, min(_valid_from) AS _from, {_until('max(_valid_to)', table.high)} AS _until"
        f" FROM numbered GROUP BY {key}, _span ORDER BY _from, {', '.join(f'{one} NULLS LAST' for one in own)}",
    )
    starts = found["_from"]
    committed = _committed(starts.to_pylist(), entries)
    arrays = [*(found[one] for one in own), starts, found["_until"], committed]
    return to_pandas(pa.table(arrays, names=[*table.key_columns, "held_from", "held_until", "committed_at"]))


def _numbers(condition: Condition, index: Index) -> list[tuple[int, int]]:
    """How many rows met the condition from each epoch on at which that number may have changed."""
    relation, high = condition.table.relation, condition.table.high
    found = condition.query(
        index,
        f"WITH met AS (SELECT _valid_from, _valid_to, count(*) AS n FROM {relation}"
        f" WHERE _valid_from <= {high} AND {condition.sql} GROUP BY ALL),"
        " marks AS (SELECT _valid_from AS epoch, n FROM met UNION ALL"
        f" SELECT _valid_to, -n FROM met WHERE _valid_to <= {high})"
        " SELECT epoch, sum(n)::BIGINT AS n FROM marks GROUP BY epoch ORDER BY epoch",
    )
    total, numbers = 0, []
    for epoch, change in zip(found["epoch"].to_pylist(), found["n"].to_pylist(), strict=True):
        total += change
        numbers.append((epoch, total))
    return numbers


def _spans(numbers: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int | None, int]]:
    """Where the number was above 0: from, until (None: still), and the largest number."""
    start, most = None, 0
    for epoch, number in numbers:
        if number and start is None:
            start = epoch
        most = max(most, number)
        if not number and start is not None:
            yield start, epoch, most
            start, most = None, 0
    if start is not None:
        yield start, None, most


def _until(epoch: str, high: int) -> str:
    """SQL for the end of a span, NULL where it lasts; later epochs than the table's newest are not looked at."""
    return f"CASE WHEN {epoch} <= {high} THEN {epoch} END"


def _committed(epochs: Sequence[int], entries: Sequence[Entry]) -> pa.Array:
    known = {entry.epoch: entry.committed_at for entry in entries}
    return pa.array([known.get(epoch) for epoch in epochs], TIME)


def key_condition(table: IntervalTable, key: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The SQL condition that a version is of a key, or of all keys with some values, and its parameters."""
    if {*key} == {*table.key_columns}:
        return table.key_is(key)
    return " AND ".join(f"{quoted(name)} IS NOT DISTINCT FROM ?" for name in key), list(key.values())
