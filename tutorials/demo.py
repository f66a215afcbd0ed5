"""The demo: a year of real flights through four stateful queries, and a look into their state.

``python -m streamstate.tutorials.demo`` streams every departure from New York in 2013, captures every epoch of every
query, prints what the state was at different times, and leaves the store behind to explore.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from streamstate.snapshots.errors import CaptureError, InvalidArgumentError, QueryError
from streamstate.tutorials.data import file_names, prepare
from streamstate.tutorials.folders import Folders
from streamstate.tutorials.looking import look
from streamstate.tutorials.progress import Bars, Step
from streamstate.tutorials.tours import DAYS_PER_FILE, TOURS, Tour
from streamstate.tutorials.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["main"]

# Two partitions suit two cores. For a run of minutes the quick compiler is worth more than the thorough one, and
# Hadoop's plain file system spares the dozens of processes (readlink, chmod) that its default starts for each epoch.
_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_RULE = "─" * 100
_POLL_SECONDS = 0.1
_INTERRUPTED = 130
_ATTEMPTS = 3


@dataclass
class Run:
    """One query of the demo and its capture."""

    tour: Tour
    start: Callable[[], StreamingQuery]
    """Starts the query, or goes on with it, from its checkpoint."""
    query: StreamingQuery
    capture: ss.Capture
    epochs: int
    """How many epochs its input makes; a last one without input may follow, which moves the watermark on."""
    before: int
    """How many were captured by an earlier run."""
    attempts: int = 1

    @property
    def done(self) -> int:
        """How many epochs are captured."""
        epoch = self.capture.status.epoch
        return self.before if epoch is None else epoch + 1

    def step(self) -> Step:
        """How far it is."""
        status = self.capture.status
        note = status.error or (f"{status.behind} behind" if status.behind > 1 else "")
        return Step(self.tour.name, self.done, max(self.epochs, self.done), note)

    def ended(self) -> bool:
        """Whether the query has ended for good; one whose Python worker was too slow to start is started again."""
        if self.query.isActive:
            return False
        if "failed to connect back" in self._failure() and self.attempts < _ATTEMPTS:
            self.attempts += 1
            self.query = self.start()
            return False
        return True

    def end(self) -> None:
        """Stop the query if it runs, and capture what it committed."""
        self.query.stop()
        self.capture.stop()

    def check(self, log: Path) -> None:
        """Raise what went wrong, if anything did."""
        if failure := self._failure():
            raise QueryError(f"The query {self.tour.name} failed: {failure}\nSpark's own messages: {log}")
        status = self.capture.status
        if status.error or status.behind:
            raise CaptureError(f"The capture of {self.tour.name} ended {status.behind} epochs behind: {status.error}")

    def _failure(self) -> str:
        """The first line of what the query failed of."""
        return next((line for line in str(self.query.exception() or "").splitlines() if line.strip()), "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    chosen = _parser().parse_args(arguments)
    try:
        _demo(chosen)
    except ss.StreamStateError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. What was committed is captured; run it again to go on.", file=sys.stderr)
        return _INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m streamstate.tutorials.demo",
        description="Stream all departures from New York in 2013 through four stateful queries, capture every epoch "
        "of their state, and show it: now, in the past, between two epochs, per key and in SQL.",
    )
    add = parser.add_argument
    add("--data", metavar="DIR", help="where the flights are written (default: data, beside the store)")
    add("--store", metavar="DIR", default="demo/store", help="where the snapshots go (default: %(default)s)")
    add("--epochs", metavar="N", type=int, help="only the first N epochs of each query's input")
    add("--fresh", action="store_true", help="delete what an earlier run captured and start over")
    add("--verify", action="store_true", help="compare every captured epoch with Spark's own state reader")
    return parser


def _demo(chosen: argparse.Namespace) -> None:
    started = time.monotonic()
    if chosen.epochs is not None and chosen.epochs < 1:
        raise InvalidArgumentError(
            f"--epochs {chosen.epochs} cannot be meant: give 1 or more, or leave it out for all."
        )
    store = Path(chosen.store).resolve()
    folders = Folders(Path(chosen.data or store.with_name("data")).resolve(), store)
    folders.claim(fresh=chosen.fresh)
    _prepare(folders)
    with _spark(folders) as spark:
        _stream(spark, folders, chosen.epochs)
        print(f"\nThat took {time.monotonic() - started:.0f} s in all.")
        _show(folders)
        if chosen.verify:
            _verify(spark, folders)
    _say_how_to_open(folders)


def _prepare(folders: Folders) -> None:
    if not file_names(folders.data):
        print(f"Writing the 336,776 departures of 2013 and the hourly weather to {_short(folders.data)} …", flush=True)
    prepare(folders.data, days_per_file=DAYS_PER_FILE)


@contextmanager
def _spark(folders: Folders) -> Iterator[SparkSession]:
    """Embedded Spark, ended afterwards; what it has to say itself goes to a file."""
    print("Starting Spark …", flush=True)
    with _stderr_to(folders.log):
        spark = ss.session(**_SETTINGS)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # PySpark's own would cancel jobs and fail queries
    try:
        yield spark
    finally:
        spark.stop()
        signal.signal(signal.SIGINT, before)


@contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Give the processes that are started meanwhile a file in the place of the terminal."""
    sys.stdout.flush()
    kept = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    with file.open("ab") as log:
        for descriptor, _ in kept:
            os.dup2(log.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, copy in kept:
            os.dup2(copy, descriptor)
            os.close(copy)


def _stream(spark: SparkSession, folders: Folders, epochs: int | None) -> None:
    """Run the queries to the end of their input, each followed by a capture."""
    print(f"Streaming; every epoch of every query is captured into {_short(folders.store)}\n", flush=True)
    runs: list[Run] = []
    try:
        # The last is the longest, and its Python workers start more readily while there is little else to do.
        for tour in reversed(TOURS):
            runs.insert(0, _start(spark, folders, tour, epochs))
        _watch(runs)
    finally:
        for run in runs:
            run.end()
    for run in runs:
        run.check(folders.log)
    if all(run.before == run.done for run in runs):
        print("All of it was captured before; nothing is new. (--fresh starts over.)")


def _start(spark: SparkSession, folders: Folders, tour: Tour, epochs: int | None) -> Run:
    """Start a query, or go on with it, and follow it."""
    files = len(file_names(folders.data))
    until = files if epochs is None else min(files, epochs * tour.files)
    frame = tour.query(spark, folders.data, files=tour.files, until=until)
    writer = frame.writeStream.queryName(tour.name).format("noop").outputMode(tour.mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", folders.checkpoint(tour.name))
    before = _captured(folders, tour)
    query = writer.start()
    capture = ss.follow(query, folders.store, tour.name, spark=spark)
    return Run(tour, writer.start, query, capture, epochs=-(-until // tour.files), before=before)


def _captured(folders: Folders, tour: Tour) -> int:
    if not folders.store.exists():
        return 0
    store = ss.open_store(folders.store)
    return len(store[tour.name].captured()) if tour.name in store else 0


def _watch(runs: Sequence[Run]) -> None:
    """Show progress until every query has ended and is captured."""
    bars = Bars()
    waiting = list(runs)
    while waiting:
        bars.show([run.step() for run in runs])
        time.sleep(_POLL_SECONDS)
        for run in [run for run in waiting if run.ended()]:
            run.end()
            waiting.remove(run)
    bars.show([run.step() for run in runs], last=True)


def _show(folders: Folders) -> None:
    store = ss.open_store(folders.store)
    for tour in TOURS:
        for at, paragraph in enumerate(look(store, tour)):
            print("\n" + (paragraph if at else f"{_RULE}\n{paragraph}"))


def _verify(spark: SparkSession, folders: Folders) -> None:
    print(f"\n{_RULE}\nComparing with Spark's own state reader, key by key …", flush=True)
    compared = 0
    store = ss.open_store(folders.store)
    for tour in TOURS:
        pairs = list(verify(spark, folders.checkpoint(tour.name), store[tour.name]))
        epochs, tables = len({epoch for epoch, _ in pairs}), len({table for _, table in pairs})
        print(f"  {tour.name}: {epochs} epochs × {tables} tables, all equal", flush=True)
        compared += len(pairs)
    print(f"{compared} tables × epochs compared, all equal.")


def _say_how_to_open(folders: Folders) -> None:
    store = _short(folders.store)
    print(f"\n{_RULE}\nThe store stays in {store}. To look around, without Spark and without Java:\n")
    print(f'  Python:    import streamstate as ss; ss.open_store("{store}")["delays"].live().table().head()')
    print(f"  notebook:  %load_ext streamstate, then %state delays --store {store}")


def _short(path: Path) -> str:
    """The path as seen from here, where it is below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
