"""A query's state tables, and how Spark's nested rows become their columns.

A state table is one state of one operator: ``op0``, the sides of a join ``op0_left`` and ``op0_right``, a
``transformWithState`` variable ``op0_<variable>``, its timers ``op0_timers``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from streamstate.errors import UnsupportedStateError
from streamstate.snapshots.names import unused
from streamstate.snapshots.native_types import by_position, native

if TYPE_CHECKING:
    from pyspark.sql import Column, Row, SparkSession
    from pyspark.sql.types import StructType

    from streamstate.snapshots.checkpoint import Checkpoint

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
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
"""The setting that says how joins keep their state; a query is pinned to its first value."""

# The columns that Spark's state reader returns beside batch_id, change_type and partition_id.
KEY_PARTS = ("key", "user_map_key", "expiration_timestamp_ms")
VALUE_PARTS = ("value", "list_element", "user_map_value", "single_value")


class Shape(Enum):
    """What one key of a state table holds."""

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
    """How a state table's columns are selected from the reader's structs."""

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


def state_sources(spark: SparkSession, checkpoint: Checkpoint, epoch: int) -> list[StateSource]:
    """The query's state tables at an epoch, by operator, in Spark's order.

    The session has the settings that the query is pinned to. A restart may add or remove state variables.
    """
    return sources_in(listed_stores(spark, checkpoint, epoch), spark.conf.get(JOIN_FORMAT, "2") or "2")


def sources_in(stores: Iterable[Row | Mapping[str, Any]], join_format: str) -> list[StateSource]:
    """The state tables in some state stores, which are described as in Spark's list of them."""
    sources: list[StateSource] = []
    for row in stores:
        for source in _sources_of(row, join_format):
            taken = [earlier.table for earlier in sources]
            sources.append(replace(source, table=unused(source.table, taken)))
    return sources


def join_counters(spark: SparkSession, checkpoint: Checkpoint, epoch: int) -> list[StateSource]:
    """The stores in which joins of formats 1 and 2 count the rows of their sides, under Spark's names."""
    return [
        StateSource(
            f"op{row['operatorId']}_{row['stateStoreName']}",
            Shape.KEYED,
            {"operatorId": str(row["operatorId"]), "storeName": row["stateStoreName"]},
            row["operatorName"],
        )
        for row in listed_stores(spark, checkpoint, epoch)
        if row["stateStoreName"] in _JOIN_COUNTERS
    ]


def listed_stores(spark: SparkSession, checkpoint: Checkpoint, epoch: int) -> list[Row]:
    """Spark's list of the state stores at an epoch, including those that a Spark before 4.0 wrote."""
    from pyspark.sql import Row

    legacy = checkpoint.legacy_operators()
    if not all(operator.name for operator in legacy):
        raise UnsupportedStateError(
            f"The state of {checkpoint.path} has no readable schema: it was written by a Spark before 3.1.\n"
            "Run the query with a later Spark until it has committed an epoch, then capture it."
        )
    rows = [
        Row(operatorId=operator.number, operatorName=operator.name, stateStoreName=store, operatorProperties="")
        for operator in legacy
        for store in operator.stores
    ]
    if {operator.number for operator in legacy} != {*checkpoint.operators()}:
        rows += spark.read.format("state-metadata").option("batchId", str(epoch)).load(checkpoint.path).collect()
    # Sorted here: a few rows are not worth a shuffle.
    return sorted(rows, key=lambda row: (row["operatorId"], row["stateStoreName"]))


def _sources_of(row: Row | Mapping[str, Any], join_format: str) -> list[StateSource]:
    operator, store = row["operatorId"], row["stateStoreName"]
    prefix, options = f"op{operator}", {"operatorId": str(operator)}
    properties = json.loads(row["operatorProperties"] or "{}")
    variables = properties.get("stateVariables", [])
    if variables:
        found = [_variable(prefix, options, variable, row["operatorName"]) for variable in variables]
        return [replace(source, time_mode=str(properties.get("timeMode", ""))) for source in found]
    if properties.get("useVirtualColumnFamilies"):
        return _join_in_one_store(prefix, options, row["operatorName"], join_format)
    if store in _JOIN_COUNTERS:
        return []
    suffix = _JOIN_STORES.get(store, "" if store == "default" else re.sub(r"\W", "_", store))
    table = f"{prefix}_{suffix}" if suffix else prefix
    return [StateSource(table, Shape.KEYED, {**options, "storeName": store}, row["operatorName"])]


def _join_in_one_store(prefix: str, options: dict[str, str], operator: str, join_format: str) -> list[StateSource]:
    """The sides of a join since state format 3, which keeps them in one store.

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


def flatten(schema: StructType, shape: Shape) -> Columns:
    """The table's columns: the key struct's fields, then the value struct's, with Spark's names.

    A name already taken gets the suffix ``_2``, ``_3``, …; fields of type void are left out. A key may have no fields
    left (a global aggregation, a limit). Such a table has at most one row, and its key column is ``_key``, which is
    always 0, so that every table has a key.
    """
    from pyspark.sql import functions as F

    names: list[str] = [*RESERVED]
    select: list[Column] = []
    for part in KEY_PARTS:
        _flatten_part(schema, part, names, select)
    if len(names) == len(RESERVED):
        names.append(NO_KEY)
        select.append(F.lit(0).alias(NO_KEY))
    keys = [*names[len(RESERVED) :]]
    if shape is Shape.LIST:
        keys.append(POSITION)
        names.append(POSITION)
    before = len(names)
    for part in VALUE_PARTS:
        _flatten_part(schema, part, names, select)
    return Columns(tuple(keys), tuple(names[before:]), tuple(select))


def _flatten_part(schema: StructType, part: str, names: list[str], select: list[Column]) -> None:
    from pyspark.sql import functions as F
    from pyspark.sql.types import NullType, StructType

    if part not in schema.names:
        return
    whole = schema[part].dataType
    if not isinstance(whole, StructType):
        names.append(unused(part, names))
        select.append(native(F.col(part), whole).alias(names[-1]))
        return
    for member, column in zip(whole.fields, by_position(F.col(part), whole), strict=True):
        if not isinstance(member.dataType, NullType):
            names.append(unused(member.name, names))
            select.append(native(column, member.dataType).alias(names[-1]))
