"""A load policy at work: a captured query under twice its capacity, and what its controller costs."""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamstate as ss
from benchmarks.harness import Measurement, Size, bounded
from streamstate.shedding import weighted_sum

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.launch.running import Running

LATENCY = 5.0
_TICK = 0.25
_TASKS = 2
_BUSY = 0.8
"""The share of the time that the rows take at the query's capacity: the most that arrive in a second while the policy
holds and nothing is dropped. An epoch without rows takes 0.5 s, and ``2 × 0.5 / (1 - 0.8)`` is the policy's 5 s."""
_SCHEMA = "event_id long, carrier long, delay double"
_WAIT = 900.0
_WARM = 10
"""Epochs before the measurement: Spark compiles the query, and the controller learns what an epoch costs."""
_SHORT, _LONG = 0.3, 3.0
_BLOCKS, _SKIPPED = 8, 3


def overload(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure a policy of 5 s under twice the capacity; ``--epochs``: seconds of it, ``--changes``: rows a second."""
    for may_drop in (0.6, 0.2):
        yield from held(spark, folder / f"{may_drop}", size, may_drop)
    for seconds, epochs in ((_SHORT, 20), (_LONG, 8)):
        yield cost(spark, folder / f"{seconds}", seconds, epochs)


@dataclass
class Feeder:
    """Writes a file of rows each quarter of a second, and remembers when, and the sum of their values."""

    folder: Path
    rate: float
    rows: int = 0
    total: float = 0.0
    arrived: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.add(round(self.rate * _TICK))

    def start(self) -> None:
        """Write files from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more."""
        self._ended.set()
        self._thread.join()

    def add(self, count: int) -> None:
        """Write a file."""
        number = len(self.arrived)
        delay = np.random.default_rng(number).gamma(1.0, 20.0, count)
        ids = np.arange(self.rows, self.rows + count)
        hidden, name = self.folder / f".{number:06d}", f"{number:06d}.parquet"
        pq.write_table(pa.table({"event_id": ids, "carrier": ids % 16, "delay": delay}), hidden)
        self.arrived[name] = time.time()
        hidden.rename(self.folder / name)
        self.rows, self.total = self.rows + count, self.total + float(delay.sum())

    def _run(self) -> None:
        due = time.time() + _TICK
        while not self._ended.wait(max(due - time.time(), 0.0)):
            self.add(round(self.rate * _TICK))
            due += _TICK


def delays(spark: SparkSession, folder: Path, row_seconds: float, **options: Any) -> DataFrame:
    """Return a query that can shed rows, and takes its time for each that is left."""

    def slow(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            time.sleep(len(batch) * row_seconds)
            yield batch

    frame = spark.readStream.schema(_SCHEMA).options(**options).parquet(str(folder))
    frame = ss.shed(frame, id="event_id", value="delay", weight="w")
    frame = frame.mapInPandas(slow, frame.schema)
    return frame.groupBy("carrier").agg(weighted_sum("delay", "w").alias("total"))


def held(spark: SparkSession, folder: Path, size: Size, may_drop: float) -> Iterator[Measurement]:
    """Measure half the capacity for a fifth of the time, twice the capacity, and half again."""
    during, calm, capacity = float(size.epochs), size.epochs / 5, size.changes
    feeder = Feeder(folder / "input", capacity / 2)
    frame = delays(spark, folder / "input", _BUSY * _TASKS / capacity)
    policy, checkpoint = ss.Policy(latency=LATENCY, may_drop=may_drop), folder / "checkpoint"
    running = ss.start(frame, "delays", folder / "store", checkpoint=checkpoint, policy=policy, partitions=_TASKS)
    running.wait(epoch=0, timeout=_WAIT)
    feeder.start()
    running.wait(epoch=_WARM, timeout=_WAIT)
    changes, load = [], os.getloadavg()[0]
    for seconds, rate in ((calm, 2.0), (during, 0.5), (calm, 0.0)):
        time.sleep(seconds)
        changes.append(time.time())
        feeder.rate = rate * capacity
    feeder.stop()
    assert running.query is not None
    running.query.processAllAvailable()
    running.wait(timeout=_WAIT)
    time.sleep(1.0)
    running.stop()
    machine = f"; load average {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    setting = f"{during:.0f} s of {2 * capacity:,} rows a second, captured, latency 5 s, may_drop {may_drop}{machine}"
    yield from _judged(running, feeder, changes[:2], may_drop, setting)


def _judged(
    running: Running, feeder: Feeder, changes: list[float], may_drop: float, setting: str
) -> Iterator[Measurement]:
    begin, end = changes
    history = running.history
    epochs, decisions = history.load().to_pandas().set_index("epoch"), history.decisions()
    latency = latencies(feeder.folder.parent / "checkpoint", feeder.arrived)
    began = {int(str(epoch)): at.timestamp() for epoch, at in epochs["began_at"].items()}
    within = [epoch for epoch in latency if begin <= began.get(epoch, -math.inf) < end]
    judged = [latency[epoch] for epoch in within[2:]]
    count = len(judged)
    p95 = float(np.percentile(judged, 95))
    question = "latency of 95 of 100 epochs, from the third of the overload on"
    ours = f"from a file's arrival to the commit; slowest {max(judged):.2f} s"
    yield bounded(question, ours, p95, LATENCY if may_drop > 0.5 else math.inf, runs=count, setting=setting)
    rows, dropped = epochs["rows"].loc[within], epochs["dropped_rows"].loc[within]
    share = 100 * float(dropped.sum() / rows.sum())
    beyond = (dropped - may_drop * rows) / np.sqrt(may_drop * (1 - may_drop) * rows)
    worst = beyond.astype(float).idxmax()
    ours = f"of all; at most {100 * dropped[worst] / rows[worst]:.2f} % of an epoch, of {rows[worst]:,} rows"
    yield bounded("rows dropped", ours, share, 100 * may_drop, runs=count, setting=setting, unit="%")
    ours = "of the worst epoch beyond its share, in standard deviations of the hash"
    yield bounded("rows dropped", ours, float(beyond.max()), 3, runs=count, setting=setting, unit="")
    if may_drop > 0.5:
        after = [epoch for epoch, at in began.items() if at >= end]
        late = [at for at, dropping in enumerate(epochs["dropped_rows"].loc[after] > 0) if dropping]
        until = late[-1] + 1 if late else 0
        yield bounded(
            "epochs until nothing is dropped", "after the load fell", until, 3, runs=1, setting=setting, unit=""
        )
        kept = decisions.loc[decisions["lever"] == "shedding", "after"].tolist()
        rising = [two > one for one, two in itertools.pairwise([1.0, *kept])]
        turns = sum(one != other for one, other in itertools.pairwise(rising))
        ours = f"turns of the dropped share; {len(kept)} moves, {sum(decisions['lever'] == 'admission')} of admission"
        yield bounded("reversals of the load's two changes", ours, turns, 1, runs=1, setting=setting, unit="")
    totals = history.live().result().to_pandas()["total"]
    error = math.sqrt(sum(total["error"] ** 2 for total in totals))
    off = abs(sum(total["estimate"] for total in totals) - feeder.total) / error if error else 0.0
    ours = f"in errors of {100 * error / feeder.total:.3g} %"
    yield bounded("weighted sum against the truth", ours, off, 2.5, runs=1, setting=setting, unit="")
    longest = float(epochs.loc[within[2:], "seconds"].max())
    yield bounded("the longest epoch", "of the overload", longest, 2 * LATENCY, runs=count, setting=setting)
    broken = decisions[(~decisions["holds"].astype(bool)) & (decisions["needs"] != "")]
    if may_drop < 0.5:
        first = broken[broken["epoch"].isin(within)].iloc[0] if len(broken) else None
        said = math.inf if first is None else within.index(first["epoch"]) + 1
        words = "" if first is None else str(first["needs"])
        yield bounded("epochs until it is said", words, said, 3, runs=1, setting=setting, unit="")


def latencies(checkpoint: Path, arrived: Mapping[str, float]) -> dict[int, float]:
    """Return the seconds from the arrival of each epoch's oldest file to the commit."""
    epochs = committed_files(checkpoint).items()
    return {epoch: at - min(arrived[name] for name in names) for epoch, (at, names) in epochs if names}


def committed_files(checkpoint: Path) -> dict[int, tuple[float, list[str]]]:
    """Return when each epoch was committed and the names of the files that it read, by Spark's own files."""
    files: dict[int, set[str]] = {}
    for path in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            files.setdefault(entry["batchId"], set()).add(Path(entry["path"]).name)
    found, before = dict[int, tuple[float, list[str]]](), -1
    for epoch in sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")):
        lines = (checkpoint / "offsets" / str(epoch)).read_text().splitlines()[2:]
        batch = next((offset["logOffset"] for line in lines if "logOffset" in (offset := json.loads(line))), before)
        read = [name for number in range(before + 1, batch + 1) for name in files.get(number, ())]
        before = batch
        found[epoch] = (checkpoint / "commits" / str(epoch)).stat().st_mtime, read
    return found


def cost(spark: SparkSession, folder: Path, seconds: float, epochs: int) -> Measurement:
    """Measure epochs of about so many seconds with a policy in force and without, in turns."""
    rows = 2_000
    feeder = Feeder(folder / "input", rows / _TICK)
    for _ in range(2 * _BLOCKS * (epochs + 2 * _SKIPPED) + 20):
        feeder.add(rows)
    row_seconds = max(seconds - _SHORT, 0.0) / rows
    frame = delays(spark, folder / "input", row_seconds, maxFilesPerTrigger=1)
    checkpoint = folder / "checkpoint"
    running = ss.start(frame, "delays", folder / "store", checkpoint=checkpoint, partitions=_TASKS)
    committed: Callable[[], int] = running.capture.committed
    policy, blocks = ss.Policy(latency=60, may_drop=0.5), list[tuple[bool, int, int]]()
    load = os.getloadavg()[0]
    running.wait(epoch=5, timeout=_WAIT)
    for block in range(2 * _BLOCKS):
        running.policy = policy if block % 2 else None
        first = committed() + _SKIPPED
        running.wait(epoch=first + epochs, timeout=_WAIT)
        blocks.append((bool(block % 2), first, first + epochs))
    running.stop()
    at = {int(path.name): path.stat().st_mtime for path in (checkpoint / "commits").glob("[0-9]*")}
    took: dict[bool, list[float]] = {True: [], False: []}
    for ruled, first, last in blocks:
        took[ruled] += [at[epoch + 1] - at[epoch] for epoch in range(first, last)]
    with_policy, without = statistics.median(took[True]), statistics.median(took[False])
    setting = f"epochs of {seconds} s, captured; load average {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    return Measurement(
        "an epoch while a policy is in force",
        "with a policy",
        with_policy,
        "without one, in turns",
        without,
        len(took[True]),
        setting,
        wanted=0.99,
    )
