"""Whether two checkpoints hold the same state: every table, key by key, as Spark's own state reader gives it.

Spark's executors read and compare; what comes to the driver is a digest of each table and the few rows to be shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import UnknownEpochError, choices
from streamstate.snapshots.operators import PARTITION, POSITION, Columns, Shape, StateSource, flatten
from streamstate.snapshots.row_text import row_text, text_digest
from streamstate.snapshots.state_reader import StateReader

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Comparison", "StateAt", "TableDifference", "compared", "differing"]

_LIMIT = 10
_ORDER = "_order"


@dataclass(frozen=True)
class StateAt:
    """The state of a query after one epoch."""

    checkpoint: str
    """Where the query keeps its state."""
    epoch: int
    """A committed epoch that the checkpoint still holds."""

    def __str__(self) -> str:
        return f"{self.checkpoint} at epoch {self.epoch}"


@dataclass(frozen=True)
class TableDifference:
    """What tells one state table of two states apart."""

    table: str
    why: str
    """The difference in a sentence."""
    rows: int | None
    """How many rows the one state has; None where it lacks the table."""
    other_rows: int | None
    """How many the other has."""
    only_one: int = 0
    """Rows that only the one state has; a row whose value differs is in both of these."""
    only_other: int = 0
    """Rows that only the other has."""
    of_one: tuple[str, ...] = ()
    """Some of them, as JSON, ordered."""
    of_other: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.table}: {self.why}"]
        lines += [f"  - {row}" for row in self.of_one]
        lines += [f"  + {row}" for row in self.of_other]
        return "\n".join(lines)


def differing(
    spark: SparkSession, one: StateAt, other: StateAt, *, limit: int = _LIMIT, exact: bool = False
) -> list[TableDifference]:
    """The state tables that are not the same in two states; none: they are the same state.

    Each side is read with the settings that its own query is pinned to, so the two may have different numbers of
    partitions, checkpoint formats and state store providers. Every row counts, with its key, its value and, in a
    list, its position; the partition that holds it does not. What a join counts beside its rows counts too.

    One job reads both sides once and sums two 64-bit hashes of every row, without a shuffle; rows are compared with
    each other only in the tables in which those sums differ. A difference stays unnoticed with a chance of 1 in
    2^128; ``exact`` leaves none, for the price of a shuffle of both sides.

    Args:
        spark: the session whose cluster compares; its settings stay as they are.
        one: a state.
        other: the state to compare it with.
        limit: how many rows of each side to name in a difference.
        exact: compare all rows with each other.

    Raises:
        NotACheckpointError: where there is no checkpoint.
        UnknownEpochError: where a checkpoint does not hold the epoch, or no longer.
        NoStateError: where a query keeps no state.

    Example:
        >>> before, after = StateAt("checkpoints/delays", 40), StateAt("checkpoints/what_if", 40)
        >>> differing(spark, before, after)
        []
    """
    return list(compared(spark, one, other, limit=limit, exact=exact).differences)


@dataclass(frozen=True)
class Comparison:
    """Two states next to each other."""

    differences: tuple[TableDifference, ...]
    """The state tables that are not the same."""
    spread: Mapping[str, Sequence[int]]
    """For each state table of the one state how many rows each of its partitions has."""
    other_spread: Mapping[str, Sequence[int]]
    """The same of the other state."""


def compared(
    spark: SparkSession, one: StateAt, other: StateAt, *, limit: int = _LIMIT, exact: bool = False
) -> Comparison:
    """What :func:`differing` finds, and how each side is spread over its partitions, from the same job."""
    states = (one, other)
    sides = [_Side.read(spark, state) for state in states]
    digests = _digests([[*side.tables.values()] for side in sides])
    found: list[TableDifference] = []
    for name in sorted({*sides[0].tables, *sides[1].tables}):
        left, right = (side.tables.get(name) for side in sides)
        here, there = (digest.get(name) for digest in digests)
        if left is None or right is None or here is None or there is None:
            found.append(_missing(name, here, there, states))
        elif left.kinds != right.kinds:
            found.append(_other_columns(left, right, here, there))
        elif exact or here.sums != there.sums:
            found += _by_rows(left, right, here, there, limit)
    spreads = [
        {name: digest.spread(side.partitions) for name, digest in each.items()}
        for side, each in zip(sides, digests, strict=True)
    ]
    return Comparison(tuple(found), spreads[0], spreads[1])


@dataclass(frozen=True)
class _Table:
    """One state table of one side: a frame of each row's partition and text."""

    name: str
    kinds: str
    texts: DataFrame

    @classmethod
    def of(cls, frame: DataFrame, source: StateSource) -> _Table:
        from pyspark.sql import functions as F

        columns = flatten(frame.schema, source.shape)
        # The reader gives a key's elements in the list's order, all in one partition.
        order = [F.monotonically_increasing_id().alias(_ORDER)] if source.shape is Shape.LIST else []
        flat = frame.select(F.col("partition_id").alias(PARTITION), *columns.select, *order)
        if order:
            flat = flat.withColumn(POSITION, _position(flat, columns)).drop(_ORDER)
        held = [one for one in flat.schema.fields if one.name != PARTITION]
        texts = flat.select(PARTITION, row_text(flat.schema, [one.name for one in held]).alias("text"))
        kinds = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in held)
        return cls(source.table, kinds, texts)


@dataclass(frozen=True)
class _Side:
    """All state tables of one side."""

    tables: dict[str, _Table]
    partitions: int

    @classmethod
    def read(cls, spark: SparkSession, state: StateAt) -> _Side:
        checkpoint = Checkpoint(state.checkpoint, spark)
        checkpoint.query_id  # noqa: B018 - raises where this is no checkpoint
        held = checkpoint.committed()
        if state.epoch not in held:
            raise UnknownEpochError(f"{state.checkpoint} does not hold epoch {state.epoch}.\nIt holds {_spans(held)}.")
        reader = StateReader(spark, checkpoint)
        sources = reader.sources(state.epoch)
        if any("Join" in one.operator for one in sources):
            sources = [*sources, *reader.counters(state.epoch)]
        tables = {one.table: _Table.of(reader.frame(one, state.epoch), one) for one in sources}
        return cls(tables, checkpoint.partitions(state.epoch) or 0)


def _position(flat: DataFrame, columns: Columns) -> Column:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [name for name in columns.keys if name != POSITION]
    return F.row_number().over(Window.partitionBy(row_text(flat.schema, keys)).orderBy(_ORDER)) - F.lit(1)


@dataclass(frozen=True)
class _Digest:
    """The number of rows of a table and the sums of their hashes."""

    by_partition: Mapping[int, tuple[int, ...]]

    @property
    def sums(self) -> tuple[int, ...]:
        """Of the whole table, the number of rows first; the same wherever the rows are."""
        return tuple(map(sum, zip(*self.by_partition.values(), strict=True)))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(sums[0] for sums in self.by_partition.values())

    def spread(self, partitions: int) -> tuple[int, ...]:
        """How many rows each partition has."""
        known = max([partitions, *(one + 1 for one in self.by_partition)])
        return tuple(self.by_partition.get(one, (0,))[0] for one in range(known))


def _digests(sides: Sequence[Sequence[_Table]]) -> list[dict[str, _Digest]]:
    """The digest of each table of each side, all from one job."""
    from pyspark.sql import functions as F

    rows = [
        table.texts.groupBy(PARTITION)
        .agg(*text_digest(F.col("text")))
        .select(F.lit(at).alias("side"), F.lit(table.name).alias("table"), "*")
        for at, tables in enumerate(sides)
        for table in tables
    ]
    read = reduce(lambda left, right: left.unionAll(right), rows).collect()
    found: list[dict[str, dict[int, tuple[int, ...]]]] = [{table.name: {} for table in tables} for tables in sides]
    for side, name, partition, *sums in read:
        found[side][name][partition] = tuple(sums)
    return [{name: _Digest(each) for name, each in tables.items()} for tables in found]


def _missing(
    name: str, here: _Digest | None, there: _Digest | None, states: tuple[StateAt, StateAt]
) -> TableDifference:
    counts = [None if one is None else one.rows for one in (here, there)]
    why = f"{states[0] if here is None else states[1]} has no such state table"
    return TableDifference(name, why, counts[0], counts[1], counts[0] or 0, counts[1] or 0)


def _other_columns(left: _Table, right: _Table, here: _Digest, there: _Digest) -> TableDifference:
    why = f"its columns are ({left.kinds}) in the one and ({right.kinds}) in the other"
    return TableDifference(left.name, why, here.rows, there.rows)


def _by_rows(left: _Table, right: _Table, one: _Digest, other: _Digest, limit: int) -> Iterator[TableDifference]:
    """The rows that one of two tables has more often than the other, if there are any."""
    from pyspark.sql import functions as F

    here, there = (table.texts.select("text", F.lit(sign).alias("times")) for table, sign in ((left, 1), (right, -1)))
    rows = here.unionAll(there).groupBy("text").agg(F.sum("times").alias("times")).where("times <> 0")
    with _kept(rows) as rows:
        sums = [F.sum(F.greatest(F.col("times") * sign, F.lit(0))) for sign in (1, -1)]
        more = [int(one or 0) for one in rows.agg(*sums).first() or ()]
        if any(more):
            why = f"{more[0]:,} rows are only in the one, {more[1]:,} only in the other"
            shown = [_shown(rows.where(sign), limit) for sign in ("times > 0", "times < 0")]
            yield TableDifference(left.name, why, one.rows, other.rows, more[0], more[1], shown[0], shown[1])


def _shown(rows: DataFrame, limit: int) -> tuple[str, ...]:
    return tuple(row["text"] for row in rows.orderBy("text").limit(limit).collect())


@contextmanager
def _kept(rows: DataFrame) -> Iterator[DataFrame]:
    """The rows, computed once; executors put on disk what does not fit."""
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _spans(epochs: Sequence[int]) -> str:
    """Some ascending epochs as spans: epochs 3 to 6, 9."""
    spans: list[list[int]] = []
    for epoch in epochs:
        if spans and spans[-1][-1] == epoch - 1:
            spans[-1][1:] = [epoch]
        else:
            spans.append([epoch])
    return "epochs " + choices(" to ".join(map(str, span)) for span in spans) if spans else "no committed epoch"
