"""Killing a query, or one of its executors, in the middle of an epoch."""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from streamstate.recovery.drill.children import Child, Deadline
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import QueryError

__all__ = ["Killed", "kill_executor", "kill_query"]

_EXECUTOR = "CoarseGrainedExecutorBackend"
_VERSION = re.compile(r"\d+")


@dataclass(frozen=True)
class Killed:
    """How things stood at the kill."""

    at: float
    """When, in seconds since 1970."""
    committed: int
    """The newest committed epoch."""
    planned: int
    """The newest epoch whose input was written down; the same as ``committed`` where none was under way."""
    half_written: int
    """Files of state of the epoch that was under way."""


def kill_query(child: Child, checkpoint: Path, after: int, deadline: Deadline) -> Killed:
    """End all processes of a query once the epoch is committed and the next has been begun."""
    during = f"waiting for epoch {after + 1} to begin"
    child.wait_until(lambda: _begun(child, checkpoint, after), deadline, during)
    at = time.time()
    child.kill()
    return _stand(checkpoint, at)


def kill_executor(child: Child, checkpoint: Path, after: int, deadline: Deadline) -> Killed:
    """End one executor of a query in the same moment; the others and the query go on."""
    during = f"waiting for epoch {after} to be committed"
    child.wait_until(lambda: _committed(child, checkpoint, after), deadline, during)
    # Looked for before the moment comes: it takes longer than an epoch's beginning.
    executors = sorted(one.pid for one in child.processes() if _EXECUTOR in one.command)
    if not executors:
        raise QueryError("Spark runs no executors of its own here, so none can be killed.\nUse kill='query'.")
    during = f"waiting for epoch {after + 1} to begin"
    child.wait_until(lambda: _begun(child, checkpoint, after), deadline, during)
    at = time.time()
    os.kill(executors[0], signal.SIGKILL)
    return _stand(checkpoint, at)


def _committed(child: Child, checkpoint: Path, epoch: int) -> bool:
    return (checkpoint / "commits" / str(epoch)).exists() or child.seen("ended") is not None


def _begun(child: Child, checkpoint: Path, after: int) -> bool:
    """Whether the next epoch's input is written down, which Spark does after it has committed the one before."""
    return (checkpoint / "offsets" / str(after + 1)).exists() or child.seen("ended") is not None


def _stand(checkpoint: Path, at: float) -> Killed:
    committed = max(Checkpoint(checkpoint).committed(), default=-1)
    planned = max((int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdigit()), default=-1)
    under_way = max(planned, committed) > committed
    return Killed(at, committed, max(planned, committed), _files_of(checkpoint, planned) if under_way else 0)


def _files_of(checkpoint: Path, epoch: int) -> int:
    """How many files of state there are of an epoch: those of the version after it, as 4.delta or 4_<id>.changelog."""
    version = str(epoch + 1)
    return sum(
        1
        for file in (checkpoint / "state").rglob("[0-9]*")
        if (found := _VERSION.match(file.name))
        and found[0] == version
        and "_metadata" not in file.parts
        and file.suffix
    )
