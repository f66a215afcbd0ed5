"""Forks that are stepped, and what they are compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from operators.running import Query, Run, with_settings
from oracle import spark_rows
from pyspark.sql import DataFrame, SparkSession

import streamstate as ss


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder, with a digest of its bytes.

    What Spark's maintenance may be writing just then is left out: temporary files, and RocksDB's, which it copies
    under their names.
    """
    files = (path for path in folder.rglob("*") if path.is_file())
    done = sorted(path for path in files if ".tmp" not in path.name and path.parent.name != "SSTs")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in done}


def untouched(before: dict[str, str], folder: Path) -> bool:
    """Whether a checkpoint's files are what they were; Spark's maintenance alone may add some, to the state."""
    now = tree(folder)
    return before.items() <= now.items() and all(path.startswith("state/") for path in now.keys() - before.keys())


def builder(run: Run, query: Query, *settings: Mapping[str, str]) -> Callable[[], DataFrame]:
    """The query's own code, as ``build_query``."""
    session = with_settings(run.spark, query.conf, *settings)
    return lambda: query.build(run.inputs.stream(session))


def check_steps(
    spark: SparkSession, run: Run, query: Query, *settings: Mapping[str, str], at: int = 1, steps: int = 3
) -> ss.StepReport:
    """Fork, step, and compare every table with the original, at the fork's epoch and at every one after it.

    The original stays as it is.
    """
    before = tree(run.checkpoint)
    fork = ss.fork(run.checkpoint, run.folder / f"fork{at}", at=at)
    _check_same(spark, run, query, fork.checkpoint, at)
    report = ss.step(builder(run, query, *settings), fork, epochs=steps, mode=query.mode)
    assert [one.epoch for one in report.epochs] == [*range(at + 1, at + steps + 1)]
    for one in report.epochs:
        assert one.input == "original"
        _check_same(spark, run, query, fork.checkpoint, one.epoch)
    assert untouched(before, run.checkpoint)
    return report


def _check_same(spark: SparkSession, run: Run, query: Query, fork: str, epoch: int) -> None:
    """Spark's own reader finds the same rows in the fork and in the original."""
    for table in query.tables:
        ours, theirs = (spark_rows(spark, path, table, epoch) for path in (fork, run.checkpoint))
        assert ours == theirs, f"{table} at epoch {epoch}: {ours - theirs} instead of {theirs - ours}"


def counting(spark: SparkSession, folder: Path, *more: str, where: str = "true") -> Callable[[], DataFrame]:
    """The code of the query of the fixture ``counted``, changed or not: with more aggregates, or of some rows only."""
    from pyspark.sql import functions as F

    def build() -> DataFrame:
        reader = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
        values = ["count(*) AS n", "avg(v) AS mean", "max(v) AS most", *more]
        return reader.parquet(str(folder / "input")).where(where).groupBy("k").agg(*map(F.expr, values))

    return build
