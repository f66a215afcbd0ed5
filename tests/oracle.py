"""The oracle: what Spark's own state reader says, flattened without any of our code."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

import streamstate as ss

_SIDES = {"left": "left-keyWithIndexToValue", "right": "right-keyWithIndexToValue"}


def spark_rows(spark: SparkSession, checkpoint: Path | str, table: str, epoch: int) -> Counter[str]:
    """All rows of a state table at an epoch, each as text, with how often it occurs."""
    operator, _, part = table.removeprefix("op").partition("_")
    options = {"operatorId": operator, "batchId": str(epoch)}
    if part == "timers":
        options["readRegisteredTimers"] = "true"
    elif part in _SIDES:
        options["storeName"] = _SIDES[part]
    elif part:
        options["stateVarName"] = part
    rows = spark.read.format("statestore").options(**options).load(str(checkpoint)).collect()
    if rows and "list_element" in rows[0]:
        return Counter(map(_text, _positions(rows)))
    return Counter(_text(_flat(row)) for row in rows)


def captured_rows(table: ss.StateTable) -> Counter[str]:
    """The same of a captured state table."""
    return Counter(_text(list(row.values())) for row in table.to_arrow().to_pylist())


def compare(spark: SparkSession, checkpoint: Path | str, history: ss.History) -> int:
    """Compare every table at every captured epoch; returns how many were compared."""
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


def _flat(row: Row) -> list[Any]:
    """Key fields, then value fields; a row's last column is Spark's partition id."""
    values: list[Any] = []
    for part in row[:-1]:
        values += list(part) if isinstance(part, Row) else [part]
    return values


def _positions(rows: list[Row]) -> list[list[Any]]:
    """List elements after their key and their place in that key's list."""
    seen: Counter[str] = Counter()
    placed = []
    for row in rows:
        key = _text(list(row["key"]))
        placed.append([*row["key"], seen[key], *row["list_element"]])
        seen[key] += 1
    return placed


def _text(values: list[Any]) -> str:
    return json.dumps([_plain(value) for value in values])


def _plain(value: Any) -> Any:
    """Spark's rows and Arrow's structs as lists, moments in UTC, so that both sides spell a value the same."""
    if isinstance(value, Row):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return [_plain(one) for one in value.values()]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)
