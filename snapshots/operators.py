"""Which state tables a query has, and how Spark's nested rows become their columns.

A state table is one state of one operator: ``op0``, the sides of a join ``op0_left`` and ``op0_right``, a
``transformWithState`` variable ``op0_<variable>``, its timers ``op0_timers``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.names import unused

if TYPE_CHECKING:
    from pyspark.sql import Column, Row, SparkSession
    from pyspark.sql.types import StructType

EPOCH, CHANGE, PARTITION, POSITION = "_epoch", "_change", "_partition", "_position"
RESERVED = (EPOCH, CHANGE, PARTITION)

# Joins keep a second store per side, which only counts the rows of the first.
_JOIN_STORES = {"left-keyWithIndexToValue": "left", "right-keyWithIndexToValue": "right"}
_JOIN_COUNTERS = {"left-keyToNumValues", "right-keyToNumValues"}

# The columns that Spark's state reader gives, beside batch_id, change_type and partition_id.
_KEY_PARTS = ("key", "user_map_key", "expiration_timestamp_ms")
_VALUE_PARTS = ("value", "list_element", "user_map_value", "single_value")


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


@dataclass(frozen=True)
class Columns:
    """How a state table's columns come out of the reader's structs."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    select: tuple[Column, ...] = field(hash=False)
    """The flattened columns, keys first, in the order of the names."""


def state_sources(spark: SparkSession, checkpoint: str) -> list[StateSource]:
    """All state tables of the query, by operator, in Spark's order."""
    listed = spark.read.format("state-metadata").load(checkpoint).orderBy("operatorId").collect()
    sources: list[StateSource] = []
    for row in listed:
        for source in _sources_of(row):
            taken = [other.table for other in sources]
            sources.append(StateSource(unused(source.table, taken), source.shape, source.options, source.operator))
    return sources


def _sources_of(row: Row) -> list[StateSource]:
    operator, store = row["operatorId"], row["stateStoreName"]
    prefix, options = f"op{operator}", {"operatorId": str(operator)}
    variables = json.loads(row["operatorProperties"] or "{}").get("stateVariables", [])
    if variables:
        return [_variable(prefix, options, variable, row["operatorName"]) for variable in variables]
    if store in _JOIN_COUNTERS:
        return []
    suffix = _JOIN_STORES.get(store, "" if store == "default" else re.sub(r"\W", "_", store))
    table = f"{prefix}_{suffix}" if suffix else prefix
    return [StateSource(table, Shape.KEYED, {**options, "storeName": store}, row["operatorName"])]


def _variable(prefix: str, options: dict[str, str], variable: dict[str, Any], operator: str) -> StateSource:
    name, kind = variable["stateName"], variable["stateVariableType"]
    if kind == "TimerState":
        return StateSource(f"{prefix}_timers", Shape.TIMERS, {**options, "readRegisteredTimers": "true"}, operator)
    shape = Shape.LIST if kind == "ListState" else Shape.KEYED
    table = f"{prefix}_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
    return StateSource(table, shape, {**options, "stateVarName": name}, operator)


def flatten(schema: StructType, shape: Shape) -> Columns:
    """The table's columns: the key struct's fields, then the value struct's, with Spark's names.

    A name already taken gets the suffix ``_2``, ``_3``, …; fields of type void are left out. Fields are taken by
    position, because Spark's own structs may name two fields the same (``avg`` beside ``count`` does).
    """
    names: list[str] = [*RESERVED]
    select: list[Column] = []
    for part in _KEY_PARTS:
        _flatten_part(schema, part, names, select)
    keys = [*names[len(RESERVED) :]]
    if shape is Shape.LIST:
        keys.append(POSITION)
        names.append(POSITION)
    before = len(names)
    for part in _VALUE_PARTS:
        _flatten_part(schema, part, names, select)
    return Columns(tuple(keys), tuple(names[before:]), tuple(select))


def _flatten_part(schema: StructType, part: str, names: list[str], select: list[Column]) -> None:
    from pyspark.sql import functions as F
    from pyspark.sql.types import NullType, StructField, StructType

    if part not in schema.names:
        return
    whole = schema[part].dataType
    if not isinstance(whole, StructType):
        names.append(unused(part, names))
        select.append(F.col(part).alias(names[-1]))
        return
    # Spark plans a cast of structs for long: only those that name two fields the same get numbered names.
    if len({one.name.casefold() for one in whole.fields}) < len(whole.fields):
        fields = [StructField(f"f{at}", one.dataType, one.nullable) for at, one in enumerate(whole.fields)]
        taken_from, labels = F.col(part).cast(StructType(fields)), [one.name for one in fields]
    else:
        taken_from, labels = F.col(part), [one.name for one in whole.fields]
    for label, one in zip(labels, whole.fields, strict=True):
        if not isinstance(one.dataType, NullType):
            names.append(unused(one.name, names))
            select.append(taken_from.getField(label).alias(names[-1]))
