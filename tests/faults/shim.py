"""The Python side of ``faultfs.c``: builds it, configures faults, and reads the report."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

SOURCE = Path(__file__).with_name("faultfs.c")
ALWAYS = 1 << 40
"""A number of calls so large that a fault never ends."""

_PATH, _FOLDER, _ENTRIES = 240, 512, 40_000


class Kind(IntFlag):
    """An operation on the store's files; ``READ`` is opening a file to read it."""

    OPEN = 1
    WRITE = 2
    SYNC = 4
    RENAME = 8
    LINK = 16
    UNLINK = 32
    MKDIR = 64
    TRUNCATE = 128
    READ = 256


CHANGES = Kind(255)
"""All kinds of calls that change files."""


class Action(IntEnum):
    """The fault of the selected call."""

    COUNT = 0
    KILL_BEFORE = 1
    KILL_AFTER = 2
    TORN = 3
    FAIL = 4
    SHORT = 5
    SLOW = 6


@dataclass(frozen=True)
class Fault:
    """A fault: from call ``at`` on, the next ``times`` calls of the ``kinds`` fail.

    ``TORN`` writes half and kills; ``SHORT`` writes half, returns that count, and fails later calls; ``SLOW`` delays
    the call by ``error`` milliseconds.
    """

    action: Action = Action.COUNT
    at: int = 0
    kinds: Kind = CHANGES
    counted: Kind = CHANGES
    error: int = 0
    times: int = 1

    @property
    def kills(self) -> bool:
        """True if the fault kills the process."""
        return self.action in (Action.KILL_BEFORE, Action.KILL_AFTER, Action.TORN)

    def __str__(self) -> str:
        what = self.action.name.lower()
        if self.error:
            times = "always" if self.times == ALWAYS else f"{self.times} times"
            what += f" with {errno.errorcode[self.error]} {times}"
        which = "any" if self.kinds == self.counted else "|".join(str(kind.name) for kind in self.kinds)
        return f"{what}, {which} call from {'reading' if self.counted is Kind.READ else 'changing'} call {self.at} on"


class _Entry(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("size", ctypes.c_uint64),
        ("path", ctypes.c_char * _PATH),
    )


class _Layout(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("action", "error", "counted", "kinds")),
        *((name, ctypes.c_uint64) for name in ("at", "times", "capacity")),
        ("folder", ctypes.c_char * _FOLDER),
        *((name, ctypes.c_uint64) for name in ("calls", "fired", "first_fired")),
        ("entries", _Entry * _ENTRIES),
    )


@dataclass(frozen=True)
class Call:
    """A recorded call: its number from 1, its kind, and its errno (0: success; −1: never returned)."""

    number: int
    kind: Kind
    error: int
    size: int
    path: str

    @property
    def commits(self) -> bool:
        """True if the call adds an entry to a table's log."""
        name = self.path.rsplit("/", 1)[-1]
        return "/_delta_log/" in self.path and self.kind in (Kind.LINK, Kind.RENAME) and name[:20].isdigit()

    def __str__(self) -> str:
        return f"call {self.number}: {self.kind.name} {self.path}"


class Control:
    """The faults to inject into one process, and the report: a file that both sides map."""

    def __init__(self, path: Path, folder: Path, fault: Fault | None = None) -> None:
        self.path = path
        fault = fault or Fault()
        with path.open("w+b") as file:
            file.truncate(ctypes.sizeof(_Layout))
            self._layout = _Layout.from_buffer(mmap.mmap(file.fileno(), 0))
        self._layout.folder = os.fsencode(folder)
        self._layout.capacity = _ENTRIES
        self._layout.action, self._layout.error = fault.action, fault.error
        self._layout.counted, self._layout.kinds = fault.counted, fault.kinds
        self._layout.at, self._layout.times = fault.at, fault.times

    @property
    def fired(self) -> Call | None:
        """The first call that a fault affected, None if there was none."""
        return self._call(self._layout.first_fired) if self._layout.fired else None

    def calls(self) -> list[Call]:
        """All recorded calls, in order."""
        assert self._layout.calls <= _ENTRIES, "more calls than the report can hold"
        return [self._call(number) for number in range(1, self._layout.calls + 1)]

    def _call(self, number: int) -> Call:
        entry = self._layout.entries[number - 1]
        return Call(number, Kind(entry.kind), entry.error, entry.size, os.fsdecode(entry.path))


def build(folder: Path) -> Path:
    """Compile the library."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise RuntimeError(f"Faults are injected by a C library and there is no compiler {compiler[0]!r}: install gcc.")
    library = folder / "libfaultfs.so"
    command = [*compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
    return library


def arm(control: Path) -> None:
    """Make the preloaded library apply a control file in this process."""
    failed = ctypes.CDLL(None).faultfs_arm(os.fsencode(control))
    if failed:
        raise OSError(failed, os.strerror(failed), str(control))
