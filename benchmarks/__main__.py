"""``python -m benchmarks [NAME …] [--small] [--list] [--keys N] [--changes N] [--epochs N] … [--out FILE]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import streamstate as ss
from benchmarks.alone import alone
from benchmarks.auditing import auditing
from benchmarks.beside import back_to_back, paced
from benchmarks.bucket import bucket, bucket_requests
from benchmarks.fleet import fleet
from benchmarks.following import follower_memory, freshness
from benchmarks.forecasting import forecasting
from benchmarks.forking import forking
from benchmarks.growth import growth
from benchmarks.harness import Measurement, Size, report
from benchmarks.inspect import reading
from benchmarks.linear_road.measure import linear_road, linear_road_disturbed
from benchmarks.long_history import long_history
from benchmarks.looking import looking
from benchmarks.nexmark.measuring import nexmark, nexmark_kafka
from benchmarks.overload import overload
from benchmarks.policies import policies
from benchmarks.recovering import recovering
from benchmarks.rescaling import rescaling
from benchmarks.sharing import sharing
from benchmarks.shedding import shedding
from benchmarks.standing_by import standby
from benchmarks.stepping_forks import stepping_forks
from benchmarks.storage import storage
from benchmarks.topic import topic
from benchmarks.writing_state import writing_state


@dataclass(frozen=True)
class _Benchmark:
    run: Callable[[Any, Path, Size], Iterator[Measurement]]
    size: Size
    """The size, unless the command line sets another."""
    needs_spark: bool = True
    small: Size | None = None
    """The size at which it is run to see that it works; None: it is not."""

    def __str__(self) -> str:
        """Return the first line of its description, and its size."""
        return f"{(self.run.__doc__ or '').splitlines()[0]} ({self.size})"


_SIZES = {
    "keys": "keys in the state; fleet: queries; topic: records; linear_road: expressways; nexmark: runs of each side",
    "changes": "keys changed an epoch; topic: records; nexmark: events; overload: rows a second; linear_road: speed",
    "epochs": "epochs measured; policies: seeds; overload: seconds; linear_road: minutes; standby: kills",
}
_USUAL = Size(1_000_000, 50_000, 9)
_ALL = {
    "alone": _Benchmark(alone, _USUAL),
    "back_to_back": _Benchmark(back_to_back, Size(1_000_000, 50_000, 15)),
    "paced": _Benchmark(paced, _USUAL),
    "freshness": _Benchmark(freshness, Size(1_000_000, 50_000, 60)),
    "follower_memory": _Benchmark(follower_memory, Size(10_000_000, 1_000, 40)),
    "fleet": _Benchmark(fleet, Size(500, 0, 1), needs_spark=False),
    "growth": _Benchmark(growth, Size(10_000_000, 10_000, 9)),
    "storage": _Benchmark(storage, Size(100_000, 5_000, 200)),
    "reading": _Benchmark(reading, Size(1_000_000, 50_000, 100)),
    "long_history": _Benchmark(long_history, Size(100_000, 20_000, 10_000), needs_spark=False),
    "writing_state": _Benchmark(writing_state, Size(1_000_000, 1, 1)),
    "fork": _Benchmark(forking, Size(1_000_000, 50_000, 60)),
    "step": _Benchmark(stepping_forks, Size(10_000, 1_000, 50)),
    "audit": _Benchmark(auditing, Size(0, 0, 50)),
    "policies": _Benchmark(policies, Size(0, 0, 200), needs_spark=False),
    "overload": _Benchmark(overload, Size(0, 40_000, 300)),
    "forecast": _Benchmark(forecasting, Size(0, 0, 0), needs_spark=False),
    "shedding": _Benchmark(shedding, Size(0, 2_000_000, 30)),
    "sharing": _Benchmark(sharing, _USUAL, needs_spark=False),
    "rescale": _Benchmark(rescaling, Size(1_000_000, 10_000, 3)),
    "recover": _Benchmark(recovering, Size(1_000_000, 50_000, 4), needs_spark=False),
    "standby": _Benchmark(standby, Size(300_000, 20_000, 3), needs_spark=False),
    "bucket": _Benchmark(bucket, Size(1_000_000, 50_000, 9)),
    "bucket_requests": _Benchmark(bucket_requests, Size(5, 5, 3), needs_spark=False),
    "linear_road": _Benchmark(linear_road, Size(20, 1, 6), needs_spark=False, small=Size(1, 4, 1)),
    "linear_road_disturbed": _Benchmark(linear_road_disturbed, Size(10, 1, 6), needs_spark=False),
    "topic": _Benchmark(topic, Size(10_000_000, 500_000, 5), needs_spark=False),
    "nexmark": _Benchmark(nexmark, Size(3, 10_000, 60), small=Size(1, 200, 3)),
    "nexmark_kafka": _Benchmark(nexmark_kafka, Size(3, 10_000, 60), needs_spark=False),
    "looking": _Benchmark(looking, Size(1_000_000, 50_000, 100), needs_spark=False),
}


def main() -> None:
    """Run the chosen measurements and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(_ALL)} (all by default)")
    parser.add_argument(
        "--small", action="store_true", help="run those that have one at a small size; wrong answers fail"
    )
    parser.add_argument("--list", action="store_true", help="list what each measures, and its size")
    for name, meaning in _SIZES.items():
        parser.add_argument(f"--{name}", type=int, help=meaning)
    parser.add_argument("--out", help="a file to append the JSON lines to")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in _ALL]
    if unknown:
        parser.error(f"unknown measurement {', '.join(unknown)}; choose from {', '.join(_ALL)}")
    if chosen.list:
        print("\n".join(f"{name}: {bench}" for name, bench in _ALL.items()))
        return
    names = chosen.names or [name for name, bench in _ALL.items() if bench.small or not chosen.small]
    taken = report(_measured(names, partial(_size, chosen)), chosen.out)
    if chosen.small and any(measurement.is_wrong for measurement in taken):
        sys.exit("There are wrong answers.")


def _size(chosen: argparse.Namespace, bench: _Benchmark) -> Size:
    usual = (bench.small if chosen.small else None) or bench.size
    return replace(usual, **{name: given for name in _SIZES if (given := getattr(chosen, name)) is not None})


def _measured(names: list[str], sized: Callable[[_Benchmark], Size]) -> Iterator[Measurement]:
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
            with tempfile.TemporaryDirectory(prefix="streamstate-bench-", ignore_cleanup_errors=True) as folder:
                yield from _ALL[name].run(spark, Path(folder, name), sized(_ALL[name]))
    finally:
        if spark is not None:
            spark.stop()


if __name__ == "__main__":
    main()
