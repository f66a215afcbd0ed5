"""Forks, steps, audits, rescaling and recovery: ``python -m benchmarks.debug [NAME …] [--keys N] [--out FILE]``."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.auditing import auditing
from benchmarks.forking import forking
from benchmarks.harness import Measurement, report
from benchmarks.recovering import recovering
from benchmarks.rescaling import rescaling
from benchmarks.size import Size
from benchmarks.stepping_forks import stepping_forks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Run = Callable[["SparkSession", Path, int], Iterator[Measurement]]


def _recovering(spark: SparkSession, folder: Path, keys: int) -> Iterator[Measurement]:
    """At a small state, and at the given one."""
    for number, size in enumerate((Size(10_000, 1_000, 4), Size(keys, max(keys // 20, 1), 4))):
        yield from recovering(spark, folder / str(number), size)


_ALL: dict[str, _Run] = {
    "fork": lambda spark, folder, keys: forking(spark, folder, Size(keys, max(keys // 20, 1), 60)),
    "step": lambda spark, folder, _keys: stepping_forks(spark, folder, Size(10_000, 1_000, 50)),
    "audit": lambda spark, folder, _keys: auditing(spark, folder, Size(0, 0, 50)),
    "rescale": lambda spark, _folder, keys: rescaling(spark, keys),
    "recover": _recovering,
}


def main() -> None:
    """Run the chosen measurements and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.debug", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(_ALL)} (all by default)")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys in the state (default: 1,000,000)")
    parser.add_argument("--out", help="a file to which the JSON lines are added")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in _ALL]
    if unknown:
        parser.error(f"there is no measurement {', '.join(unknown)}; choose from {', '.join(_ALL)}")
    report(_measured(chosen.names or list(_ALL), chosen.keys), chosen.out)


def _measured(names: list[str], keys: int) -> Iterator[Measurement]:
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "8g"}
    spark = ss.session(**settings, **{"spark.sql.streaming.minBatchesToRetain": "1000"})
    for name in names:
        with tempfile.TemporaryDirectory(prefix="streamstate-bench-") as folder:
            yield from _ALL[name](spark, Path(folder, name), keys)
    spark.stop()


if __name__ == "__main__":
    main()
