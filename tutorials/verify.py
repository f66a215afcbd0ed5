"""Compare what was captured with what Spark's own state reader says, key by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import CaptureError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.state_inspect import History, StateTable

__all__ = ["verify"]

_SIDES = {"left": "left-keyWithIndexToValue", "right": "right-keyWithIndexToValue"}

Rows = dict[tuple[Any, ...], tuple[Any, ...]]


def verify(spark: SparkSession, checkpoint: str, history: History) -> Iterator[tuple[int, str]]:
    """Compare every state table at every captured epoch; gives the epoch and table of each that is equal.

    Raises:
        CaptureError: at the first that differs.
    """
    for epoch in history.captured():
        snapshot = history.at(epoch)
        for name in snapshot.tables():
            table = snapshot.table(name)
            found, expected = _captured(table), _of_spark(spark, checkpoint, table)
            if found != expected:
                raise CaptureError(_difference(f"{history.name}.{name} at epoch {epoch}", found, expected))
            yield epoch, name


def _captured(table: StateTable) -> Rows:
    return _by_key(map(dict.values, table.to_arrow().to_pylist()), len(table.key_columns))


def _of_spark(spark: SparkSession, checkpoint: str, table: StateTable) -> Rows:
    """The table as Spark reads it from the checkpoint, with none of the code that captured it."""
    operator, _, part = table.name.removeprefix("op").partition("_")
    options = {"operatorId": operator, "batchId": str(table.epoch), **_options(part)}
    rows = spark.read.format("statestore").options(**options).load(checkpoint).collect()
    if rows and "list_element" in rows[0]:
        place: Counter[Any] = Counter()
        flat = []
        for row in rows:
            flat.append([*row["key"], place[row["key"]], *row["list_element"]])
            place[row["key"]] += 1
        return _by_key(flat, len(table.key_columns))
    # A row's last column is the partition.
    flat = [[value for part in row[:-1] for value in (part if isinstance(part, tuple) else [part])] for row in rows]
    return _by_key(flat, len(table.key_columns))


def _options(part: str) -> dict[str, str]:
    """How Spark singles out the state that a table's name means."""
    if part == "timers":
        return {"readRegisteredTimers": "true"}
    if part in _SIDES:
        return {"storeName": _SIDES[part]}
    return {"stateVarName": part} if part else {}


def _by_key(rows: Any, keys: int) -> Rows:
    plain = [tuple(map(_plain, row)) for row in rows]
    found = {row[:keys]: row[keys:] for row in plain}
    if len(found) != len(plain):
        raise CaptureError(f"{len(plain)} rows of state have only {len(found)} keys: a key is there twice.")
    return found


def _plain(value: Any) -> Any:
    """Structs as tuples and moments in UTC, whoever they come from."""
    if isinstance(value, dict):
        return tuple(map(_plain, value.values()))
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _difference(what: str, found: Rows, expected: Rows) -> str:
    differing = [key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]
    key = differing[0]
    return (
        f"{what} differs from Spark's own state in {len(differing):,} of {len(expected):,} keys.\n"
        f"The first, {key}: captured {found.get(key)}, in Spark's state {expected.get(key)}."
    )
