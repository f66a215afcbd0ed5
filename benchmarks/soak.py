"""A query of 10,000 epochs that is followed, and asked all the time: lag, look-ups, memory and files stay the same.

The follower's clock is quickened a hundred times: what it does every ten minutes it does every six seconds, what it
keeps for an hour it keeps for 36 seconds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psutil

import streamstate as ss
from benchmarks.harness import Measurement
from benchmarks.plot import publish
from benchmarks.size import Size
from benchmarks.workload import unload_state
from streamstate.command_line import main as command
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.delta.log_checks import shorten

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from streamstate.snapshots.delta import Place

_QUERY = "load"
_QUICKENED = 100
_FORGETS = {"delta.deletedFileRetentionDuration": f"interval {2 * 3600 // _QUICKENED} seconds"}
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
        with patch.dict("streamstate.snapshots.delta.commits._CONFIGURATION", _FORGETS):
            ss.capture(checkpoint, store, _QUERY)
        with _process("follow", checkpoint, store) as follower, _process("ask", store, answers, size.keys):
            samples = _sampled(checkpoint, store, follower, size.epochs)
    finally:
        query.stop()
        unload_state(spark)
    asked = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    rows = _joined(samples, asked)
    if size.epochs >= _FULL:
        publish("soak", rows)
    # The processes have loaded what they need, and files are swept, after the first of ten parts.
    part = max(len(rows) // 10, 1)
    first, last = rows[part : 2 * part], rows[-part:]
    setting = f"{size}, {size.epochs:,} epochs in {asked[-1]['at'] - asked[0]['at']:,.0f} s"
    for what, (unit, wanted) in _FIGURES.items():
        values = [statistics.median(row[what] for row in rows) for rows in (last, first)]
        yield Measurement(what, "at the end", values[0], "at the start", values[1], part, setting, unit, wanted)


_FIGURES = {
    "look-up of a key in the newest epoch": ("s", 1 / 1.2),
    "look-up of a key at a past epoch": ("s", 1 / 1.2),
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
    while (Checkpoint(str(checkpoint)).committed() or [-1])[-1] < epoch:
        threading.Event().wait(_PAUSE)


@contextmanager
def _process(*what: object) -> Iterator[psutil.Process]:
    """This module in a process of its own, which ends with the block."""
    words = [str(word) for word in what]
    with subprocess.Popen([sys.executable, "-m", "benchmarks.soak", *words]) as process:
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
        committed = Checkpoint(str(checkpoint)).committed()[-1]
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
    """Each sample with the medians of what was asked since the one before."""
    rows, before = [], 0
    for sample in samples:
        since = [answer for answer in asked if before <= answer["epoch"] < sample["epoch"]]
        before = sample["epoch"]
        names = [name for name in _FIGURES if since and name in since[0]]
        if names:
            rows.append(sample | {name: statistics.median(answer[name] for answer in since) for name in names})
    return rows


def _follow(checkpoint: str, store: str) -> None:
    """``streamstate follow`` with a quick clock."""
    left: dict[str, dict[str, float]] = {}

    def held(table: DeltaTable, grace: timedelta) -> set[str]:
        """As the function that it replaces, whose grace is in whole hours."""
        now, known = time.monotonic(), left.get(table.table_uri, {})
        paths = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
        names = [path.rsplit("/", 1)[-1] for path in paths]
        left[table.table_uri] = known = {name: known.get(name, now) for name in names}
        kept = grace.total_seconds() / _QUICKENED
        current = {uri.rsplit("/", 1)[-1] for uri in table.file_uris()}
        return current | {path for path, since in known.items() if now - since < kept}

    def shortened(place: Place, kept: timedelta, newest: int) -> int:
        return shorten(place, kept / _QUICKENED, newest)

    with (
        patch("streamstate.snapshots.epoch_commit._SWEEP_SECONDS", 600 / _QUICKENED),
        patch("streamstate.snapshots.delta.maintenance.shorten", shortened),
        patch("streamstate.snapshots.delta.maintenance._held", held),
    ):
        sys.exit(command(["follow", checkpoint, store, "--name", _QUERY, "--quiet"]))


def _ask(store: str, answers: str, keys: str) -> None:
    """Look up keys at random, now and at past epochs; a line for each pair of questions."""
    random, process, history = Random(2013), psutil.Process(), ss.open_store(store)[_QUERY]
    with Path(answers).open("w", encoding="utf-8") as lines:
        while True:
            live, key = history.live(), f"key-{random.randrange(int(keys))}"
            times = [time.perf_counter()]
            for epoch in (live.epoch, random.randrange(live.epoch + 1)):
                history.at(epoch).table().lookup(key=key)
                times.append(time.perf_counter())
            now, past = times[1] - times[0], times[2] - times[1]
            answer = {"at": time.time(), "epoch": live.epoch, "memory of the reader": process.memory_info().rss}
            answer |= {"look-up of a key in the newest epoch": now, "look-up of a key at a past epoch": past}
            print(json.dumps(answer), file=lines, flush=True)
            threading.Event().wait(_PAUSE)


if __name__ == "__main__":
    (_follow if sys.argv[1] == "follow" else _ask)(*sys.argv[2:])
