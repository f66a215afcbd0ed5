"""What makes the calls go wrong does just what it is told, and reports it past the death of the process."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faults import shim
from faults.shim import ALWAYS, Action, Control, Fault, Kind

# Writes ten bytes to each of three files, and says which of them failed with what.
PROGRAM = """
import os, sys
from pathlib import Path
from faults.shim import arm
arm(Path(sys.argv[1]))
for name in "abc":
    try:
        file = os.open(f"{sys.argv[2]}/{name}", os.O_CREAT | os.O_WRONLY)
        written = os.write(file, b"0123456789")
        if written < 10:
            os.write(file, b"0123456789"[written:])
        os.fsync(file)
        os.close(file)
        os.link(f"{sys.argv[2]}/{name}", f"{sys.argv[2]}/{name}2")
    except OSError as error:
        print(name, error.errno)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder whose files count."""
    made = tmp_path / "folder"
    made.mkdir()
    return made


def go(library: Path, folder: Path, fault: Fault) -> tuple[int, str, Control]:
    """Run the program; returns how it ended, what it said, and the report."""
    control = Control(folder.with_name("control"), folder, fault)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(control.path), str(folder)],
        env=os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(Path(__file__).parent.parent)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout, control


def sizes(folder: Path) -> dict[str, int]:
    """The files that are there."""
    return {file.name: file.stat().st_size for file in sorted(folder.iterdir())}


def test_without_a_fault_calls_are_counted_and_nothing_else(library: Path, folder: Path) -> None:
    """In order, with kind and path; calls on files elsewhere are none of them."""
    code, said, control = go(library, folder, Fault())
    assert (code, said, control.fired) == (0, "", None)
    kinds = [Kind.OPEN, Kind.WRITE, Kind.SYNC, Kind.LINK]
    assert [call.kind for call in control.calls()] == kinds * 3
    assert [Path(call.path).name for call in control.calls()][:4] == ["a", "a", "a", "a2"]
    assert sizes(folder) == dict.fromkeys(["a", "a2", "b", "b2", "c", "c2"], 10)


@pytest.mark.parametrize(
    ("action", "left"),
    [
        (Action.KILL_BEFORE, {"a": 10, "a2": 10, "b": 0}),
        (Action.KILL_AFTER, {"a": 10, "a2": 10, "b": 10}),
        (Action.TORN, {"a": 10, "a2": 10, "b": 5}),
    ],
)
def test_a_kill_at_a_call(library: Path, folder: Path, action: Action, left: dict[str, int]) -> None:
    """SIGKILL before the sixth call, after it, or with half of it done."""
    code, _, control = go(library, folder, Fault(action, at=6))
    assert code == -signal.SIGKILL
    assert sizes(folder) == left
    assert control.fired is not None
    assert (control.fired.number, control.fired.kind, Path(control.fired.path).name) == (6, Kind.WRITE, "b")


@pytest.mark.parametrize(("times", "failed"), [(1, "b"), (2, "bc"), (ALWAYS, "bc")])
def test_calls_that_fail(library: Path, folder: Path, times: int, failed: str) -> None:
    """From a call on, so many calls of the kinds that can fail so."""
    code, said, control = go(library, folder, Fault(Action.FAIL, 5, Kind.OPEN, error=errno.EMFILE, times=times))
    assert code == 0
    assert said.split() == [word for name in failed for word in (name, str(errno.EMFILE))]
    assert control.fired is not None
    assert control.fired.error == errno.EMFILE


def test_a_disk_that_fills_up(library: Path, folder: Path) -> None:
    """Half of the write is done and said to be; the call after it fails."""
    fault = Fault(Action.SHORT, 6, Kind.WRITE, error=errno.ENOSPC, times=2)
    code, said, _ = go(library, folder, fault)
    assert (code, said) == (0, f"b {errno.ENOSPC}\n")
    assert sizes(folder) == {"a": 10, "a2": 10, "b": 5, "c": 10, "c2": 10}


def test_a_slow_disk(library: Path, folder: Path) -> None:
    """The call takes so many milliseconds longer, and is done."""
    started = time.monotonic()
    code, said, control = go(library, folder, Fault(Action.SLOW, 4, Kind.LINK, error=300))
    assert (code, said) == (0, "")
    assert time.monotonic() - started > 0.3
    assert control.fired is not None
    assert control.fired.error == 0
    assert len(sizes(folder)) == 6


def test_without_a_compiler_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run that could inject nothing must not pass."""
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RuntimeError, match="there is no compiler 'no-such-compiler'"):
        shim.build(tmp_path)
