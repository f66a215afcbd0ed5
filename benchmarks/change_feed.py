"""Decoding an epoch's changes from the changelog, against Spark's change feed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Measurement
from benchmarks.size import Size
from benchmarks.stateful_queries import QUERIES, recorded
from streamstate.snapshots.capture.feed import first_difference
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.reader import changes, columns_of
from streamstate.snapshots.checkpoint.operators import StateSource
from streamstate.snapshots.spark.state_reader import StateReader, StateRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WARM_UP = 5


def change_feed(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """An epoch of an aggregate, a join, windows, a list, a map, a map with a time to live, both ways in turn."""
    for kind in QUERIES:
        checkpoint = recorded(spark, folder / kind, kind, size.changes, _WARM_UP + size.epochs)
        yield _compared(spark, checkpoint, kind, size)


def _compared(spark: SparkSession, checkpoint: Path, kind: str, size: Size) -> Measurement:
    reader = StateReader(spark, CheckpointFiles(checkpoint, spark))
    decoding, feeds, rows = [], [], 0
    for epoch in range(_WARM_UP + size.epochs):
        sources = [source for source in reader.sources(epoch) if reader.has_feed(source, [epoch])]
        seconds, decoded = _took(partial(_decoded, reader, sources, epoch))
        decoding.append(seconds)
        seconds, expected = _took(partial(_fed, reader, sources, epoch))
        feeds.append(seconds)
        for ours, theirs in zip(decoded, expected, strict=True):
            if (difference := first_difference(ours, theirs, epoch)) is not None:
                raise AssertionError(f"{kind}, epoch {epoch}: {difference}")
        rows = sum(ours.rows.num_rows for ours in decoded)
    return Measurement(
        f"an epoch's changes, {kind}",
        "decoded",
        statistics.median(decoding[_WARM_UP:]),
        "Spark's change feed",
        statistics.median(feeds[_WARM_UP:]),
        size.epochs,
        f"{rows:,} changes of state",
        wanted=8,
    )


def _decoded(reader: StateReader, sources: list[StateSource], epoch: int) -> list[StateRows]:
    formats = [reader.format(source) for source in sources]
    return [StateRows(columns_of(one), changes(reader.checkpoint, one, epoch, epoch)) for one in formats]


def _fed(reader: StateReader, sources: list[StateSource], epoch: int) -> list[StateRows]:
    return [reader.changes(source, epoch, epoch) for source in sources]


def _took(read: Callable[[], list[StateRows]]) -> tuple[float, list[StateRows]]:
    """The seconds that reading takes, and what was read."""
    start = time.perf_counter()
    rows = read()
    return time.perf_counter() - start, rows
