"""The processes of a drill, as the one that started them sees them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from streamstate.recovery.drill.processes import Process, kill_session, of_session
from streamstate.recovery.drill.scratch import Scratch
from streamstate.recovery.drill.task import Event, Task, events_of
from streamstate.snapshots import errors
from streamstate.snapshots.errors import QueryError, WaitTimeoutError

__all__ = ["Child", "Deadline"]

_POLL_SECONDS = 0.002  # a small epoch is over after some tens of milliseconds
_LAST_LINES = 5


@dataclass(frozen=True)
class Deadline:
    """When a drill has to be done."""

    seconds: float
    """How long it was given."""
    at: float
    """The monotonic clock's reading at its end."""

    @classmethod
    def after(cls, seconds: float) -> Self:
        """From now."""
        return cls(seconds, time.monotonic() + seconds)

    def check(self, during: str) -> None:
        """Raise where it is over.

        Raises:
            WaitTimeoutError: it is.
        """
        if time.monotonic() > self.at:
            raise WaitTimeoutError(
                f"The drill was not done within {self.seconds:g} seconds, while {during}.\n"
                "Give it more time with timeout=SECONDS, or less to do: fewer files, or epochs=N."
            )


class Child:
    """A process that runs a task, with all that it starts; used with ``with``, at whose end none of it is left.

    Args:
        place: the drill's folder.
        name: of the process; its files are called so.
        task: what it is to do.
    """

    def __init__(self, place: Scratch, name: str, task: Task) -> None:
        self._events = place.folder / f"{name}.events"
        self._log = place.folder / f"{name}.log"
        file = place.folder / f"{name}.task"
        task.write(file)
        command = [sys.executable, "-m", "streamstate.recovery.drill.child", str(file), str(self._events)]
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

    def kill(self) -> None:
        """End it and all that it started, at once."""
        kill_session(self._process.pid)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def processes(self) -> list[Process]:
        """It and all that it started."""
        return of_session(self._process.pid)

    def seen(self, what: str) -> Event | None:
        """The first such event so far."""
        return next((event for event in events_of(self._events) if event.what == what), None)

    def epoch(self, epoch: int) -> Event | None:
        """What it told of an epoch."""
        told = (event for event in events_of(self._events) if event.what == "epoch")
        return next((event for event in told if event.facts["epoch"] == epoch), None)

    def wait(self, what: str, deadline: Deadline, during: str) -> Event:
        """The event, once it has been told.

        Args:
            what: the event.
            deadline: until when.
            during: what is being done meanwhile, for the message of an error.

        Raises:
            QueryError: the process failed, or ended, before; other errors of ours as it raised them.
            WaitTimeoutError: it takes too long.
        """
        self.wait_until(lambda: self.seen(what) is not None, deadline, during)
        found = self.seen(what)
        assert found is not None
        return found

    def wait_until(self, condition: Callable[[], bool], deadline: Deadline, during: str) -> None:
        """Wait for any other condition in the same way."""
        while not condition():
            ended = self._process.poll() is not None  # before looking for what it said last
            if condition():
                return
            self._check(ended, during)
            deadline.check(during)
            time.sleep(_POLL_SECONDS)

    def _check(self, ended: bool, during: str) -> None:  # noqa: FBT001 - said once, just above
        """Raise what the process failed of."""
        failed = self.seen("failed")
        if failed is not None:
            kind, message = getattr(errors, failed.facts["kind"], None), failed.facts["message"]
            if isinstance(kind, type) and issubclass(kind, errors.StreamStateError):
                raise kind(message)
            raise QueryError(f"The query failed while {during}.\n{failed.facts['kind']}: {_short(message)}")
        if ended:
            raise QueryError(
                f"The process ended without a word while {during}.\n"
                f"The last it printed: {_short(self._log.read_text(errors='replace'), last=True)}"
            )


def _short(text: str, *, last: bool = False) -> str:
    """A few lines of a long text."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-_LAST_LINES:] if last else lines[:_LAST_LINES]) or "nothing"
