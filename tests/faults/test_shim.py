"""The fault injection library does exactly what it is configured to do, and its report outlives the process."""

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

# Writes ten bytes to each of three files, and prints the errno of each that failed.
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
    """The folder whose files are watched."""
    created = tmp_path / "folder"
    created.mkdir()
    return created


def run_program(library: Path, folder: Path, fault: Fault) -> tuple[int, str, Control]:
    """Run the program; return its exit status, its output, and the report."""
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
    """The sizes of the files in the folder."""
    return {file.name: file.stat().st_size for file in sorted(folder.iterdir())}


def test_without_a_fault_calls_are_only_counted(library: Path, folder: Path) -> None:
    """Calls are recorded in order, with kind and path; calls on files elsewhere are not."""
    code, output, control = run_program(library, folder, Fault())
    assert (code, output, control.fired) == (0, "", None)
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
def test_a_process_is_killed_at_a_call(library: Path, folder: Path, action: Action, left: dict[str, int]) -> None:
    """SIGKILL before the sixth call, after it, or halfway through it."""
    code, _, control = run_program(library, folder, Fault(action, at=6))
    assert code == -signal.SIGKILL
    assert sizes(folder) == left
    assert control.fired is not None
    assert (control.fired.number, control.fired.kind, Path(control.fired.path).name) == (6, Kind.WRITE, "b")


@pytest.mark.parametrize(("times", "failed"), [(1, "b"), (2, "bc"), (ALWAYS, "bc")])
def test_calls_fail_with_an_errno(library: Path, folder: Path, times: int, failed: str) -> None:
    """From a call on, a number of calls of the given kinds fail."""
    code, output, control = run_program(
        library, folder, Fault(Action.FAIL, 5, Kind.OPEN, error=errno.EMFILE, times=times)
    )
    assert code == 0
    assert output.split() == [word for name in failed for word in (name, str(errno.EMFILE))]
    assert control.fired is not None
    assert control.fired.error == errno.EMFILE


def test_a_disk_fills_up(library: Path, folder: Path) -> None:
    """A write is cut in half and returns the short count; the next call fails."""
    fault = Fault(Action.SHORT, 6, Kind.WRITE, error=errno.ENOSPC, times=2)
    code, output, _ = run_program(library, folder, fault)
    assert (code, output) == (0, f"b {errno.ENOSPC}\n")
    assert sizes(folder) == {"a": 10, "a2": 10, "b": 5, "c": 10, "c2": 10}


def test_a_call_is_delayed(library: Path, folder: Path) -> None:
    """The call takes this many milliseconds longer, and succeeds."""
    started = time.monotonic()
    code, output, control = run_program(library, folder, Fault(Action.SLOW, 4, Kind.LINK, error=300))
    assert (code, output) == (0, "")
    assert time.monotonic() - started > 0.3
    assert control.fired is not None
    assert control.fired.error == 0
    assert len(sizes(folder)) == 6


def test_a_missing_compiler_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run that cannot inject faults must not pass."""
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RuntimeError, match="there is no compiler 'no-such-compiler'"):
        shim.build(tmp_path)
