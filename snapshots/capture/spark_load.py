"""The load of an epoch, from Spark's progress event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.checkpoint.bindings import FORMAT as BINDING
from streamstate.snapshots.spark.kafka_lag import partitions_behind
from streamstate.snapshots.spark.task_times import task_load
from streamstate.snapshots.store.epoch_load import EpochLoad, OperatorLoad, ShedCounts, SourceLoad
from streamstate.snapshots.store.epoch_progress import begun

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_WHOLE = "triggerExecution"
# Of Spark's many metrics of a state store those that are sizes; others count calls, or times that ``phases`` contains.
_SIZES = ("FileSize", "MemoryUsage", "SizeBytes", "BytesUncompressed")
_LONGEST_NAME = 120


def load_of(progress: Mapping[str, Any]) -> EpochLoad:
    """Return the load of an epoch, without its tasks.

    Args:
        progress: Spark's progress event: ``query.lastProgress``, or its JSON, parsed.

    Example:
        >>> load_of({"batchId": 4, "durationMs": {"triggerExecution": 667, "addBatch": 523}}).seconds
        0.667
    """
    durations = {name: milliseconds / 1000 for name, milliseconds in (progress.get("durationMs") or {}).items()}
    seconds = durations.pop(_WHOLE, None)
    return EpochLoad(
        sum(durations.values()) if seconds is None else seconds,
        durations,
        tuple(_source(source) for source in progress.get("sources") or () if not only_binds(source)),
        tuple(map(_operator, progress.get("stateOperators") or ())),
        shed=ShedCounts.observed({name: _counts(row) for name, row in (progress.get("observedMetrics") or {}).items()}),
        watermark_lag=_watermark_lag(progress.get("eventTime") or {}),
    )


def with_tasks(load: EpochLoad, query: StreamingQuery, epoch: int) -> EpochLoad:
    """Return a load with the tasks of the epoch's longest stage, if Spark's status has them; some milliseconds."""
    return replace(load, tasks=task_load(query, epoch))


def _source(source: Mapping[str, Any]) -> SourceLoad:
    behind = partitions_behind(source)
    return SourceLoad(
        str(source.get("description") or "")[:_LONGEST_NAME],
        int(source.get("numInputRows") or 0),
        None if behind is None else sum(behind.values()),
        backlog_partitions=behind,
    )


def only_binds(source: Mapping[str, Any]) -> bool:
    """Return whether a source only binds shared variables to epochs."""
    return BINDING in str(source.get("endOffset"))


def _operator(operator: Mapping[str, Any]) -> OperatorLoad:
    return OperatorLoad(
        str(operator["operatorName"]),
        int(operator["numRowsTotal"]),
        int(operator["numRowsUpdated"]),
        int(operator["memoryUsedBytes"]),
        int(operator["allUpdatesTimeMs"]) / 1000,
        int(operator["commitTimeMs"]) / 1000,
        dict(_sizes(operator.get("customMetrics") or {})),
    )


def _sizes(metrics: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in metrics.items():
        if name.endswith(_SIZES) and int(value) >= 0:
            yield name, int(value)


def _counts(row: Any) -> Mapping[str, Any]:
    """Return a row of observed metrics, which is a mapping in JSON, and Spark's Row elsewhere."""
    return row if isinstance(row, Mapping) else row.asDict()


def _watermark_lag(times: Mapping[str, Any]) -> float | None:
    newest, watermark = (None if times.get(name) is None else _time(times[name]) for name in ("max", "watermark"))
    watermark = begun(watermark)
    return None if newest is None or watermark is None else (newest - watermark).total_seconds()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
