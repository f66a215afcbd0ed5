"""``python -m benchmarks [NAME …] [--keys N] [--changes N] [--epochs N] [--out FILE]``."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import streamstate as ss
from benchmarks.harness import Measurement, report
from benchmarks.measures import ALL, Size


def main() -> None:
    """Run the chosen measurements and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(ALL)} (all by default)")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys in the state (default: %(default)s)")
    parser.add_argument("--changes", type=int, default=50_000, help="keys changed an epoch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=9, help="epochs measured (default: %(default)s)")
    parser.add_argument("--out", help="a file to which the JSON lines are added")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in ALL]
    if unknown:
        parser.error(f"there is no measurement {', '.join(unknown)}; choose from {', '.join(ALL)}")
    report(_measured(chosen.names or list(ALL), Size(chosen.keys, chosen.changes, chosen.epochs)), chosen.out)


def _measured(names: list[str], size: Size) -> Iterator[Measurement]:
    spark = ss.session(**{"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "6g"})
    with tempfile.TemporaryDirectory(prefix="streamstate-bench-") as folder:
        for name in names:
            yield from ALL[name](spark, Path(folder), size)
    spark.stop()


main()
