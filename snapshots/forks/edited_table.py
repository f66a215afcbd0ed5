"""A state table of which some rows were edited: the rows as a state store keeps them, and what they do to a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamstate.snapshots.forks.rewriting import KEY, Operator
from streamstate.snapshots.operators import StateSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["EditedRow", "EditedTable", "family_of", "with_edits"]


@dataclass(frozen=True)
class EditedRow:
    """One edited row."""

    key: bytes
    value: bytes | None
    """None: it is taken away."""
    was: bool
    hit: int
    partition: int
    old: str | None
    new: str
    spare: bool
    """It was added for the case that there is no such row."""


@dataclass(frozen=True)
class EditedTable:
    """What edits make of one state table.

    Attributes:
        source: the table.
        operator: whose state it is.
        rows: the rows that were touched.
    """

    source: StateSource
    operator: Operator
    rows: Sequence[EditedRow] = field(repr=False)

    @property
    def family(self) -> str:
        """Spark's name of where the store keeps them."""
        return family_of(self.source)

    @property
    def removed(self) -> Counter[str]:
        """Rows, as text, that the original has and the fork does not."""
        return self._old - self._new

    @property
    def added(self) -> Counter[str]:
        """Rows, as text, that the fork has and the original does not."""
        return self._new - self._old

    @property
    def changed(self) -> int:
        """How many keys have another row than in the original, or one where the other has none."""
        old = {one.key: one.old for one in self.rows if one.was}
        new = {one.key: one.new for one in self.rows if one.value is not None}
        return sum(old.get(key) != new.get(key) for key in {*old, *new})

    @property
    def _old(self) -> Counter[str]:
        return Counter(one.old for one in self.rows if one.was and one.old is not None)

    @property
    def _new(self) -> Counter[str]:
        return Counter(one.new for one in self.rows if one.value is not None)

    def bytes(self) -> Iterator[tuple[str, bytearray, bytearray | None, int]]:
        """Column family, key, value (None: taken away) and partition of each row, one a key."""
        last = {one.key: one for one in sorted(self.rows, key=lambda one: one.value is not None)}
        for one in last.values():
            yield self.family, bytearray(one.key), None if one.value is None else bytearray(one.value), one.partition


def with_edits(rows: DataFrame, edited: Sequence[EditedTable], partitions: int) -> DataFrame:
    """The rows of an operator's store with the edits of its tables, in the partitions that they belong to.

    Args:
        rows: of the store, as bytes.
        edited: what edits make of the tables in it.
        partitions: over how many partitions the fork's state is spread.
    """
    from pyspark.sql import functions as F

    schema = "column_family_name string, key_bytes binary, value_bytes binary, partition int"
    ours = rows.sparkSession.createDataFrame([row for one in edited for row in one.bytes()], schema)
    place = ["column_family_name", "key_bytes"]
    columns = [KEY, "key_bytes", "value_bytes", "column_family_name"]
    hashed = F.pmod(F.hash(KEY), F.lit(partitions)).alias("partition")
    kept = rows.join(F.broadcast(ours.select(*place)), place, "left_anti").select(*columns, hashed)
    new = ours.where("value_bytes IS NOT NULL").withColumn(KEY, F.lit(None).cast(rows.schema[KEY].dataType))
    together = kept.unionAll(new.select(*columns, "partition"))
    if edited[0].operator.single:
        return together.select(*columns).coalesce(1)
    return together.repartitionById(partitions, F.col("partition")).select(*columns)


def family_of(source: StateSource) -> str:
    """Spark's name of the column family of a state table."""
    return source.options.get("stateVarName", "default")
