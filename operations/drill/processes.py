"""The processes of a drill, seen from the process that runs it: started, waited for, and killed.

Spark's processes form a tree: Python, its Java, executors below that, and below each the daemon of the Python workers,
which leads a process group of its own. No single signal reaches them all, but they share the session (``setsid``) of
the process that they descend from, even after it has ended.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from streamstate import errors
from streamstate.errors import QueryError, WaitTimeoutError
from streamstate.operations.drill.scratch import Scratch
from streamstate.operations.drill.task import Event, Task, events_of
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

_POLL_SECONDS = 0.002  # a small epoch takes some tens of milliseconds
_KILL_SECONDS = 30.0
_SHOWN_LINES = 5
DRILLED = "streamstate.operations.drill.drilled_process"
"""The module that a drill's processes run."""
_EXECUTOR = "CoarseGrainedExecutorBackend"
_VERSION = re.compile(r"\d+")


class Deadline:
    """The time limit of a drill, which begins now."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def check(self, during: str) -> None:
        """Raise WaitTimeoutError if the time is over."""
        if time.monotonic() > self._end:
            raise WaitTimeoutError(
                f"The drill was not done within {self._seconds:g} seconds, while {during}.\n"
                "Allow more time with timeout=SECONDS, or give it less to do: fewer files, or epochs=N."
            )


class DrillProcess:
    """A process that runs a task, in a session of the operating system; leaving the ``with`` block kills all of it."""

    def __init__(
        self, place: Scratch, name: str, task: Task, deadline: Deadline, during: str, *, module: str = DRILLED
    ) -> None:
        self.during = during
        """What is going on, for error messages."""
        self._deadline = deadline
        self._events = place.folder / f"{name}.events"
        self._log = place.folder / f"{name}.log"
        file = place.folder / f"{name}.task"
        file.write_text(json.dumps(asdict(task)), encoding="utf-8")
        command = [sys.executable, "-m", module, str(file), str(self._events)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # breaks when this process ends, however it ends
                stdout=log,
                stderr=subprocess.STDOUT,
                env=place.environment(),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process id, and that of its session."""
        return self._process.pid

    def check_time(self) -> None:
        """Raise WaitTimeoutError if the drill's time is over."""
        self._deadline.check(self.during)

    def kill(self) -> None:
        """Kill it, and everything that it started."""
        kill_session(self._process.pid)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def executors(self) -> list[psutil.Process]:
        """Return the executors of its Spark, in the order of their ids."""
        found = []
        for process in _processes_of(self._process.pid):
            with suppress(psutil.Error):
                if _EXECUTOR in " ".join(process.cmdline()):
                    found.append(process)
        return sorted(found, key=lambda process: process.pid)

    def seen(self, what: str) -> Event | None:
        """Return the first event of a kind, if it has been reported."""
        return next((event for event in events_of(self._events) if event.what == what), None)

    def epoch(self, epoch: int) -> Event | None:
        """Return the event of an epoch, if it has been reported."""
        epochs = (event for event in events_of(self._events) if event.what == "epoch")
        return next((event for event in epochs if event.facts["epoch"] == epoch), None)

    def wait(self, what: str) -> Event:
        """Wait for an event."""
        self.wait_until(lambda: self.seen(what) is not None)
        event = self.seen(what)
        assert event is not None
        return event

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; if the process fails first, raise its StreamStateError, or else a QueryError."""
        while not condition():
            ended = self._process.poll() is not None  # before looking at its last events
            if condition():
                return
            self._raise_failure()
            if ended:
                raise QueryError(
                    f"The process ended unexpectedly while {self.during}.\n"
                    f"Its last output: {_shortened(self._log.read_text(errors='replace'), last=True)}"
                )
            self._deadline.check(self.during)
            time.sleep(_POLL_SECONDS)

    def _raise_failure(self) -> None:
        failed = self.seen("failed")
        if failed is None:
            return
        kind, message = getattr(errors, failed.facts["kind"], None), failed.facts["message"]
        if isinstance(kind, type) and issubclass(kind, errors.StreamStateError):
            raise kind(message)
        raise QueryError(f"The query failed.\n{failed.facts['kind']}: {_shortened(message)}")


def _shortened(text: str, *, last: bool = False) -> str:
    """Return the first, or last, lines of a text that are not blank."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-_SHOWN_LINES:] if last else lines[:_SHOWN_LINES]) or "nothing"


def _processes_of(session: int) -> list[psutil.Process]:
    """Return the processes of a session that still run."""
    found = []
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):  # it has ended, or belongs to another user
            if os.getsid(pid) == session:
                process = psutil.Process(pid)
                if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                    found.append(process)
    return found


def kill_session(session: int) -> None:
    """Kill a session's processes at once (SIGKILL), like a power cut, and wait until none is left."""
    until = time.monotonic() + _KILL_SECONDS
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)  # most of them are in the leader's group and end at the same moment
    while left := _processes_of(session):
        if time.monotonic() > until:
            listed = ", ".join(str(process.pid) for process in left)
            raise QueryError(f"These processes could not be killed: {listed}.\nKill them with kill -9.")
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class Killed:
    """The state of the query at the kill."""

    at: float
    """The time of the kill, in seconds since 1970."""
    committed: int
    """The newest committed epoch."""
    planned: int
    """The newest epoch whose input was recorded; the same as ``committed`` if none was in progress."""
    half_written: int
    """How many state files the epoch in progress had written."""


def kill_query(process: DrillProcess, checkpoint: Path, after: int) -> Killed:
    """Kill all processes of a query once an epoch is committed and the next has begun.

    Spark records the input of an epoch after it has committed the previous one.
    """
    process.during = f"waiting for epoch {after + 1} to begin"
    process.wait_until(lambda: _there(process, checkpoint, f"offsets/{after + 1}"))
    at = time.time()
    process.kill()
    return killed_now(checkpoint, at)


def kill_executor(process: DrillProcess, checkpoint: Path, after: int) -> Killed:
    """Kill one executor of a query at the same moment; the query continues."""
    process.during = f"waiting for epoch {after} to be committed"
    process.wait_until(lambda: _there(process, checkpoint, f"commits/{after}"))
    # Found in advance: the search takes longer than the beginning of an epoch.
    executors = process.executors()
    if not executors:
        raise QueryError("Spark has no separate executors here, so none can be killed.\nUse kill='query'.")
    process.during = f"waiting for epoch {after + 1} to begin"
    process.wait_until(lambda: _there(process, checkpoint, f"offsets/{after + 1}"))
    at = time.time()
    executors[0].kill()
    return killed_now(checkpoint, at)


def _there(process: DrillProcess, checkpoint: Path, name: str) -> bool:
    """Check that a file of the checkpoint exists, or the query has ended."""
    return (checkpoint / name).exists() or process.seen("ended") is not None


def killed_now(checkpoint: Path, at: float) -> Killed:
    """Return the state of a query that was killed at that time."""
    committed = max(CheckpointFiles(checkpoint).committed(), default=-1)
    planned = max((int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdigit()), default=-1)
    in_progress = planned > committed
    return Killed(at, committed, max(planned, committed), _state_files(checkpoint, planned) if in_progress else 0)


def _state_files(checkpoint: Path, epoch: int) -> int:
    """Count the state files of an epoch: those of the next version, such as 4.delta or 4_<id>.changelog for epoch 3."""
    version = str(epoch + 1)
    return sum(
        1
        for file in (checkpoint / "state").rglob("[0-9]*")
        if (number := _VERSION.match(file.name))
        and number[0] == version
        and "_metadata" not in file.parts
        and file.suffix
    )
