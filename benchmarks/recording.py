"""What recording a query's input costs: an epoch with it, against the same query without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, alternate
from benchmarks.size import Size
from benchmarks.workload import Workload
from streamstate.snapshots.capture.recording.sources import distinct_sources, frame_of, with_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def recording(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """An epoch with its input recorded, from a new file to its state, against the same query without a recorder."""
    plain, recorded = (Workload(spark, folder / name, size.keys, size.changes) for name in ("plain", "recorded"))
    frame = recorded.query()
    [source] = distinct_sources(frame._jdf.queryExecution().analyzed())
    rows = ss.record(frame_of(frame, source), folder / "recording")
    writer = with_sources(frame, [(source, rows)]).writeStream.format("noop").outputMode("update")
    reading = writer.option("checkpointLocation", str(recorded.checkpoint)).start()
    direct = plain.start()
    recorder = rows.recorder.query
    assert recorder is not None

    def with_recorder() -> None:
        recorded.change()
        recorder.processAllAvailable()
        reading.processAllAvailable()

    def without() -> None:
        plain.change()
        direct.processAllAvailable()

    try:
        with_recorder()
        without()
        seconds = alternate(with_recorder, without, size.epochs)
        assert _rows(reading) == _rows(direct) == size.keys
    finally:
        rows.recorder.stop()
        reading.stop()
        direct.stop()
    setting = f"{size}, {size.epochs} epochs"
    question = "an epoch from a file to its state"
    yield Measurement(question, "recorded", seconds[0], "not recorded", seconds[1], size.epochs, setting)


def _rows(query: object) -> int:
    progress = getattr(query, "lastProgress", None)
    return int(progress["stateOperators"][0]["numRowsTotal"]) if progress else 0
