"""The rows of an operator's state stores, made from its state tables.

A store has one column family, or one for each state variable and more. Some hold what a state table shows: one row per
key, a list's elements, a map's entries, timers. Spark derives the others from these: how many rows a key of a join has,
how many elements a list has, what expires when. They are derived here in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructField, StructType

from streamstate.errors import UnsupportedStateError
from streamstate.replay.state_writing.state_rewriter import PARTITION_KEY, RewritableOperator, RowEncoder
from streamstate.replay.state_writing.state_values import struct_type, to_state_type
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.operator_metadata import recorded_stores
from streamstate.snapshots.checkpoint.decoding.schema_files import family_schemas
from streamstate.snapshots.checkpoint.state_tables import (
    KEY_PARTS,
    ORDER,
    POSITION,
    VALUE_PARTS,
    Shape,
    StateSource,
    flatten,
)
from streamstate.snapshots.store.canonical_rows import column_named

_FAMILY = "column_family_name"
_GROUP, _KEY, _VALUE, _ORDER = "_group", "_key", "_value", "_order"
TIME, TTL = "expiration_timestamp_ms", "ttlExpirationMs"
"""Spark's names of the time of a timer, and of the time at which a row of a variable with a TTL expires."""
_OF_A_VARIABLE = re.compile(r"\$(rowCounter|count|min|ttl)_(.+)")
_OF_A_SIDE = re.compile(r"(left|right)-(keyToNumValues|keyWithIndexToValue)")
_TIMERS_BY_TIME = re.compile(r"\$\w+_timestampToKey")


@dataclass(frozen=True)
class TableRows:
    """The rows that a state table is to have, as Spark's state reader returns them."""

    source: StateSource
    frame: DataFrame
    """The reader's columns (``key``, ``value``, …), ``_group`` (what determines the partition) and ``_order``."""

    @classmethod
    def of(cls, source: StateSource, schema: StructType, group: StructType, table: DataFrame) -> TableRows:
        """Take the rows from a frame with the columns of the state table.

        Args:
            source: the state table.
            schema: what Spark's state reader returns of it.
            group: what determines the partition: the first fields of the key.
            table: the frame.

        Raises:
            UnsupportedStateError: there is no way back from a column of the table to the state.
        """
        columns = flatten(schema, source.shape)
        names = {KEY_PARTS: iter(columns.spark_keys), VALUE_PARTS: iter(columns.values)}
        parts = [
            _part(schema, part, names[kinds], source.table)
            for kinds in (KEY_PARTS, VALUE_PARTS)
            for part in kinds
            if part in schema.names
        ]
        order = column_named(POSITION) if source.shape is Shape.LIST else F.lit(0)
        return cls._grouped(source, group, table.select(*parts, order.cast("long").alias(_ORDER)))

    @classmethod
    def of_state(cls, source: StateSource, group: StructType, state: DataFrame) -> TableRows:
        """Take the rows from a frame of Spark's state reader; that of a list also has a column for the order."""
        parts = [part for part in (*KEY_PARTS, *VALUE_PARTS) if part in state.columns]
        order = F.col(ORDER) if source.shape is Shape.LIST else F.lit(0)
        return cls._grouped(source, group, state.select(*parts, order.cast("long").alias(_ORDER)))

    @classmethod
    def _grouped(cls, source: StateSource, group: StructType, rows: DataFrame) -> TableRows:
        key = [f"key.`{field.name}`" for field in struct_type(rows.schema, "key").fields[: len(group.fields)]]
        return cls(source, rows.select("*", F.struct(*key).alias(_GROUP)))

    @property
    def key(self) -> Column:
        """The key as the store has it."""
        parts = [part for part in KEY_PARTS if part in self.frame.columns]
        return F.struct(*parts) if len(parts) > 1 else F.col("key")

    @property
    def value(self) -> Column:
        """The value as the store has it; timers have none."""
        found = next((part for part in VALUE_PARTS if part in self.frame.columns), None)
        return _nothing() if found is None else F.col(found)

    @property
    def expires(self) -> Column:
        """The column of the time at which a row of a variable with a TTL expires."""
        return self.value.getField(TTL)

    def rows(self, key: Column, value: Column) -> DataFrame:
        """Return a row for each of the table's."""
        return self.frame.select(_GROUP, key.alias(_KEY), value.alias(_VALUE), _ORDER)

    def row_per_key(self, key: Column, value: Column) -> DataFrame:
        """Return a row per key, with columns ``rows`` (their number) and ``first`` (the earliest expiry)."""
        expires = self.expires if self.has_ttl else F.lit(None).cast("long")
        grouped = self.frame.withColumn("_expires", expires).groupBy(_GROUP, "key")
        counted = grouped.agg(F.count("*").alias("rows"), F.min("_expires").alias("first"))
        return counted.select(_GROUP, key.alias(_KEY), value.alias(_VALUE), F.lit(0).cast("long").alias(_ORDER))

    @property
    def has_ttl(self) -> bool:
        """True if it is a variable with a TTL."""
        kind = self.frame.select(self.value.alias("value")).schema["value"].dataType
        return TTL in getattr(kind, "names", ())


@dataclass(frozen=True)
class RewrittenStore:
    """A state store of an operator."""

    name: str
    families: Sequence[str]
    """Its column families."""
    group: StructType
    """What determines the partition of a row; without fields there is only one."""
    partitions: int


def store_rows(store: RewrittenStore, tables: Sequence[TableRows], encoder: RowEncoder) -> DataFrame:
    """Return all rows of a state store, in the form that Spark's ``StateRewriter`` writes.

    Args:
        store: the store.
        tables: the rows of the operator's state tables.
        encoder: encodes keys and values.

    Returns:
        A frame with a partition for each of the store's.

    Raises:
        UnsupportedStateError: a column family is of an unknown kind.
    """
    numbered = list(enumerate(store.families))
    frames = [
        _rows_of(store.name, family, tables).select(
            _GROUP,
            _ORDER,
            F.lit(family).alias(_FAMILY),
            _not_constant(F.col(_KEY)).alias(f"{_KEY}{number}"),
            _not_constant(F.col(_VALUE)).alias(f"{_VALUE}{number}"),
        )
        for number, family in numbered
    ]
    every = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    fields = [F.col(f"{_GROUP}.`{field.name}`") for field in store.group.fields]
    # An exchange places the rows as the query does, and makes them rows that can be encoded.
    placed = every.repartition(store.partitions, *fields) if fields else every.repartition(1)
    if any(table.source.shape is Shape.LIST for table in tables):
        placed = placed.sortWithinPartitions(_ORDER)
    keys, values = (
        F.coalesce(*(encoder.encoded(F.col(f"{part}{number}")) for number, _ in numbered)) for part in (_KEY, _VALUE)
    )
    # Spark insists on columns that may be null. No row has a single byte.
    return placed.select(
        F.lit(None).cast(store.group).alias(PARTITION_KEY),
        F.nullif(keys, F.lit(b"\0")).alias("key_bytes"),
        F.nullif(values, F.lit(b"\0")).alias("value_bytes"),
        F.nullif(F.col(_FAMILY), F.lit("")).alias(_FAMILY),
    )


def _not_constant(row: Column) -> Column:
    """Return a struct that Spark does not replace by a constant, which would not come out of the exchange."""
    return F.when(F.monotonically_increasing_id() >= 0, row)


def _rows_of(store: str, family: str, tables: Sequence[TableRows]) -> DataFrame:
    """Return the rows of one column family."""
    by_option = {
        table.source.options.get("stateVarName", table.source.options.get("storeName", "timers")): table
        for table in tables
    }
    own = family if family != "default" or store == "default" else store
    if own in by_option:
        return by_option[own].rows(by_option[own].key, by_option[own].value)
    if side := _OF_A_SIDE.fullmatch(own):
        return _join_counts(by_option[f"{side[1]}-keyWithIndexToValue"])
    if variable := _OF_A_VARIABLE.fullmatch(own):
        return _of_a_variable(variable[1], by_option[variable[2]])
    if "timers" in by_option:
        timers = by_option["timers"]
        by_time = _TIMERS_BY_TIME.fullmatch(own) is not None
        return timers.rows(F.struct(TIME, "key") if by_time else timers.key, _nothing())
    raise UnsupportedStateError(
        f"The state store {store!r} has the column family {family!r}, whose content is not known."
    )


def _join_counts(side: TableRows) -> DataFrame:
    """Count the rows of each key of a side."""
    key = [F.col(f"key.`{field.name}`") for field in struct_type(side.frame.schema, "key").fields[:-1]]
    by_key = TableRows(side.source, side.frame.withColumn("key", F.struct(*key)))
    return by_key.row_per_key(F.col("key"), F.struct("rows"))


def _of_a_variable(kind: str, table: TableRows) -> DataFrame:
    """Return the stores that Spark keeps beside a state variable: numbers of elements, and expiry times."""
    is_list = table.source.shape is Shape.LIST
    if kind == "ttl":
        if is_list:
            return table.row_per_key(F.struct("first", "key"), _nothing())
        return table.rows(F.struct(table.expires, table.key), _nothing())
    per_key = table.row_per_key(F.col("key"), F.struct("first" if kind == "min" else "rows"))
    # Spark counts the elements of a list with a TTL elsewhere.
    return per_key.where("false") if kind == "rowCounter" and table.has_ttl else per_key


def _nothing() -> Column:
    return F.struct(F.lit(None))


def _part(schema: StructType, part: str, names: Iterator[str], table: str) -> Column:
    """Return a column of the state reader from the columns of a state table."""
    kind = schema[part].dataType
    if not isinstance(kind, StructType):
        return column_named(next(names)).cast(kind).alias(part)
    return F.struct(*(_field(field, names, table) for field in kind.fields)).alias(part)


def _field(field: StructField, names: Iterator[str], table: str) -> Column:
    if isinstance(field.dataType, NullType):
        return F.lit(None).alias(field.name)
    name = next(names)
    made = to_state_type(column_named(name), field.dataType)
    if made is None:
        raise UnsupportedStateError(
            f"{table} cannot be written: there is no way back from its column {name} to"
            f" {field.dataType.simpleString()}, as the state has it."
        )
    return made.alias(field.name)


@dataclass(frozen=True)
class OperatorStores:
    """Makes the rows of an operator's stores."""

    described: CheckpointFiles
    """The checkpoint whose metadata and schemas describe the stores."""
    epoch: int
    partitions: int
    tables: Callable[[RewritableOperator, StructType], Sequence[TableRows]]
    """The rows of an operator's state tables; the type says which fields of a key determine its partition."""
    encoder: RowEncoder

    def rewritten(self, operator: RewritableOperator, store: str, stored: DataFrame) -> DataFrame:
        """Return the rows to write into a store, in place of its own."""
        group = stored.schema[PARTITION_KEY].dataType
        assert isinstance(group, StructType)
        partitions = 1 if operator.single_partition else self.partitions
        described = RewrittenStore(store, self._families(operator, store), group, partitions)
        return store_rows(described, self.tables(operator, group), self.encoder)

    def _families(self, operator: RewritableOperator, store: str) -> Sequence[str]:
        for listed in recorded_stores(self.described, self.epoch):
            if (listed.operator, listed.name) == (operator.number, store):
                content = self.described.files.content(listed.schema_path)
                if content is not None:
                    return [*family_schemas(content, listed.schema_path)]
        raise UnsupportedStateError(f"The state store {store} of operator {operator.number} has no schema.")
