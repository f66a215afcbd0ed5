"""The queries before a change, run over a few epochs and captured; and what Spark really does with a change."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from input_files import in_turn
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import streamstate as ss
from code_check.changes import BASES, CHANGES, STORE, Build, Change, Inputs
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.plan_table import store_plan
from streamstate.snapshots.store.query_plans.spark_plan import plan_of_frame

EPOCHS = 3
PINNED = ("spark.sql.shuffle.partitions", f"{STORE}.providerClass")
START = dt.datetime(2024, 3, 31, 0, 30, tzinfo=dt.UTC)


def add_input(folder: Path, epoch: int) -> None:
    """The input of one epoch of both streams: an hour, with a late row."""
    for shift, name in enumerate(("one", "two")):
        minutes = [60 * epoch + 7 * row + shift for row in range(8)] + [60 * epoch - 50]
        numbers = [row * 3 % 8 + 9 * epoch + shift for row in range(9)]
        # Every epoch has a key of its own.
        rows = {
            "k": [f"only{epoch}", *(f"k{(row + epoch) % 3}" for row in range(8))],
            "c": [f"c{number % 2}" for number in numbers],
            "v": numbers,
            "w": [100 - 2 * number for number in numbers],
            "t": [START + dt.timedelta(minutes=minute) for minute in minutes],
        }
        file = folder / name / f"{epoch:05}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_parquet(file, coerce_timestamps="us")
        in_turn(file, epoch)


@contextmanager
def settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for the duration of the block."""
    before = {name: str(spark.conf.get(name)) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


class Started:
    """Runs the queries before the change, each when it is first asked for."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.inputs = Inputs(spark, folder / "input")
        self._made: set[str] = set()
        for epoch in range(EPOCHS):
            add_input(self.inputs.folder, epoch)

    def checkpoint(self, base: str) -> Path:
        """The checkpoint of a query, which is captured in the store."""
        checkpoint = self.folder / base
        if base not in self._made:
            self._made.add(base)
            query = BASES[base]
            with settings(self.spark, query.conf):
                self.run(query.build(self.inputs), checkpoint, query.mode)
            name = base.replace(" ", "_")
            ss.Checkpoint(checkpoint).capture(self.store, name, verify="never")
            # History.describe would refuse those without columns of a result, which ss.start records all the same.
            store_plan(Layout.at(self.store), name, plan_of_frame(query.build(self.inputs), query.mode).plan, 0)
        return checkpoint

    @property
    def store(self) -> Path:
        """The store with all queries."""
        return self.folder / "store"

    @staticmethod
    def run(frame: DataFrame, checkpoint: Path, mode: str) -> list[str]:
        """Run a query over the available input, and return the rows that the sink received."""
        rows: list[str] = []

        def collect(batch: DataFrame, _epoch: int) -> None:
            rows.extend(str(row) for row in batch.collect())

        writer = frame.writeStream.foreachBatch(collect).outputMode(mode)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return sorted(rows)


class Oracle:
    """Starts a changed query on a copy of the checkpoint, and compares where that leads with how it should be.

    The state means the same if it is the one that the changed query makes of all input, and if the sink then receives
    the rows that it would have received without the change.
    """

    def __init__(self, started: Started, change: Change, folder: Path) -> None:
        self._started, self._change, self._folder = started, change, folder
        self._base = BASES[change.base]
        self._inputs = Inputs(started.spark, folder / "input")

    def level(self) -> str:
        """``refused``, ``changed`` or ``same``."""
        change, base = self._change, self._base
        original = self._copy("original")
        shutil.copytree(original, self._folder / "changed")
        add_input(self._inputs.folder, EPOCHS)
        build, mode = change.build or base.build, change.mode or base.mode
        with settings(self._started.spark, change.conf):
            try:
                rows = self._run("changed", build, mode)
            except PySparkException:
                return "refused"
        free = {name: value for name, value in change.conf.items() if name not in PINNED}
        with settings(self._started.spark, {**base.conf, **free}):
            self._run("anew", build, mode)
        expected = self._run("original", base.build, base.mode)
        return "same" if rows == expected and self._state("changed") == self._state("anew") else "changed"

    def _copy(self, name: str) -> Path:
        """A copy of the input and a run over it, as the paths in the log of the sources say where files are."""
        shutil.copytree(self._started.inputs.folder, self._inputs.folder, copy_function=shutil.copy2)
        with settings(self._started.spark, self._base.conf):
            self._run(name, self._base.build, self._base.mode)
        return self._folder / name

    def _run(self, name: str, build: Build, mode: str) -> list[str]:
        return self._started.run(build(self._inputs), self._folder / name, mode)

    def _state(self, name: str) -> dict[str, Any]:
        """The rows of each state table, without the names of the columns."""
        ss.Checkpoint(self._folder / name).capture(self._folder / "store", name, verify="never")
        live = ss.open_store(self._folder / "store")[name].live()
        tables = {table: live.table(table).to_arrow() for table in live.tables()}
        return {name: sorted(map(str, zip(*table.to_pydict().values(), strict=True))) for name, table in tables.items()}


__all__ = ["BASES", "CHANGES", "EPOCHS", "Oracle", "Started", "add_input", "settings"]
