"""``python -m benchmarks [NAME …] [--keys N] [--changes N] [--epochs N] [--out FILE]``."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import streamstate as ss
from benchmarks.capture import back_to_back, capture, freshness, paced
from benchmarks.gets import gets
from benchmarks.growth import growth
from benchmarks.harness import Measurement, report
from benchmarks.hostile_viewer import hostile_viewer
from benchmarks.inspect import reading
from benchmarks.many_epochs import many_epochs
from benchmarks.memory import memory
from benchmarks.size import Size
from benchmarks.spilling import spilling
from benchmarks.storage import storage
from benchmarks.without_spark import follower_memory, without_spark


@dataclass(frozen=True)
class _Benchmark:
    run: Callable[[Any, Path, Size], Iterator[Measurement]]
    size: Size
    """What it is measured at unless the command line says otherwise."""
    needs_spark: bool = True


_USUAL = Size(1_000_000, 50_000, 9)
_ALL = {
    "capture": _Benchmark(capture, _USUAL),
    "paced": _Benchmark(paced, _USUAL),
    "back_to_back": _Benchmark(back_to_back, _USUAL),
    "freshness": _Benchmark(freshness, _USUAL),
    "growth": _Benchmark(growth, Size(10_000_000, 10_000, 9)),
    "without_spark": _Benchmark(without_spark, _USUAL),
    "follower_memory": _Benchmark(follower_memory, Size(10_000_000, 1_000, 30)),
    "memory": _Benchmark(memory, Size(10_000_000, 1_000_000, 5)),
    "storage": _Benchmark(storage, Size(100_000, 5_000, 200)),
    "many_epochs": _Benchmark(many_epochs, _USUAL, needs_spark=False),
    "spilling": _Benchmark(spilling, Size(10_000_000, 500_000, 20)),
    "gets": _Benchmark(gets, Size(100_000, 5_000, 20)),
    "reading": _Benchmark(reading, Size(1_000_000, 50_000, 100)),
    "hostile_viewer": _Benchmark(hostile_viewer, Size(100_000, 1_000, 20), needs_spark=False),
}


def main() -> None:
    """Run the chosen measurements and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(_ALL)} (all by default)")
    parser.add_argument("--keys", type=int, help="keys in the state")
    parser.add_argument("--changes", type=int, help="keys changed an epoch")
    parser.add_argument("--epochs", type=int, help="epochs measured")
    parser.add_argument("--out", help="a file to which the JSON lines are added")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in _ALL]
    if unknown:
        parser.error(f"there is no measurement {', '.join(unknown)}; choose from {', '.join(_ALL)}")
    report(_measured(chosen.names or list(_ALL), partial(_size, chosen)), chosen.out)


def _size(chosen: argparse.Namespace, usual: Size) -> Size:
    return Size(chosen.keys or usual.keys, chosen.changes or usual.changes, chosen.epochs or usual.epochs)


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
    for name in names:
        with tempfile.TemporaryDirectory(prefix="streamstate-bench-") as folder:
            yield from _ALL[name].run(spark, Path(folder, name), sized(_ALL[name].size))
    if spark is not None:
        spark.stop()


main()
