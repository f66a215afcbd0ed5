"""The demo's queries: where their files are, how they are run and captured, and the bars that show their progress."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tqdm import tqdm

import streamstate as ss
from streamstate.errors import CaptureError, InvalidArgumentError, QueryError
from streamstate.launch.running import ACTIVE
from streamstate.launch.starting import checkpoint_beside
from streamstate.reports import Running
from streamstate.tutorials.data import file_names
from streamstate.tutorials.tours import SHORT_FILES, TOURS, Tour, glance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RECORD = "demo.json"
_POLL_SECONDS = 0.1
_LINE_SECONDS = 15.0
_RESTART = ss.BackOff(initial_wait=0)  # on a busy machine, a Python worker can be too slow to start
_EPOCHS_TO_LOOK_AT = 2
_BAR = "  {desc}  {bar:24}  {n:>3} of {total} epochs  {elapsed}{postfix}"


@dataclass(frozen=True)
class Folders:
    """The demo's directories: the input, the store, and the checkpoints beside the store."""

    data: Path
    store: Path

    @property
    def checkpoints(self) -> Path:
        """The directory of the queries' checkpoints, beside the store as with the magics."""
        return Path(checkpoint_beside(str(self.store), ""))

    @property
    def log(self) -> Path:
        """The file with Spark's own output."""
        return self.checkpoints / "spark.log"

    def claim(self, *, fresh: bool) -> None:
        """Create the directories, or check that the demo created them; a fresh demo deletes those of an earlier run."""
        record = self.checkpoints / _RECORD
        created_from = json.loads(record.read_text(encoding="utf-8"))["data"] if record.is_file() else None
        if created_from is None:
            self._check_unused()
        elif fresh:
            shutil.rmtree(self.store, ignore_errors=True)
            shutil.rmtree(self.checkpoints)
        elif created_from != str(self.data):
            raise InvalidArgumentError(
                f"The demo's queries in {self.checkpoints} read {created_from}, not {self.data}.\n"
                f"Add --data {created_from} to continue them, or --fresh to start over."
            )
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({"made by": "streamstate.tutorials.demo", "data": str(self.data)}) + "\n")

    def _check_unused(self) -> None:
        for folder in (self.store, self.checkpoints):
            if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
                raise InvalidArgumentError(
                    f"{folder} already exists and was not created by this demo, so nothing was changed.\n"
                    "Choose another directory for the demo's store, such as --store demo-2/store."
                )


@dataclass(frozen=True)
class Length:
    """How much of the year is streamed."""

    epochs: int | None = None
    """The number of epochs of each query; None: all of the short demo, or of the year."""
    full: bool = False

    def files(self, tour: Tour, available: int) -> int:
        """How many of the available files a query reads."""
        if self.epochs is not None:
            return min(available, self.epochs * tour.files)
        return available if self.full else min(available, SHORT_FILES)


@dataclass(frozen=True)
class Step:
    """The progress of a query."""

    name: str
    done: int
    total: int
    note: str = ""


class Bars:
    """A progress bar for each query in a terminal; elsewhere a line of text every 15 seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._terminal = self._stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        self._bars: dict[str, Any] = {}
        self._started = self._shown = time.monotonic()

    def show(self, steps: Sequence[Step], *, last: bool = False) -> None:
        """Show the steps; after the last time the bars stay as they are."""
        if self._terminal:
            for step in steps:
                self._draw(step, max(len(step.name) for step in steps))
        elif last or time.monotonic() - self._shown >= _LINE_SECONDS:
            self._shown = time.monotonic()
            elapsed = tqdm.format_interval(self._shown - self._started)
            self._write(f"{elapsed}  {', '.join(f'{step.name} {step.done}/{step.total}' for step in steps)}")
        if last:
            self.close()

    def say(self, text: str) -> None:
        """Print text above the bars."""
        if self._terminal:
            tqdm.write(text, file=self._stream)
        else:
            self._write(text)

    def close(self) -> None:
        """Leave the bars as they are."""
        while self._bars:
            self._bars.pop(next(iter(self._bars))).close()

    def _draw(self, step: Step, width: int) -> None:
        name = f"{step.name:<{width}}"
        bar = self._bars.get(step.name)
        if bar is None:
            options: dict[str, Any] = {"file": self._stream, "bar_format": _BAR, "ascii": "░█"}
            bar = tqdm(desc=name, initial=step.done, total=step.total, position=len(self._bars), **options)
            self._bars[step.name] = bar
        bar.n, bar.total = step.done, step.total
        bar.set_description_str(name, refresh=False)
        bar.set_postfix_str(step.note)

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


@dataclass
class Run:
    """A query of the demo and its capture."""

    tour: Tour
    running: Running
    epochs: int
    """How many epochs its input makes; one more, without input, may follow to advance the watermark."""
    before: int
    """How many epochs an earlier run captured."""
    started: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    """How long it took, once it has ended."""

    @property
    def done(self) -> int:
        """How many epochs are captured."""
        epoch = self.running.capture.status.epoch
        return self.before if epoch is None else epoch + 1

    def step(self) -> Step:
        """The progress of the query."""
        status = self.running.status()
        note = status.error or (f"{status.behind} behind" if status.behind > 1 else "")
        return Step(self.tour.name, self.done, max(self.epochs, self.done), note)

    def end(self) -> None:
        """Stop the query if it is running, and capture what it committed."""
        self.running.stop()
        if self.seconds is None:
            self.seconds = time.monotonic() - self.started

    def check(self, log: Path) -> None:
        """Raise the error of the query or of its capture, if there is one."""
        status = self.running.status()
        if status.state == "failed":
            raise QueryError(f"The query {self.tour.name} failed: {status.error}\nSpark's own output is in {log}.")
        if status.error or status.behind:
            raise CaptureError(f"The capture of {self.tour.name} ended {status.behind} epochs behind: {status.error}")


def run_queries(spark: SparkSession, folders: Folders, length: Length) -> list[Run]:
    """Run the queries to the end of their input, each followed by a capture."""
    print(f"Streaming; every epoch of every query is captured into {short(folders.store)}\n", flush=True)
    bars = Bars()
    runs: list[Run] = []
    interrupt: KeyboardInterrupt | None = None
    first, *others = TOURS
    try:
        # The first query has all cores until there is something to look at.
        with _uninterrupted():
            runs.append(_start(spark, folders, first, length))
        _watch(runs, bars, enough=lambda: runs[0].done >= _EPOCHS_TO_LOOK_AT)
        if runs[0].before < runs[0].done >= _EPOCHS_TO_LOOK_AT:
            bars.say("\n\n".join([*glance(ss.open_store(folders.store), first), ""]))
        # The last of the others takes longest.
        for tour in reversed(others):
            with _uninterrupted():
                runs.insert(1, _start(spark, folders, tour, length))
        _watch(runs, bars)
    except KeyboardInterrupt as error:
        interrupt = error
    finally:
        bars.close()
        for run in runs:
            run.end()
    for run in runs:
        run.check(folders.log)
    if interrupt is not None:
        raise interrupt
    if all(run.before == run.done for run in runs):
        print("Everything was captured before; nothing is new. (--fresh starts over.)")
    return runs


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C while a query starts: it is not yet among those that are stopped and captured."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _start(spark: SparkSession, folders: Folders, tour: Tour, length: Length) -> Run:
    """Start a query from its checkpoint, and capture it."""
    until = length.files(tour, len(file_names(folders.data)))
    frame = tour.query(spark, folders.data, files=tour.files, until=until)
    before = _captured(folders, tour)
    running = ss.start(frame, tour.name, folders.store, mode=tour.mode, trigger="available-now", restart=_RESTART)
    return Run(tour, running, epochs=-(-until // tour.files), before=before)


def _captured(folders: Folders, tour: Tour) -> int:
    if not folders.store.exists():
        return 0
    store = ss.open_store(folders.store)
    return len(store[tour.name].captured()) if tour.name in store else 0


def _watch(runs: Sequence[Run], bars: Bars, *, enough: Callable[[], bool] = lambda: False) -> None:
    """Show progress until every query has ended and is captured, or there is enough."""
    while (waiting := [run for run in runs if run.seconds is None]) and not enough():
        bars.show([run.step() for run in runs])
        time.sleep(_POLL_SECONDS)
        for run in waiting:
            if run.running.state not in ACTIVE:
                run.end()
    bars.show([run.step() for run in runs], last=not waiting)


def short(path: Path) -> str:
    """The path, relative to the working directory if it is below that."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
