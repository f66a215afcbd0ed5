"""Shedding: how often sums lie within their stated errors, and what the filter and the level cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import psutil

import streamstate as ss
from benchmarks.harness import Measurement, Size, bounded
from streamstate.shedding import declare_level, level_for, weighted_count, weighted_mean, weighted_sum
from streamstate.variables.shedding.level import ALL, Level

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

RUNS, SPARK_RUNS, GROUPS = 200, 10, 10
STATED = 2.5
"""The errors within which the documentation says that sums are."""
_LEVELS = {
    "half of all": level_for(None, 0.5),
    "a tenth of all": level_for(None, 0.1),
    "all above 60, a quarter below": level_for("delay > 60", 0.25),
    "all above 60, a tenth below": level_for("delay > 60", 0.1),
}
_ROUNDS = 7


def shedding(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure sums against their errors, the filter's cost a row, and the level's an epoch; ignores the keys."""
    for level in _LEVELS:
        yield _covered(level, STATED)
        yield _covered(level, 1.96)
    yield from _covered_in_spark(spark, folder / "sums")
    yield from _filter(spark, folder / "filter", size.changes)
    yield _level(spark, folder / "level", size.epochs)


def delays(rows: int, seed: int) -> NDArray[np.float64]:
    """Delays of flights in minutes, as they are in New York: most are early, a few are hours late."""
    drawn = np.random.default_rng(seed)
    late = drawn.random(rows) < 0.4
    drawn_delays: NDArray[np.float64] = np.where(late, drawn.exponential(40.0, rows), -drawn.exponential(6.0, rows))
    return drawn_delays.round()


def _covered(name: str, errors: float) -> Measurement:
    """Simulate the law of the sample: 1,000 rows in a group, its sum against the estimate."""
    level, inside = Level.of(_LEVELS[name]), 0
    for seed in range(RUNS):
        x = delays(1_000, seed)
        share = np.array([level.share(value) for value in x]) / ALL
        kept = np.random.default_rng(10_000 + seed).random(len(x)) < share
        w = 1 / share
        estimate, error = (w * x)[kept].sum(), math.sqrt((w * (w - 1) * x * x)[kept].sum())
        inside += abs(estimate - x.sum()) <= errors * error
    # The share of sums outside is compared with what the documentation allows.
    outside = 100 * (1 - inside / RUNS)
    what = f"sums outside of ±{errors} errors, {name}"
    return bounded(what, "simulated", outside, 5.0, runs=RUNS, setting=f"{RUNS} seeds, 1,000 rows a group", unit="%")


def _covered_in_spark(spark: SparkSession, folder: Path) -> Iterator[Measurement]:
    """Run queries over rows with other ids each, and compare sums, counts and means with those of all rows."""
    rows, outside = 1_000 * GROUPS, {"sum": 0, "count": 0, "mean": 0}
    for seed in range(SPARK_RUNS):
        made = pd.DataFrame({"event_id": np.arange(rows) + seed * rows, "delay": delays(rows, seed)})
        made["g"] = made["event_id"] % GROUPS
        source = folder / f"input{seed}"
        source.mkdir(parents=True)
        made.to_parquet(source / "rows.parquet")
        declare_level(folder / "store", f"q{seed}", init=level_for("delay > 60", 0.25))
        kept = ss.shed(
            spark.readStream.schema("event_id long, delay double, g long").parquet(str(source)),
            value="delay",
            weight="w",
        )
        frame = kept.groupBy("g").agg(
            weighted_sum("delay").alias("sum"), weighted_count().alias("count"), weighted_mean("delay").alias("mean")
        )
        running = ss.start(frame, f"q{seed}", folder / "store", trigger="available-now")
        running.wait(timeout=600)
        running.stop()
        true = made.groupby("g")["delay"].agg(["sum", "count", "mean"]).to_dict("index")
        for row in running.history.live().result().to_arrow().to_pylist():
            for name in outside:
                difference = row[name]["estimate"] - true[row["g"]][name]
                outside[name] += abs(difference) > STATED * row[name]["error"]
    spark.streams.resetTerminated()
    checked = SPARK_RUNS * GROUPS
    setting = f"{SPARK_RUNS} queries, {GROUPS} groups of 1,000 rows, all above 60, a quarter below"
    for name, number in outside.items():
        what = f"{name}s outside of ±{STATED} errors"
        yield bounded(what, "Spark", 100 * number / checked, 5.0, runs=checked, setting=setting, unit="%")


def _filter(spark: SparkSession, folder: Path, rows: int) -> Iterator[Measurement]:
    """Take the CPU time of queries without and with the filter, by turns; all rows are kept: the rest is alike."""
    numbers = count()
    taken: dict[str, list[float]] = {"none": [], "sampling": [], "intervals": []}
    for turn in range(_ROUNDS + 1):
        for kind, seconds in taken.items():
            epoch = _epoch(spark, _counted(spark, kind, rows), folder / str(next(numbers)))
            if turn:  # the first of each compiles
                seconds.append(epoch)
    medians = {kind: statistics.median(seconds) for kind, seconds in taken.items()}
    for kind in ("sampling", "intervals"):
        yield Measurement(
            f"CPU time of an epoch of {rows:,} rows, {kind}",
            "ss.shed, nothing dropped",
            medians[kind],
            "without it",
            medians["none"],
            _ROUNDS,
            f"{1e9 * (medians[kind] - medians['none']) / rows:.0f} ns a row more",
        )


def _counted(spark: SparkSession, kind: str, rows: int) -> DataFrame:
    from pyspark.sql import functions as F

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()
    frame = source.withColumn("delay", (F.col("value") % 1_000).cast("double"))
    if kind != "none":
        frame = ss.shed(frame, id="value", value="delay" if kind == "intervals" else None, weight="w")
    weight = F.lit(1.0) if kind == "none" else F.col("w")
    return frame.groupBy((F.col("value") % 100).alias("k")).agg(F.sum(F.col("delay") * weight))


def _epoch(spark: SparkSession, frame: DataFrame, checkpoint: Path) -> float:
    """Return the CPU seconds of Java for a query of one epoch: of all threads, whatever else the machine does."""
    assert spark._jvm is not None
    java = psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))
    before = java.cpu_times()
    writer = frame.writeStream.format("noop").outputMode("update").trigger(once=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination()
    spark.streams.resetTerminated()
    after = java.cpu_times()
    return float(after.user + after.system - before.user - before.system)


def _level(spark: SparkSession, folder: Path, epochs: int) -> Measurement:
    """Time whole epochs of few rows, of captured queries with and without a level, by turns."""
    taken: dict[str, list[float]] = {"none": [], "sampling": []}
    for turn in range(3):
        for kind, seconds in taken.items():
            running = ss.start(_counted(spark, kind, 100), f"{kind}{turn}", folder / "store", every="10m")
            assert running.query is not None
            while len(running.query.recentProgress) < epochs + 5:
                running.query.awaitTermination(1)
            progress = [entry["durationMs"]["triggerExecution"] / 1_000 for entry in running.query.recentProgress]
            seconds.extend(progress[4:])
            running.stop()
    medians = {kind: statistics.median(seconds) for kind, seconds in taken.items()}
    return Measurement(
        "an epoch of 100 rows",
        "ss.shed",
        medians["sampling"],
        "without it",
        medians["none"],
        3 * epochs,
        f"{1e3 * (medians['sampling'] - medians['none']):.0f} ms an epoch more",
    )
