"""A query's state tables, and how Spark's nested rows become their columns.

A state table is one state of one operator: ``op0``, the sides of a join ``op0_left`` and ``op0_right``, a
``transformWithState`` variable ``op0_<variable>``, its timers ``op0_timers``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from streamstate.errors import DamagedCheckpointError, UnsupportedStateError
from streamstate.snapshots.spark.escaped_paths import path_for_reader
from streamstate.snapshots.store.names import unused
from streamstate.snapshots.store.native_types import by_position, native

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType, StructType

    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

EPOCH, CHANGE, PARTITION, POSITION = "_epoch", "_change", "_partition", "_position"
HASH = "_hash"
RESERVED = (EPOCH, CHANGE, PARTITION, POSITION, HASH, "_row", "_valid_from", "_valid_to")
"""Names that the log, and the tables made from it, use themselves."""
ORDER = "_streamstate_order"
"""The column that keeps the order of a list's elements when rows are shuffled."""
NO_KEY = "_key"
"""The key column of a table whose operator has no key."""

# Joins have a second store per side, which only counts (formats 1 to 3) or orders (4) the rows of the first.
_JOIN_STORES = {"left-keyWithIndexToValue": "left", "right-keyWithIndexToValue": "right"}
_JOIN_COUNTERS = {"left-keyToNumValues", "right-keyToNumValues"}
JOIN, LIMIT = "symmetricHashJoin", "globalLimit"
"""Spark's names of the operators of a join and of a limit."""
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
"""The setting that says how joins keep their state; a query is pinned to its first value."""

# The columns that Spark's state reader returns beside batch_id, change_type and partition_id.
KEY_PARTS = ("key", "user_map_key", "expiration_timestamp_ms")
VALUE_PARTS = ("value", "list_element", "user_map_value", "single_value")


class Shape(Enum):
    """The shape of a key's rows in a state table."""

    KEYED = "one row per key"
    LIST = "a list: one row per key and position"
    TIMERS = "registered timers: one row per key and time"


@dataclass(frozen=True)
class StateSource:
    """One state table as Spark's state reader addresses it."""

    table: str
    shape: Shape
    options: dict[str, str] = field(hash=False)
    """The options of ``spark.read.format("statestore")`` that select it."""
    operator: str
    """Spark's name of the operator."""
    time_mode: str = ""
    """The time mode of ``transformWithState``: ``NoTime``, ``EventTime``, ``ProcessingTime``; otherwise empty."""


@dataclass(frozen=True)
class Columns:
    """The columns of a state table, and their selection from the reader's structs."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    select: tuple[Column, ...] = field(hash=False)
    """The flattened columns, keys first, in the order of the names."""

    @property
    def names(self) -> list[str]:
        """The key columns, then the value columns."""
        return [*self.keys, *self.values]

    @property
    def spark_keys(self) -> tuple[str, ...]:
        """The key columns that Spark has: without the position of a list's elements."""
        return tuple(key for key in self.keys if key != POSITION)


@dataclass(frozen=True)
class ListedStore:
    """A state store of an operator, as the operator's metadata describes it."""

    operator: int
    """Spark's id of the operator in the query."""
    kind: str
    """Spark's name of the operator."""
    name: str
    """The store's name; ``default`` if the operator has only one."""
    properties: dict[str, Any] = field(default_factory=dict, hash=False)
    """The operator's own properties, such as the variables of ``transformWithState``."""
    prefix: int = 0
    """The number of the key's columns that Spark looks keys up by."""
    schema_path: str = ""
    """The file with the types of the store's keys and values; empty if Spark listed the store."""
    named_schema_path: str = ""
    """The path that the operator's metadata has for that file, where Spark reads it; empty if it has none."""


def operator_number(table: str) -> int:
    """Return the number of the operator that a state table belongs to."""
    return int(table.removeprefix("op").partition("_")[0])


def sources_of(stores: Iterable[ListedStore], join_format: str) -> list[StateSource]:
    """Return the state tables in some stores, each with a name of its own."""
    sources: list[StateSource] = []
    for store in stores:
        for source in tables_of(store, join_format):
            taken = [earlier.table for earlier in sources]
            sources.append(replace(source, table=unused(source.table, taken)))
    return sources


def join_counters(spark: SparkSession, checkpoint: CheckpointFiles, epoch: int) -> list[StateSource]:
    """Return the stores in which joins of formats 1 and 2 count the rows of their sides, under Spark's names."""
    return [
        StateSource(
            f"op{store.operator}_{store.name}",
            Shape.KEYED,
            {"operatorId": str(store.operator), "storeName": store.name},
            store.kind,
        )
        for store in listed_stores(spark, checkpoint, epoch)
        if store.name in _JOIN_COUNTERS
    ]


def listed_stores(spark: SparkSession, checkpoint: CheckpointFiles, epoch: int) -> list[ListedStore]:
    """Spark's list of the state stores at an epoch, including those that a Spark before 4.0 wrote."""
    stores = legacy_stores(checkpoint)
    if {store.operator for store in stores} != {*checkpoint.operators()}:
        path = path_for_reader(spark, checkpoint.path)
        rows = spark.read.format("state-metadata").option("batchId", str(epoch)).load(path).collect()
        stores += [
            ListedStore(
                row["operatorId"],
                row["operatorName"],
                row["stateStoreName"],
                json.loads(row["operatorProperties"] or "{}"),
            )
            for row in rows
        ]
    return in_order(stores)


def in_order(stores: Iterable[ListedStore]) -> list[ListedStore]:
    """Return the stores by operator and name: sorted here, because a few rows are not worth a shuffle in Spark."""
    return sorted(stores, key=lambda store: (store.operator, store.name))


def legacy_stores(checkpoint: CheckpointFiles) -> list[ListedStore]:
    """Return the stores that a Spark before 4.0 wrote, without metadata."""
    legacy = checkpoint.legacy_operators()
    for operator in legacy:
        path = operator.schema_path(checkpoint.path, operator.stores[0])
        if not operator.name and (content := checkpoint.files.content(path)) is not None:
            raise DamagedCheckpointError.file(path, "is not one that Spark wrote" if content else "is empty")
    if not all(operator.name for operator in legacy):
        raise UnsupportedStateError(
            f"The state of {checkpoint.path} has no readable schema: it was written by a Spark before 3.1.\n"
            "Run the query with a later Spark until it has committed an epoch, then capture it."
        )
    return [
        ListedStore(
            operator.number,
            operator.name,
            store,
            prefix=operator.prefix,
            schema_path=operator.schema_path(checkpoint.path, store),
        )
        for operator in legacy
        for store in operator.stores
    ]


def tables_of(store: ListedStore, join_format: str) -> list[StateSource]:
    """Return the state tables in a store; none if it only counts the rows of another."""
    prefix, options = f"op{store.operator}", {"operatorId": str(store.operator)}
    variables = store.properties.get("stateVariables", [])
    if variables:
        found = [_variable(prefix, options, variable, store.kind) for variable in variables]
        return [replace(source, time_mode=str(store.properties.get("timeMode", ""))) for source in found]
    if store.properties.get("useVirtualColumnFamilies"):
        return _join_in_one_store(prefix, options, store.kind, join_format)
    if store.name in _JOIN_COUNTERS:
        return []
    suffix = _JOIN_STORES.get(store.name, "" if store.name == "default" else re.sub(r"\W", "_", store.name))
    table = f"{prefix}_{suffix}" if suffix else prefix
    return [StateSource(table, Shape.KEYED, {**options, "storeName": store.name}, store.kind)]


def _join_in_one_store(prefix: str, options: dict[str, str], operator: str, join_format: str) -> list[StateSource]:
    """Return the sides of a join since state format 3, which keeps them in one store.

    Format 3 has one row per key and index, format 4 a list of rows per key and event time. (The reader's ``joinSide``
    returns the same rows without the index, and cannot read changes.)
    """
    store, shape = ("keyWithIndexToValue", Shape.KEYED) if join_format == "3" else ("keyWithTsToValues", Shape.LIST)
    return [
        StateSource(f"{prefix}_{side}", shape, {**options, "storeName": f"{side}-{store}"}, operator)
        for side in ("left", "right")
    ]


def _variable(prefix: str, options: dict[str, str], variable: dict[str, Any], operator: str) -> StateSource:
    name, kind = variable["stateName"], variable["stateVariableType"]
    if kind == "TimerState":
        return StateSource(f"{prefix}_timers", Shape.TIMERS, {**options, "readRegisteredTimers": "true"}, operator)
    shape = Shape.LIST if kind == "ListState" else Shape.KEYED
    table = f"{prefix}_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
    return StateSource(table, shape, {**options, "stateVarName": name}, operator)


@dataclass(frozen=True)
class PartColumn:
    """A column of a state table, and the field that it comes from."""

    name: str
    part: str
    """The column of Spark's state reader; empty for the key column of a table without a key."""
    field: int | None = None
    """The field's position in the part; None if the part is not a struct."""


def flatten(schema: StructType, shape: Shape) -> Columns:
    """Return the table's columns as :func:`named_columns` names them; those of a list include the position."""
    keys, values = named_columns({part: _field_names(schema, part) for part in schema.names})
    members = {part: _members(schema, part) for part in {column.part for column in (*keys, *values)} if part}
    select = [_selected(column, members).alias(column.name) for column in (*keys, *values)]
    return columns_named(keys, values, shape, select)


def columns_named(
    keys: Sequence[PartColumn], values: Sequence[PartColumn], shape: Shape, select: Sequence[Column] = ()
) -> Columns:
    """Return a table's columns by name."""
    position = (POSITION,) if shape is Shape.LIST else ()
    return Columns(
        (*(column.name for column in keys), *position), tuple(column.name for column in values), tuple(select)
    )


def named_columns(parts: Mapping[str, Sequence[str | None] | None]) -> tuple[list[PartColumn], list[PartColumn]]:
    """Return the key columns and the value columns of a table: the fields of its parts, with Spark's names.

    A name already taken gets the suffix ``_2``, ``_3``, …; fields of type void are left out. A key may have no fields
    left (a global aggregation, a limit). Such a table has at most one row, and its key column is ``_key``, which is
    always 0, so that every table has a key.

    Args:
        parts: the columns of Spark's state reader. For each, the names of its fields, None for a field of type void;
            or None if it is not a struct.
    """
    taken = [*RESERVED]
    keys = [column for part in KEY_PARTS if part in parts for column in _part_columns(part, parts[part], taken)]
    if not keys:
        keys.append(PartColumn(NO_KEY, ""))
        taken.append(NO_KEY)
    values = [column for part in VALUE_PARTS if part in parts for column in _part_columns(part, parts[part], taken)]
    return keys, values


def _part_columns(part: str, fields: Sequence[str | None] | None, taken: list[str]) -> list[PartColumn]:
    """Return the columns of a part, whose names are then taken."""
    columns = []
    for at, name in enumerate([part] if fields is None else fields):
        if name is not None:
            taken.append(unused(name, taken))
            columns.append(PartColumn(taken[-1], part, None if fields is None else at))
    return columns


def _field_names(schema: StructType, part: str) -> list[str | None] | None:
    from pyspark.sql.types import NullType, StructType

    whole = schema[part].dataType
    if not isinstance(whole, StructType):
        return None
    return [None if isinstance(field.dataType, NullType) else field.name for field in whole.fields]


def _members(schema: StructType, part: str) -> list[tuple[Column, DataType]]:
    """Return a part's fields; or the part itself, if it is not a struct."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    whole = schema[part].dataType
    if not isinstance(whole, StructType):
        return [(F.col(part), whole)]
    kinds = [field.dataType for field in whole.fields]
    return list(zip(by_position(F.col(part), whole), kinds, strict=True))


def _selected(column: PartColumn, members: Mapping[str, list[tuple[Column, DataType]]]) -> Column:
    from pyspark.sql import functions as F

    return native(*members[column.part][column.field or 0]) if column.part else F.lit(0)
