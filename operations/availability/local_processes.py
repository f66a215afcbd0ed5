"""Processes of one machine, told apart so well that another process can be sure that they have ended.

A process id alone says little: it may be used again, or mean another process in another container. With the boot of the
kernel, the namespaces, and the clock tick in which it was started, it means one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamstate.snapshots.spark.java_process import java_process_id

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19
"""Places in ``/proc/PID/stat``, counted from behind the name."""


def identified(pids: Iterable[int]) -> dict[str, Any] | None:
    """Return what identifies processes of this machine; None where the system does not tell."""
    place = _place()
    started = {str(pid): _stat(pid) for pid in pids}
    if place is None or None in started.values():
        return None
    return {"place": place, "started": {pid: stat[_STARTED] for pid, stat in started.items() if stat is not None}}


def of_this_query() -> dict[str, Any] | None:
    """Return what identifies this process and its Java, which run a query together; None where that is not known."""
    java = java_process_id()
    return None if java is None else identified([os.getpid(), java])


def have_ended(processes: Mapping[str, Any] | None) -> bool:
    """Check that all of some processes have ended; False if one lives, or if that cannot be known here."""
    if not processes or processes.get("place") != _place() or not processes.get("started"):
        return False
    return all(_has_ended(int(pid), started) for pid, started in processes["started"].items())


def _has_ended(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it belongs to another user
        return False
    stat = _stat(pid)
    if stat is None:
        return False
    return stat[_STARTED] != started or (stat[_STATE] in ("Z", "X") and _threads(pid) <= 1)


def _place() -> list[str] | None:
    """Return the boot of the kernel, and the namespaces of process ids and of times."""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        spaces = [_PROC / "self/ns/pid", _PROC / "self/ns/time"]
        return [boot, *(str(space.readlink()) for space in spaces if space.exists())]
    return None


def _stat(pid: int) -> list[str] | None:
    with suppress(OSError):
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return None


def _threads(pid: int) -> int:
    with suppress(OSError):
        return sum(1 for _ in (_PROC / str(pid) / "task").iterdir())
    return 0
