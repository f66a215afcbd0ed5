"""A comparison of the state in two checkpoints: every table, key by key, as Spark's own state reader returns it.

Spark's executors read and compare; only a digest of each table and the few rows to show come to the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from streamstate.errors import SparkVersionError, UnknownEpochError, choices
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, PARTITION, POSITION
from streamstate.snapshots.spark.private_classes import has_class
from streamstate.snapshots.spark.state_reader import StateFrame, StateReader, with_list_positions
from streamstate.snapshots.store.canonical_rows import canonical_text, column_named, digest, row_hashes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LIMIT = 10
_HASHES = ("hash0", "hash1")
_READER = "org.apache.spark.sql.execution.datasources.v2.state.StateDataSource"


@dataclass(frozen=True)
class StateAt:
    """The state of a query after one epoch."""

    checkpoint: str
    """The query's checkpoint."""
    epoch: int
    """A committed epoch that the checkpoint still holds."""

    def __str__(self) -> str:
        return f"{self.checkpoint} at epoch {self.epoch}"


@dataclass(frozen=True)
class TableDifference:
    """The difference between two states of one table."""

    table: str
    why: str
    """The difference in a sentence."""
    rows: int | None
    """The number of rows in the first state; None if it lacks the table."""
    other_rows: int | None
    """The number of rows in the second."""
    only_one: int = 0
    """Rows that only the first state has; a row whose value differs counts in both."""
    only_other: int = 0
    """Rows that only the second has."""
    of_one: tuple[str, ...] = ()
    """Some rows that only the first has, as JSON, sorted."""
    of_other: tuple[str, ...] = ()
    """Some rows that only the second has."""

    def __str__(self) -> str:
        lines = [f"{self.table}: {self.why}"]
        lines += [f"  - {row}" for row in self.of_one]
        lines += [f"  + {row}" for row in self.of_other]
        return "\n".join(lines)


def difference_of(facts: Mapping[str, Any]) -> TableDifference:
    """Return a difference from plain values: JSON has turned its tuples into lists."""
    difference = TableDifference(**facts)
    return replace(difference, of_one=tuple(difference.of_one), of_other=tuple(difference.of_other))


@dataclass(frozen=True)
class StateComparison:
    """The result of comparing two states."""

    differences: tuple[TableDifference, ...]
    """The state tables that differ."""
    spread: Mapping[str, Sequence[int]]
    """For each state table of the first state, the number of rows in each partition."""
    other_spread: Mapping[str, Sequence[int]]
    """The same for the second state."""


def state_differences(
    spark: SparkSession, one: StateAt, other: StateAt, *, limit: int = _LIMIT, exact: bool = False
) -> list[TableDifference]:
    """Return the state tables that differ between two states; an empty list means that the states are the same.

    Each state is read with the settings that its own query is pinned to, so the two may have different numbers of
    partitions, checkpoint formats and state store providers. Every row counts, with its key, its value and, in a
    list, its position; the partition that holds it does not. A join's counters count too.

    One job reads both states once and sums two 64-bit hashes of every row, without a shuffle. Rows are compared with
    each other only in tables whose sums differ. The chance of missing a difference is 1 in 2^128; ``exact`` rules it
    out, at the cost of shuffling both states.

    Args:
        spark: the session whose cluster compares; its settings are left unchanged.
        one: the first state.
        other: the second state.
        limit: how many rows of each side to show in a difference.
        exact: compare all rows with each other.

    Raises:
        NotACheckpointError: a path is not a checkpoint.
        UnknownEpochError: a checkpoint does not hold the epoch (any more).
        NoStateError: a query keeps no state.

    Example:
        >>> before, after = StateAt("checkpoints/delays", 40), StateAt("checkpoints/what_if", 40)
        >>> [difference.why for difference in state_differences(spark, before, after)]
        ['rows that differ: 1 of the first state, 1 of the second']
    """
    return list(compare_states(spark, one, other, limit=limit, exact=exact).differences)


def require_state_reader(spark: SparkSession, what: str) -> None:
    """Raise unless this Spark has the data source ``statestore``.

    Args:
        spark: the session.
        what: the beginning of the message, such as "Promoting a fork".

    Raises:
        SparkVersionError: it does not.
    """
    if not has_class(spark._jvm, _READER):
        advice = "Do it beside Spark 4.0 or later, in another environment: the checkpoint is only files."
        raise SparkVersionError.needs(what, "4.0", spark.version, advice)


def compare_states(
    spark: SparkSession, one: StateAt, other: StateAt, *, limit: int = _LIMIT, exact: bool = False
) -> StateComparison:
    """As :func:`state_differences`, with the number of rows in each partition, from the same job."""
    sides = (_Side.read(spark, one), _Side.read(spark, other))
    differences = _differences(sides, (str(one), str(other)), limit=limit, exact=exact)
    spreads = [{name: table.spread(side.partitions) for name, table in side.tables.items()} for side in sides]
    return StateComparison(tuple(differences), spreads[0], spreads[1])


def _differences(
    sides: tuple[_Side, _Side], states: tuple[str, str], *, limit: int, exact: bool
) -> list[TableDifference]:
    _count(sides)
    differences: list[TableDifference] = []
    for name in sorted({*sides[0].tables, *sides[1].tables}):
        left, right = (side.tables.get(name) for side in sides)
        if left is None or right is None:
            differences.append(_missing(name, left, right, states))
        elif left.columns != right.columns:
            why = f"its columns are ({left.columns}) in the first state and ({right.columns}) in the second"
            differences.append(TableDifference(name, why, left.rows, right.rows))
        elif exact or left.sums != right.sums:
            differences += _by_rows(left, right, limit)
    return differences


def differences_from(
    spark: SparkSession, state: StateAt, expected: Mapping[str, DataFrame], *, limit: int = _LIMIT
) -> tuple[list[TableDifference], dict[str, int]]:
    """Compare a state with the rows that its tables should have, as :func:`state_differences`; and count its rows.

    Args:
        spark: the session whose cluster compares.
        state: the state.
        expected: by state table, a frame with its columns, of a session whose time zone is UTC.
        limit: how many rows of each side to show in a difference.
    """
    held = _Side.read(spark, state, counters=False)
    wanted = _Side({name: _Table.expected(name, frame) for name, frame in expected.items()}, 0)
    found = _differences((wanted, held), ("what was to be written", str(state)), limit=limit, exact=False)
    return found, {name: table.rows for name, table in held.tables.items()}


@dataclass(frozen=True)
class _Table:
    """One state table of one side."""

    name: str
    columns: str
    texts: DataFrame
    """Each row's partition, canonical text and two hashes, of which only those that are used are computed."""
    counted: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By partition, the number of rows and the sums of their hashes; :func:`_count` fills it."""

    @classmethod
    def of(cls, state: StateFrame, name: str) -> _Table:
        flat = state.frame.drop(EPOCH, CHANGE)
        if POSITION in state.columns.keys:
            flat = with_list_positions(flat, state.columns.spark_keys)
        return cls._of_columns(name, flat)

    @classmethod
    def expected(cls, name: str, frame: DataFrame) -> _Table:
        """Return the rows that a table should have, in any partition; positions in lists come last, as in a state."""
        from pyspark.sql import functions as F

        names = sorted(frame.columns, key=lambda column: column == POSITION)
        return cls._of_columns(name, frame.select(F.lit(0).alias(PARTITION), *map(column_named, names)))

    @classmethod
    def _of_columns(cls, name: str, frame: DataFrame) -> _Table:
        fields = [field for field in frame.schema.fields if field.name != PARTITION]
        names = [field.name for field in fields]
        text, hashes = canonical_text(frame.schema, names), row_hashes(frame.schema, names)
        described = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)
        return cls(name, described, frame.select(PARTITION, text.alias("text"), *_named(hashes)))

    @property
    def sums(self) -> tuple[int, ...]:
        """The sums over the whole table, the number of rows first; they do not depend on the partitioning."""
        return tuple(map(sum, zip(*self.counted.values(), strict=True)))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(sums[0] for sums in self.counted.values())

    def spread(self, partitions: int) -> tuple[int, ...]:
        """Return the number of rows in each partition."""
        count = max([partitions, *(partition + 1 for partition in self.counted)])
        return tuple(self.counted.get(partition, (0,))[0] for partition in range(count))


@dataclass(frozen=True)
class _Side:
    """All state tables of one side."""

    tables: dict[str, _Table]
    partitions: int

    @classmethod
    def read(cls, spark: SparkSession, state: StateAt, *, counters: bool = True) -> _Side:
        checkpoint = CheckpointFiles(state.checkpoint, spark)
        checkpoint.query_id  # noqa: B018 - raises if this is not a checkpoint
        held = checkpoint.committed()
        if state.epoch not in held:
            raise UnknownEpochError(f"{state.checkpoint} does not hold epoch {state.epoch}.\nIt holds {_spans(held)}.")
        reader = StateReader(spark, checkpoint)
        sources = reader.sources(state.epoch)
        if counters and any("Join" in source.operator for source in sources):
            sources = [*sources, *reader.counters(state.epoch)]
        tables = {source.table: _Table.of(reader.state(source, state.epoch), source.table) for source in sources}
        return cls(tables, checkpoint.partitions(state.epoch) or 0)


def _count(sides: Sequence[_Side]) -> None:
    """Count every table of each side, all in one job."""
    from pyspark.sql import functions as F

    frames = [
        table.texts.groupBy(PARTITION)
        .agg(*digest(F.col(name) for name in _HASHES))
        .select(F.lit(at).alias("side"), F.lit(table.name).alias("table"), "*")
        for at, side in enumerate(sides)
        for table in side.tables.values()
    ]
    for at, name, partition, *sums in reduce(lambda left, right: left.unionAll(right), frames).collect():
        sides[at].tables[name].counted[partition] = tuple(sums)


def _named(hashes: Sequence[Column]) -> Iterator[Column]:
    return (column.alias(name) for column, name in zip(hashes, _HASHES, strict=True))


def _missing(name: str, left: _Table | None, right: _Table | None, states: tuple[str, str]) -> TableDifference:
    counts = [None if table is None else table.rows for table in (left, right)]
    why = f"{states[0] if left is None else states[1]} has no such state table"
    return TableDifference(name, why, counts[0], counts[1], counts[0] or 0, counts[1] or 0)


def _by_rows(left: _Table, right: _Table, limit: int) -> Iterator[TableDifference]:
    """Return the rows that one of two tables has more often than the other, if there are any."""
    from pyspark.sql import functions as F

    signed = [table.texts.select("text", F.lit(sign).alias("times")) for table, sign in ((left, 1), (right, -1))]
    rows = signed[0].unionAll(signed[1]).groupBy("text").agg(F.sum("times").alias("times")).where("times <> 0")
    rows = rows.persist()  # computed once; executors spill what does not fit to disk
    try:
        sums = [F.sum(F.greatest(F.col("times") * sign, F.lit(0))) for sign in (1, -1)]
        counts = [int(count or 0) for count in rows.agg(*sums).first() or ()]
        if any(counts):
            why = f"rows that differ: {counts[0]:,} of the first state, {counts[1]:,} of the second"
            shown = [_shown(rows.where(sign), limit) for sign in ("times > 0", "times < 0")]
            yield TableDifference(left.name, why, left.rows, right.rows, counts[0], counts[1], shown[0], shown[1])
    finally:
        rows.unpersist()


def _shown(rows: DataFrame, limit: int) -> tuple[str, ...]:
    return tuple(row["text"] for row in rows.orderBy("text").limit(limit).collect())


def _spans(epochs: Sequence[int]) -> str:
    """Ascending epochs as spans, such as "epochs 3 to 6, 9"."""
    spans: list[list[int]] = []
    for epoch in epochs:
        if spans and spans[-1][-1] == epoch - 1:
            spans[-1][1:] = [epoch]
        else:
            spans.append([epoch])
    return "epochs " + choices(" to ".join(map(str, span)) for span in spans) if spans else "no committed epoch"
