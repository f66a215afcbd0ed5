"""A process with a local cluster of two executors, on which state goes back in: ``FOLDER TEMPORARY``."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from new_checkpoint.test_random_changes import Case, Grouped, check
from new_checkpoint.test_restore import QUICK, by_code
from streamstate.snapshots.spark.child_settings import spark_settings


def main(folder: str, temporary: str) -> None:
    """Make checkpoints in each way and of several operators, go on from them, and compare every row."""
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    for key, value in spark_settings(2, Path(temporary), cluster=True).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    pair, one = Grouped(("a", "b"), ("sum", "count", "max")), Grouped(("a",), ("count", "max"))
    for way, after in {"migrate": one, "bootstrap": one, "restore": pair, "restore by code": pair}.items():
        check(spark, Path(folder) / way.replace(" ", "_"), Case(pair, after, way, epochs=4, cut=2, seed=30))
        sys.stdout.write(f"{way}\n")
    for number, name in enumerate(QUICK):
        by_code(spark, Path(folder) / f"operator{number}", name)
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
