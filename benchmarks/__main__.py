"""``python -m benchmarks [NAME …] [--list] [--keys N] [--changes N] [--epochs N] … [--out FILE]``."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import streamstate as ss
from benchmarks.alone import alone, syncing
from benchmarks.behind_a_change import behind_a_change
from benchmarks.beside import back_to_back, paced
from benchmarks.catching_up import catching_up
from benchmarks.change_feed import change_feed
from benchmarks.checking_changes import checking_changes
from benchmarks.following import follower_memory, freshness
from benchmarks.gets import gets
from benchmarks.growth import growth
from benchmarks.harness import Measurement, report
from benchmarks.hostile_viewer import hostile_viewer
from benchmarks.inspect import reading
from benchmarks.long_history import long_history
from benchmarks.many_epochs import many_epochs
from benchmarks.many_stores import many_stores
from benchmarks.partitions import partitions
from benchmarks.recording import recording
from benchmarks.results import results
from benchmarks.sharing_variables import sharing_variables
from benchmarks.size import Size
from benchmarks.soak import soak
from benchmarks.spilling import spilling
from benchmarks.storage import storage
from benchmarks.writing_state import writing_state


@dataclass(frozen=True)
class _Benchmark:
    run: Callable[[Any, Path, Size], Iterator[Measurement]]
    size: Size
    """What it is measured at unless the command line says otherwise."""
    needs_spark: bool = True

    def __str__(self) -> str:
        """What it measures: the first line of its description."""
        return f"{(self.run.__doc__ or '').splitlines()[0]} ({self.size})"


_SIZES = {
    "keys": "keys in the state",
    "changes": "keys changed an epoch",
    "epochs": "epochs measured",
    "partitions": "state partitions, for the benchmark of them",
    "stores": "stores that one process follows, for the benchmark of them",
}
_USUAL = Size(1_000_000, 50_000, 9)
_ALL = {
    "alone": _Benchmark(alone, _USUAL),
    "syncing": _Benchmark(syncing, Size(1_000_000, 50_000, 25)),
    "back_to_back": _Benchmark(back_to_back, Size(1_000_000, 50_000, 15)),
    "paced": _Benchmark(paced, _USUAL),
    "freshness": _Benchmark(freshness, Size(1_000_000, 50_000, 60)),
    "follower_memory": _Benchmark(follower_memory, Size(10_000_000, 1_000, 40)),
    "partitions": _Benchmark(partitions, Size(100_000, 2_000, 15)),
    "change_feed": _Benchmark(change_feed, Size(100_000, 50_000, 9)),
    "catching_up": _Benchmark(catching_up, Size(100_000, 20_000, 240)),
    "many_stores": _Benchmark(many_stores, Size(2_000, 1_000, 30)),
    "growth": _Benchmark(growth, Size(10_000_000, 10_000, 9)),
    "storage": _Benchmark(storage, Size(100_000, 5_000, 200)),
    "many_epochs": _Benchmark(many_epochs, _USUAL, needs_spark=False),
    "long_history": _Benchmark(long_history, Size(100_000, 20_000, 10_000), needs_spark=False),
    "soak": _Benchmark(soak, Size(10_000, 1_000, 10_000)),
    "spilling": _Benchmark(spilling, Size(10_000_000, 500_000, 20)),
    "gets": _Benchmark(gets, Size(100_000, 5_000, 20)),
    "reading": _Benchmark(reading, Size(1_000_000, 50_000, 100)),
    "results": _Benchmark(results, Size(1_000_000, 50_000, 20)),
    "behind_a_change": _Benchmark(behind_a_change, Size(1_000_000, 50_000, 9)),
    "recording": _Benchmark(recording, Size(100_000, 50_000, 15)),
    "checking_changes": _Benchmark(checking_changes, Size(100_000, 100_000, 1)),
    "writing_state": _Benchmark(writing_state, Size(1_000_000, 1, 1)),
    "sharing_variables": _Benchmark(sharing_variables, Size(100_000, 5_000, 25)),
    "hostile_viewer": _Benchmark(hostile_viewer, Size(100_000, 1_000, 20), needs_spark=False),
}


def main() -> None:
    """Run the chosen measurements and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(_ALL)} (all by default)")
    parser.add_argument("--list", action="store_true", help="say what each measures, and at which size, and end")
    for name, what in _SIZES.items():
        parser.add_argument(f"--{name}", type=int, help=what)
    parser.add_argument("--out", help="a file to which the JSON lines are added")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in _ALL]
    if unknown:
        parser.error(f"there is no measurement {', '.join(unknown)}; choose from {', '.join(_ALL)}")
    if chosen.list:
        print("\n".join(f"{name}: {bench}" for name, bench in _ALL.items()))
        return
    report(_measured(chosen.names or list(_ALL), partial(_size, chosen)), chosen.out)


def _size(chosen: argparse.Namespace, usual: Size) -> Size:
    return replace(usual, **{name: given for name in _SIZES if (given := getattr(chosen, name)) is not None})


def _measured(names: list[str], sized: Callable[[Size], Size]) -> Iterator[Measurement]:
    spark = None
    if any(_ALL[name].needs_spark for name in names):
        spark = ss.session(
            **{
                "spark.sql.shuffle.partitions": "2",
                "spark.driver.memory": "8g",
                "spark.driver.maxResultSize": "4g",
                "spark.sql.streaming.minBatchesToRetain": "1000",
            }
        )
    try:
        for name in names:
            with tempfile.TemporaryDirectory(prefix="streamstate-bench-") as folder:
                yield from _ALL[name].run(spark, Path(folder, name), sized(_ALL[name].size))
    finally:
        if spark is not None:
            spark.stop()


main()
