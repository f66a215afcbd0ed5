"""Which state tables a query has, and how Spark's nested rows become their columns.

A state table is one state of one operator: ``op0``, the sides of a join ``op0_left`` and ``op0_right``, a
``transformWithState`` variable ``op0_<variable>``, its timers ``op0_timers``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.names import unused
from streamstate.snapshots.native_types import by_position, native

if TYPE_CHECKING:
    from pyspark.sql import Column, Row, SparkSession
    from pyspark.sql.types import StructType

EPOCH, CHANGE, PARTITION, POSITION = "_epoch", "_change", "_partition", "_position"
HASH = "_hash"
RESERVED = (EPOCH, CHANGE, PARTITION, POSITION, HASH, "_row", "_valid_from", "_valid_to")
"""Names that the log and the tables made from it use themselves."""
NO_KEY = "_key"
"""The key column of a table whose operator has no key."""

# Joins keep a second store per side, which only counts (formats 1 to 3) or orders (4) the rows of the first.
_JOIN_STORES = {"left-keyWithIndexToValue": "left", "right-keyWithIndexToValue": "right"}
_JOIN_COUNTERS = {"left-keyToNumValues", "right-keyToNumValues"}
_JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"

# The columns that Spark's state reader gives, beside batch_id, change_type and partition_id.
KEY_PARTS = ("key", "user_map_key", "expiration_timestamp_ms")
VALUE_PARTS = ("value", "list_element", "user_map_value", "single_value")


class Shape(Enum):
    """What one key of a state table holds."""

    KEYED = "one row a key"
    LIST = "a list: one row a key and position"
    TIMERS = "registered timers: one row a key and time"


@dataclass(frozen=True)
class StateSource:
    """One state table as Spark's state reader finds it."""

    table: str
    shape: Shape
    options: dict[str, str] = field(hash=False)
    """Options of ``spark.read.format("statestore")`` that single it out."""
    operator: str
    """Spark's name of the operator."""
    time_mode: str = ""
    """What ``transformWithState`` counts time by: ``NoTime``, ``EventTime``, ``ProcessingTime``; empty elsewhere."""


@dataclass(frozen=True)
class Columns:
    """How a state table's columns come out of the reader's structs."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    select: tuple[Column, ...] = field(hash=False)
    """The flattened columns, keys first, in the order of the names."""


def state_sources(spark: SparkSession, checkpoint: str, epoch: int) -> list[StateSource]:
    """All state tables that the query has at an epoch, by operator, in Spark's order.

    Args:
        spark: a session with the settings that the query is pinned to.
        checkpoint: where the query keeps its state.
        epoch: a restart after it may have added or removed state variables.
    """
    sources: list[StateSource] = []
    for row in listed_stores(spark, checkpoint, epoch):
        for source in _sources_of(row, spark.conf.get(_JOIN_FORMAT, "2") or "2"):
            taken = [other.table for other in sources]
            sources.append(replace(source, table=unused(source.table, taken)))
    return sources


def join_counters(spark: SparkSession, checkpoint: str, epoch: int) -> list[StateSource]:
    """The stores in which joins (of formats 1 and 2) count the rows of their sides, named as Spark names them."""
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


def listed_stores(spark: SparkSession, checkpoint: str, epoch: int) -> list[Row]:
    """Spark's list of the state stores at an epoch."""
    reader = spark.read.format("state-metadata").option("batchId", str(epoch))
    # Sorted here: a few rows are not worth a shuffle.
    return sorted(reader.load(checkpoint).collect(), key=lambda row: (row["operatorId"], row["stateStoreName"]))


def _sources_of(row: Row, join_format: str) -> list[StateSource]:
    operator, store = row["operatorId"], row["stateStoreName"]
    prefix, options = f"op{operator}", {"operatorId": str(operator)}
    properties = json.loads(row["operatorProperties"] or "{}")
    variables = properties.get("stateVariables", [])
    if variables:
        found = [_variable(prefix, options, variable, row["operatorName"]) for variable in variables]
        return [replace(one, time_mode=str(properties.get("timeMode", ""))) for one in found]
    if properties.get("useVirtualColumnFamilies"):
        return _join_in_one_store(prefix, options, row["operatorName"], join_format)
    if store in _JOIN_COUNTERS:
        return []
    suffix = _JOIN_STORES.get(store, "" if store == "default" else re.sub(r"\W", "_", store))
    table = f"{prefix}_{suffix}" if suffix else prefix
    return [StateSource(table, Shape.KEYED, {**options, "storeName": store}, row["operatorName"])]


def _join_in_one_store(prefix: str, options: dict[str, str], operator: str, join_format: str) -> list[StateSource]:
    """The sides of a join since state format 3, which keeps them in one store.

    Format 3 has one row a key and index, format 4 a list of rows a key and event time. (The reader's ``joinSide``
    gives the same rows without the index, and cannot read changes.)
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

    A name already taken gets the suffix ``_2``, ``_3``, …; fields of type void are left out. What is left of a key
    may be nothing (a global aggregation, a limit): such a table has at most one row, and ``_key``, always 0, is its
    key column, so that every table has one.

    Raises:
        UnsupportedStateError: where a field has a type that no table can keep.
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
    for one, column in zip(whole.fields, by_position(F.col(part), whole), strict=True):
        if not isinstance(one.dataType, NullType):
            names.append(unused(one.name, names))
            select.append(native(column, one.dataType).alias(names[-1]))
