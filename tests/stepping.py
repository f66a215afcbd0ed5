"""Steps forks, and compares them with their originals."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from operators.running import Query, Run, with_settings
from oracle import spark_rows
from pyspark.sql import DataFrame, SparkSession

import streamstate as ss
from streamstate.reports import StepReport


def tree(folder: Path) -> dict[str, str]:
    """The files below a folder, with a digest of their bytes.

    Files that Spark's maintenance may be writing at the same time are left out: temporary files, and RocksDB's SST
    files, which it copies under their final names.
    """
    files = (path for path in folder.rglob("*") if path.is_file())
    complete = sorted(path for path in files if ".tmp" not in path.name and path.parent.name != "SSTs")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in complete}


def untouched(before: dict[str, str], folder: Path) -> bool:
    """Return whether a checkpoint's files are unchanged. Spark's maintenance may add files to the state."""
    after = tree(folder)
    return before.items() <= after.items() and all(path.startswith("state/") for path in after.keys() - before.keys())


def builder(run: Run, query: Query, *settings: Mapping[str, str]) -> Callable[[], DataFrame]:
    """The query's code, as ``build_query``."""
    session = with_settings(run.spark, query.conf, *settings)
    return lambda: query.build(run.inputs.stream(session))


def check_steps(
    spark: SparkSession, run: Run, query: Query, *settings: Mapping[str, str], at: int = 1, steps: int = 3
) -> StepReport:
    """Fork and step, and compare every table with the original at the fork's epoch and at every later epoch.

    The original must stay unchanged.
    """
    before = tree(run.checkpoint)
    fork = ss.Checkpoint(run.checkpoint).fork(run.folder / f"fork{at}", at=at)
    _check_same(spark, run, query, fork.path, at)
    report = ss.Checkpoint(fork).step(builder(run, query, *settings), epochs=steps, mode=query.mode)
    assert [result.epoch for result in report.epochs] == [*range(at + 1, at + steps + 1)]
    for result in report.epochs:
        assert result.input == "original"
        _check_same(spark, run, query, fork.path, result.epoch)
    assert untouched(before, run.checkpoint)
    return report


def _check_same(spark: SparkSession, run: Run, query: Query, fork: str, epoch: int) -> None:
    """Check that Spark's state reader returns the same rows for the fork and the original."""
    for table in query.tables:
        found, expected = (spark_rows(spark, path, table, epoch) for path in (fork, run.checkpoint))
        assert found == expected, f"{table} at epoch {epoch}: {found - expected} instead of {expected - found}"


def counting(spark: SparkSession, folder: Path, *more: str, where: str = "true") -> Callable[[], DataFrame]:
    """The code of the query of the fixture ``counted``, optionally with more aggregates or a filter."""
    from pyspark.sql import functions as F

    def build() -> DataFrame:
        reader = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
        values = ["count(*) AS n", "avg(v) AS mean", "max(v) AS most", *more]
        return reader.parquet(str(folder / "input")).where(where).groupBy("k").agg(*map(F.expr, values))

    return build
