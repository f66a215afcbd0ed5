"""The demo: real flights through four stateful queries, and a look into their state.

``python -m streamstate.tutorials.demo`` streams the departures from New York from January to April 2013, or of the
whole year with ``--full``. It captures every epoch of every query, prints the state at different times, and leaves the
store behind for you to explore.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamstate as ss
from streamstate.errors import CaptureError, InvalidArgumentError
from streamstate.tutorials.data import file_names, prepare
from streamstate.tutorials.demo_queries import Folders, Length, Run, run_queries, short
from streamstate.tutorials.tours import DAYS_PER_FILE, TOURS, look

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.state_inspect import History, StateTable

# Two partitions suit two cores. In a run of minutes the quick compiler pays off more than the thorough one, and the
# plain file system of Hadoop avoids the dozens of processes (readlink, chmod) that its default starts for each epoch.
_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_RULE = "─" * 100
_INTERRUPTED = 130
_JOIN_SIDES = {"left": "left-keyWithIndexToValue", "right": "right-keyWithIndexToValue"}

Times = dict[str, float]
"""How many seconds each part took."""

Rows = dict[tuple[Any, ...], tuple[Any, ...]]
"""A state table: values by key."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    chosen = _parser().parse_args(arguments)
    try:
        _demo(chosen)
    except ss.StreamStateError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. All committed epochs are captured; run it again to go on.", file=sys.stderr)
        return _INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m streamstate.tutorials.demo",
        description="Stream departures from New York in 2013 through four stateful queries, capture every epoch of "
        "their state, and show it: now, in the past, between two epochs, per key and in SQL. A second run continues "
        "where the first one ended.",
    )
    add = parser.add_argument
    add("--data", metavar="DIR", help="where to write the flights (default: data, beside the store)")
    add("--store", metavar="DIR", default="demo/store", help="where to write the snapshots (default: %(default)s)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--full", action="store_true", help="the whole year, instead of 1 January to 22 April")
    length.add_argument("--epochs", metavar="N", type=int, help="only the first N epochs of each query's input")
    add("--fresh", action="store_true", help="delete the store and checkpoints of an earlier run, and start over")
    add("--verify", action="store_true", help="compare every captured epoch with Spark's own state reader")
    return parser


def _demo(chosen: argparse.Namespace) -> None:
    if chosen.epochs is not None and chosen.epochs < 1:
        raise InvalidArgumentError(
            f"Invalid --epochs {chosen.epochs}: expected 1 or more.\nLeave it out for January to April."
        )
    store = Path(chosen.store).resolve()
    folders = Folders(Path(chosen.data or store.with_name("data")).resolve(), store)
    folders.claim(fresh=chosen.fresh)
    times: Times = {}
    with _timed(times, "data"):
        _prepare(folders)
    with _spark(folders, times) as spark:
        with _timed(times, "streaming and capture"):
            runs = run_queries(spark, folders, Length(chosen.epochs, chosen.full))
        with _timed(times, "looking"):
            _show(folders)
        if chosen.verify:
            with _timed(times, "verifying"):
                _verify(spark, folders)
    _print_times(times, runs)
    _print_how_to_open(folders, chosen)


@contextmanager
def _timed(times: Times, part: str) -> Iterator[None]:
    """Measure a part of the demo."""
    began = time.monotonic()
    yield
    times[part] = time.monotonic() - began


def _prepare(folders: Folders) -> None:
    if not file_names(folders.data):
        print(f"Writing the 336,776 departures of 2013 and the hourly weather to {short(folders.data)} …", flush=True)
    prepare(folders.data, days_per_file=DAYS_PER_FILE)


@contextmanager
def _spark(folders: Folders, times: Times) -> Iterator[SparkSession]:
    """Embedded Spark, stopped at the end; its own output goes to a file."""
    print("Starting Spark …", flush=True)
    with _timed(times, "starting Spark"):
        spark = ss.session(**_SETTINGS, **{"spark.streamstate.log": str(folders.log)})
    # PySpark's own handler would cancel jobs and make queries fail.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield spark
    finally:
        spark.stop()
        signal.signal(signal.SIGINT, before)


def _show(folders: Folders) -> None:
    store = ss.open_store(folders.store)
    for tour in TOURS:
        for number, paragraph in enumerate(look(store, tour)):
            print("\n" + (paragraph if number else f"{_RULE}\n{paragraph}"))


def _print_times(times: Times, runs: Sequence[Run]) -> None:
    parts = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in times.items())
    queries = ", ".join(f"{run.tour.name} {run.seconds:.0f} s" for run in runs)
    print(f"\n{_RULE}\nThat took {sum(times.values()):.0f} s in all: {parts}.")
    print(f"The queries ran side by side: {queries}.")


def _print_how_to_open(folders: Folders, chosen: argparse.Namespace) -> None:
    store = short(folders.store)
    print(f"\n{_RULE}\nThe store stays in {store}. To look around, without Spark and without Java:\n")
    print(f'  Python:    import streamstate as ss; ss.open_store("{store}")["delays"].live().table().head()')
    print(f"  notebook:  %load_ext streamstate, then %state delays --store {store}")
    if not chosen.full:
        print("\nThe rest of the year: make demo DEMOFLAGS=--full, which continues from here.")


def _verify(spark: SparkSession, folders: Folders) -> None:
    print(f"\n{_RULE}\nComparing with Spark's own state reader, key by key …", flush=True)
    compared = 0
    store = ss.open_store(folders.store)
    for tour in TOURS:
        pairs = list(_equal_tables(spark, str(folders.checkpoints / tour.name), store[tour.name]))
        epochs, tables = len({epoch for epoch, _ in pairs}), len({table for _, table in pairs})
        print(f"  {tour.name}: {epochs} epochs × {tables} tables, all equal", flush=True)
        compared += len(pairs)
    print(f"{compared} tables × epochs compared, all equal.")


def _equal_tables(spark: SparkSession, checkpoint: str, history: History) -> Iterator[tuple[int, str]]:
    """Compare every state table at every captured epoch, up to the first that differs; gives the epoch and table."""
    for epoch in history.captured():
        snapshot = history.at(epoch)
        for name in snapshot.tables():
            table = snapshot.table(name)
            found = _by_key(map(dict.values, table.to_arrow().to_pylist()), len(table.key_columns))
            expected = _read_with_spark(spark, checkpoint, table)
            if found != expected:
                raise CaptureError(_difference(f"{history.name}.{name} at epoch {epoch}", found, expected))
            yield epoch, name


def _read_with_spark(spark: SparkSession, checkpoint: str, table: StateTable) -> Rows:
    """The table as Spark reads it from the checkpoint, without any of the code that captured it."""
    operator, _, part = table.name.removeprefix("op").partition("_")
    options = {"operatorId": operator, "batchId": str(table.epoch), **_part_options(part)}
    rows = spark.read.format("statestore").options(**options).load(checkpoint).collect()
    if rows and "list_element" in rows[0]:
        position: Counter[Any] = Counter()
        flat = []
        for row in rows:
            flat.append([*row["key"], position[row["key"]], *row["list_element"]])
            position[row["key"]] += 1
        return _by_key(flat, len(table.key_columns))
    # A row's last column is the partition.
    flat = [[value for part in row[:-1] for value in (part if isinstance(part, tuple) else [part])] for row in rows]
    return _by_key(flat, len(table.key_columns))


def _part_options(part: str) -> dict[str, str]:
    """The options that select a part of an operator's state by its name in the store."""
    if part == "timers":
        return {"readRegisteredTimers": "true"}
    if part in _JOIN_SIDES:
        return {"storeName": _JOIN_SIDES[part]}
    return {"stateVarName": part} if part else {}


def _by_key(rows: Any, keys: int) -> Rows:
    plain = [tuple(map(_plain, row)) for row in rows]
    found = {row[:keys]: row[keys:] for row in plain}
    if len(found) != len(plain):
        raise CaptureError(f"{len(plain)} rows of state have only {len(found)} keys: at least one key is duplicated.")
    return found


def _plain(value: Any) -> Any:
    """Structs as tuples and timestamps in UTC, on both sides."""
    if isinstance(value, dict):
        return tuple(map(_plain, value.values()))
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _difference(table: str, found: Rows, expected: Rows) -> str:
    differing = [key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]
    key = differing[0]
    return (
        f"{table} differs from Spark's own state in {len(differing):,} of {len(expected):,} keys.\n"
        f"The first, {key}: captured {found.get(key)}, in Spark's state {expected.get(key)}."
    )


if __name__ == "__main__":
    sys.exit(main())
