"""All processes of a session of the operating system: which there are, and ending them without a trace.

Spark's processes are a tree: Python, its Java, executors below that, and below each the daemon of the Python workers,
which makes itself a process group of its own. No one signal reaches them all, but they share the session (``setsid``)
of the process they came from, also when that is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from streamstate.snapshots.errors import QueryError

__all__ = ["Process", "kill_session", "of_session"]

_PROC = Path("/proc")
_POLL_SECONDS = 0.005
_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Process:
    """A process as the operating system tells it."""

    pid: int
    command: str
    """The program and its arguments."""


def of_session(session: int) -> list[Process]:
    """The processes of a session; not those that ended and that only their parent has yet to take notice of."""
    return [one for one in _processes() if _session_of(one.pid) == session]


def kill_session(session: int) -> None:
    """End a session's processes at once, as a power cut would (SIGKILL), and return when none is left.

    Raises:
        QueryError: one is still there after half a minute.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)  # most of them are in the leader's group: these end in the same moment
    while left := of_session(session):
        if time.monotonic() > until:
            raise QueryError(f"These processes could not be ended:\n{_listed(left)}\nEnd them with kill -9.")
        for one in left:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _processes() -> Iterator[Process]:
    if not _PROC.joinpath("self", "stat").exists():
        yield from _of_ps()
        return
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (found := _of_proc(folder)) is not None:
            yield found


def _of_proc(folder: Path) -> Process | None:
    """A process of Linux; None where it has ended."""
    try:
        state = folder.joinpath("stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        command = folder.joinpath("cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return None
    return None if state in "ZX" else Process(int(folder.name), command.strip())


def _of_ps() -> Iterator[Process]:
    """The processes of macOS and others, where there is no /proc."""
    shown = subprocess.run(["ps", "-A", "-o", "pid=,stat=,command="], capture_output=True, text=True, check=True)
    for line in shown.stdout.splitlines():
        pid, state, *command = line.split(maxsplit=2)
        if not state.startswith("Z"):
            yield Process(int(pid), "".join(command))


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None  # it has ended, or is not ours


def _listed(processes: list[Process]) -> str:
    return "\n".join(f"  {one.pid} {one.command[:80]}" for one in processes)
