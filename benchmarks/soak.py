"""A query of 10,000 epochs that is followed, and asked all the time: lag, look-ups, memory and files stay the same.

The follower's clock is quickened a hundred times: what it does every ten minutes it does every six seconds, what it
keeps for an hour it keeps for 36 seconds.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psutil

import streamstate as ss
from benchmarks.harness import Measurement
from benchmarks.plot import publish
from benchmarks.size import Size
from benchmarks.soak_processes import LOOK_UPS, MEMORY, QUICKENED
from benchmarks.workload import unload_state
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


_QUERY = "load"
_FORGETS = {"delta.deletedFileRetentionDuration": f"interval {2 * 3600 // QUICKENED} seconds"}
_SAMPLES = 50
_PAUSE = 0.2
_FULL = 10_000


def soak(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """A query that is followed and asked all the time: its last epochs compared with its first.

    With 10,000 epochs and more the samples and their plot go into the docs.
    """
    checkpoint, store, answers = folder / "checkpoint", folder / "store", folder / "answers"
    query = _started(spark, checkpoint, size)
    try:
        _wait(checkpoint, 1)
        # Its log names the files that left a table for as long as two hours last.
        with patch.dict("streamstate.snapshots.store.delta.commits._CONFIGURATION", _FORGETS):
            ss.Checkpoint(checkpoint).capture(store, _QUERY)
        with (
            _process("follow", checkpoint, store, _QUERY) as follower,
            _process("ask", store, answers, _QUERY, size.keys),
        ):
            samples = _sampled(checkpoint, store, follower, size.epochs)
    finally:
        query.stop()
        unload_state(spark)
    asked = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    rows = _joined(samples, asked)
    if size.epochs >= _FULL:
        publish("soak", rows)
    # In the third of ten parts the reader's index is full (after about 2,200 epochs), and files have been swept.
    part = max(len(rows) // 10, 1)
    first, last = rows[2 * part : 3 * part], rows[-part:]
    setting = f"{size}, {size.epochs:,} epochs in {asked[-1]['at'] - asked[0]['at']:,.0f} s, reader with {MEMORY}"
    for what, (unit, wanted) in _FIGURES.items():
        values = [statistics.median(row[what] for row in rows) for rows in (last, first)]
        yield Measurement(what, "at the end", values[0], "at the start", values[1], part, setting, unit, wanted)


_FIGURES = {
    **dict.fromkeys(LOOK_UPS[:2], ("s", 1 / 1.2)),
    LOOK_UPS[2]: ("s", None),  # most old epochs have to be loaded first, once there are many
    "memory of the follower": ("B", 1 / 1.1),
    "memory of the reader": ("B", 1 / 1.3),
    "files in the store": ("", None),
    "epochs that are committed and not yet captured": ("", None),
}


def _started(spark: SparkSession, checkpoint: Path, size: Size) -> StreamingQuery:
    """A count and a sum by key; each epoch changes some keys at random, and the next follows at once."""
    from pyspark.sql import functions as F

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", size.changes).load()
    key = F.concat(F.lit("key-"), F.pmod(F.xxhash64("value"), F.lit(size.keys)))
    state = rows.withColumn("key", key).groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("sum"))
    writer = state.writeStream.format("noop").outputMode("update")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def _wait(checkpoint: Path, epoch: int) -> None:
    while (CheckpointFiles(str(checkpoint)).committed() or [-1])[-1] < epoch:
        threading.Event().wait(_PAUSE)


@contextmanager
def _process(*what: object) -> Iterator[psutil.Process]:
    """A process of its own, which ends with the block."""
    words = [str(word) for word in what]
    with subprocess.Popen([sys.executable, "-m", "benchmarks.soak_processes", *words]) as process:
        try:
            yield psutil.Process(process.pid)
            if process.poll() is not None:
                raise AssertionError(f"{words[0]} ended with status {process.returncode}")
        finally:
            process.terminate()


def _sampled(checkpoint: Path, store: Path, follower: psutil.Process, epochs: int) -> list[dict[str, Any]]:
    """Samples at equal distances."""
    samples = []
    history = ss.open_store(store)[_QUERY]
    for at in range(1, _SAMPLES + 1):
        due = epochs * at // _SAMPLES
        while (captured := history.live().epoch) < due:
            threading.Event().wait(_PAUSE)
        committed = CheckpointFiles(str(checkpoint)).committed()[-1]
        samples.append(
            {
                "epoch": captured,
                "memory of the follower": follower.memory_info().rss,
                "files in the store": sum(path.is_file() for path in store.rglob("*")),
                "epochs that are committed and not yet captured": max(committed - captured, 0),
            }
        )
    return samples


def _joined(samples: list[dict[str, Any]], asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each sample with the medians of what was asked since the one before.

    What a look-up in the newest epoch takes follows the number of epochs that are new to the reader: those that found
    one are compared.
    """
    one_new = {id(answer) for last, answer in itertools.pairwise(asked) if answer["epoch"] == last["epoch"] + 1}
    rows, before = [], 0
    for sample in samples:
        since = [answer for answer in asked if before <= answer["epoch"] < sample["epoch"]]
        before = sample["epoch"]
        by_name = {
            name: [answer[name] for answer in since if name != LOOK_UPS[0] or id(answer) in one_new]
            for name in _FIGURES
            if since and name in since[0]
        }
        if by_name and all(by_name.values()):
            rows.append(sample | {name: statistics.median(values) for name, values in by_name.items()})
    return rows
