"""Cost of an audit, against running the query."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, Size, timed
from streamstate.tutorials import flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def auditing(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure a replay of the first epochs of the flights' delays, states compared; ignores the number of keys."""
    data = flights.prepare(folder / "data")
    build = partial(flights.delays, spark, data, until=size.epochs + 1)
    checkpoint = folder / "checkpoint"
    run = build().writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    original = timed(lambda: run.option("checkpointLocation", str(checkpoint)).start().awaitTermination())
    audit = ss.Checkpoint(checkpoint).audit(build, epochs=(1, size.epochs), spark=spark)
    if not audit.clean:
        raise AssertionError(f"the query of delays is deterministic, and this says otherwise:\n{audit!r}")
    replay = statistics.median(run.seconds for run in audit.replays)
    setting = f"flights, {size.epochs} epochs, {len(audit.replays)} replays"
    original *= size.epochs / (size.epochs + 1)
    yield Measurement("replay of an audit", "replay", replay, "3 × the run", 3 * original, 3, setting, wanted=1.0)
