"""The oracle: the rows that Spark's own state reader returns, flattened without our code."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T

from streamstate.reports import History, StateTable
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.state_tables import StateSource, listed_stores, sources_of

_SIDES = {"left", "right"}
_JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
_PARTS = ("key", "user_map_key", "expiration_timestamp_ms", "value", "list_element", "user_map_value", "single_value")


def listed_sources(spark: SparkSession, checkpoint: CheckpointFiles, epoch: int) -> list[StateSource]:
    """The state tables of the stores that Spark lists; the session has the settings that the query is pinned to."""
    return sources_of(listed_stores(spark, checkpoint, epoch), str(spark.conf.get(_JOIN_FORMAT, "2")))


def spark_rows(spark: SparkSession, checkpoint: Path | str, table: str, epoch: int) -> Counter[str]:
    """The rows of a state table at an epoch as text, with the number of their occurrences."""
    return Counter(_text(row) for row in _flat_rows(_state(spark, str(checkpoint), table, epoch)))


def captured_rows(table: StateTable) -> Counter[str]:
    """The rows of a captured state table, in the same form."""
    rows = table.to_arrow()
    kinds = [field.type for field in rows.schema]
    return Counter(
        _text([_of_arrow(value, kind) for value, kind in zip(row.values(), kinds, strict=True)])
        for row in rows.to_pylist()
    )


def compare(spark: SparkSession, checkpoint: Path | str, history: History) -> int:
    """Compare every table at every captured epoch; return the number of comparisons."""
    compared = 0
    for epoch in history.captured():
        snapshot = history.at(epoch)
        for name in snapshot.tables():
            expected = spark_rows(spark, checkpoint, name, epoch)
            found = captured_rows(snapshot.table(name))
            assert found == expected, f"{name} at epoch {epoch}: {(found - expected)} instead of {expected - found}"
            assert snapshot.rows()[name] == sum(expected.values()), f"{name} at epoch {epoch}: rows in the manifest"
            compared += 1
    return compared


def join_side(spark: SparkSession, checkpoint: Path | str, table: str, epoch: int) -> Counter[str]:
    """The input rows of one side of a join, read with the reader's option for joins."""
    operator, _, side = table.removeprefix("op").partition("_")
    options = {"operatorId": operator, "joinSide": side, "batchId": str(epoch)}
    frame = _reader(spark, str(checkpoint), epoch).options(**options).load(str(checkpoint)).select("value")
    return Counter(_text(row) for row in _flat_rows(frame))


def _state(spark: SparkSession, checkpoint: str, table: str, epoch: int) -> DataFrame:
    operator, _, part = table.removeprefix("op").partition("_")
    options = {"operatorId": operator, "batchId": str(epoch)}
    if part == "timers":
        options["readRegisteredTimers"] = "true"
    elif part in _SIDES:
        in_format_4 = _pinned(checkpoint, epoch).get(_JOIN_FORMAT) == "4"
        options["storeName"] = f"{part}-{'keyWithTsToValues' if in_format_4 else 'keyWithIndexToValue'}"
    elif part:
        options["stateVarName"] = part
    frame: DataFrame = _reader(spark, checkpoint, epoch).options(**options).load(checkpoint)
    return frame


def _reader(spark: SparkSession, checkpoint: str, epoch: int) -> Any:
    """Spark's reader, in a session with the settings that it requires.

    In format 2, the commit log has the unique ids of the state files.
    """
    session = spark.newSession()
    for key, value in _pinned(checkpoint, epoch).items():
        if key.startswith("spark.sql.streaming.stateStore."):
            session.conf.set(key, value)
    commit = session.read.text(f"{checkpoint}/commits/{epoch}").collect()
    unique = any('"stateUniqueIds":{' in row[0] and '"stateUniqueIds":{}' not in row[0] for row in commit)
    session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2" if unique else "1")
    return session.read.format("statestore")


def _pinned(checkpoint: str, epoch: int) -> dict[str, str]:
    lines = Path(checkpoint, "offsets", str(epoch)).read_text(encoding="utf-8").splitlines()
    return dict(json.loads(lines[1])["conf"])


def _flat_rows(frame: DataFrame) -> list[list[Any]]:
    """The key and value fields of every row; list elements also have their position in the list of their key."""
    parts = [field for field in frame.schema if field.name in _PARTS]
    readable = frame.select(*(_readable(field) for field in parts))
    is_list = any(field.name == "list_element" for field in parts) or _is_multi(frame)
    seen: Counter[str] = Counter()
    flat = []
    for row in readable.collect():
        pieces = [_fields(value, field.dataType) for value, field in zip(row, parts, strict=True)]
        if parts[0].name == "key" and not pieces[0]:
            pieces[0] = [0]  # a table without a key has a key column that is always 0
        if is_list:
            key = _text(pieces[0])
            pieces.insert(1, [seen[key]])
            seen[key] += 1
        flat.append([value for piece in pieces for value in piece])
    return flat


def _is_multi(frame: DataFrame) -> bool:
    """Return whether this is a side of a join in format 4, where a key has several rows."""
    key = frame.schema["key"].dataType if "key" in frame.columns else None
    return isinstance(key, T.StructType) and "__event_time" in key.names


def _readable(field: T.StructField) -> Any:
    """A column that PySpark can collect. Spark converts the others to text, so that no conversion is capture's."""
    from pyspark.sql import functions as F

    return F.col(field.name).cast(_as_text(field.dataType)).alias(field.name)


def _as_text(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _as_text(field.dataType)) for field in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_as_text(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(_as_text(kind.keyType), _as_text(kind.valueType))
    if isinstance(kind, (T.YearMonthIntervalType, T.CalendarIntervalType, T.TimeType)):
        return T.StringType()
    return kind


def _fields(value: Any, kind: T.DataType) -> list[Any]:
    """The fields of one of the reader's structs, except for those of type void."""
    if not isinstance(kind, T.StructType):
        return [_of_spark(value, kind)]
    values = value if value is not None else [None] * len(kind.fields)
    return [
        _of_spark(item, field.dataType)
        for item, field in zip(values, kind.fields, strict=True)
        if not isinstance(field.dataType, T.NullType)
    ]


def _of_spark(value: Any, kind: T.DataType) -> Any:
    """A collected value in the form used for comparison."""
    if value is None:
        return None
    if isinstance(kind, T.StructType):
        return [_of_spark(item, field.dataType) for item, field in zip(value, kind.fields, strict=True)]
    if isinstance(kind, T.ArrayType):
        return [_of_spark(item, kind.elementType) for item in value]
    if isinstance(kind, T.MapType):
        return _entries((_of_spark(key, kind.keyType), _of_spark(item, kind.valueType)) for key, item in value.items())
    return _leaf_of_spark(value, kind)


def _leaf_of_spark(value: Any, kind: T.DataType) -> Any:
    if isinstance(kind, T.TimestampType):
        return value.astimezone(dt.UTC).isoformat()
    if isinstance(kind, T.DayTimeIntervalType):
        return value // dt.timedelta(microseconds=1)
    if isinstance(kind, T.YearMonthIntervalType):
        return _months(value)
    if isinstance(kind, T.VariantType):
        # Spark's JSON drops the trailing zeros of decimals, PySpark's does not.
        return json.dumps(json.loads(value.toJson()), separators=(",", ":"), ensure_ascii=False)
    return _leaf(value)


def _months(text: str) -> int:
    """The months of ``INTERVAL '-1-2' YEAR TO MONTH``, ``INTERVAL '3' YEAR`` or ``INTERVAL '4' MONTH``."""
    found = re.fullmatch(r"INTERVAL '(-?)(\d+)(?:-(\d+))?' (YEAR TO MONTH|YEAR|MONTH)", text)
    assert found is not None, text
    sign, first, second, unit = found.groups()
    months = int(first) if unit == "MONTH" else 12 * int(first) + int(second or 0)
    return -months if sign else months


def _of_arrow(value: Any, kind: pa.DataType) -> Any:
    """A captured value in the form used for comparison."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return [_of_arrow(item, field.type) for item, field in zip(value.values(), kind, strict=True)]
    if pa.types.is_map(kind):
        return _entries((_of_arrow(key, kind.key_type), _of_arrow(item, kind.item_type)) for key, item in value)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_of_arrow(item, kind.value_type) for item in value]
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return value.astimezone(dt.UTC).isoformat()
    return _leaf(value)


def _entries(pairs: Iterable[tuple[Any, Any]]) -> list[Any]:
    """The sorted entries of a map, because PySpark does not keep Spark's order."""
    return sorted(([key, value] for key, value in pairs), key=_text)


def _leaf(value: Any) -> Any:
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return value if isinstance(value, (int, float, str, bool)) else repr(value)


def _text(values: Sequence[Any] | Row) -> str:
    return json.dumps(list(values))
