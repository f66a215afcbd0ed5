"""Time from the kill of a query's owner to the next epoch: with a standby, and without."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import Measurement, Size, bounded
from benchmarks.workload import Workload
from streamstate.operations.drill.processes import _processes_of, kill_session

_LEASE = 2.0
"""A short time to live, in seconds."""
_SCALES = 0.1, 1.0, 10 / 3
_KINDS = {"cold": 0.0, "killed": 6.0, "silent": _LEASE}
"""The disturbances of the owner, and the lease of each; a silent owner is paused, which looks like a kill elsewhere."""
_PACE = 1.0
"""Seconds between two files, while the query is handed over."""
_IDLE = 15.0
"""Seconds without input before the owner is disturbed; by then a snapshot of its state is uploaded."""
_PATIENCE = 600.0


def standby(_spark: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure the seconds from a kill to the next committed epoch, cold and with a standby, in turn, and a handover.

    For three sizes of the state, a tenth of ``--keys`` to three times as many. ``--epochs`` is the number of each kind.
    """
    idle: list[tuple[float, float]] = []
    for scale in _SCALES:
        scaled = Size(round(size.keys * scale), min(size.changes, round(size.keys * scale)), size.epochs)
        yield from _at_one_size(folder, scaled, idle)
    share, memory = (statistics.median(values) for values in zip(*idle, strict=True))
    setting = f"{memory / 2**20:,.0f} MiB of memory, beside an idle query"
    yield bounded(
        "processor of an idle standby", "share of a core", share, 3, runs=len(idle), setting=setting, unit="%"
    )


def _at_one_size(folder: Path, size: Size, idle: list[tuple[float, float]]) -> Iterator[Measurement]:
    seconds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    late: list[tuple[float, float]] = []
    for number in range(size.epochs):
        for kind, found in seconds.items():
            place = folder / f"{size.keys}-{number}-{kind}"
            found.append(_disturbed(place, size, kind, idle))
            shutil.rmtree(place, ignore_errors=True)
        late.append(_handed_over(folder / f"{size.keys}-{number}-handover", size))
    cold = statistics.median(seconds["cold"])
    for kind, how in (("killed", "killed beside it"), ("silent", f"silent, a lease of {_LEASE:g} s")):
        yield Measurement(
            "takeover: to the next committed epoch",
            how,
            statistics.median(seconds[kind]),
            "started cold at once",
            cold,
            size.epochs,
            str(size),
            wanted=4,
        )
    took, usual = (statistics.median(values) for values in zip(*late, strict=True))
    setting = f"{size}; usually {usual:.2f} s from commit to commit"
    question = "handover: from the last commit to the next"
    yield bounded(question, "under steady input", took, 2 * usual, runs=size.epochs, setting=setting)


def _disturbed(folder: Path, size: Size, kind: str, idle: list[tuple[float, float]]) -> float:
    """Return the seconds of one recovery; note what a ready standby takes."""
    load, lease = _load(folder, size), _KINDS[kind]
    with _owner(folder, lease) as session:
        _until(lambda: _committed(folder) == load.first + 2 and (not lease or (folder / "ready").exists()))
        if lease:
            idle.append(_idle(int((folder / "standby").read_text())))
        else:
            time.sleep(_IDLE)
        load.change()
        _until((folder / "checkpoint" / "offsets" / str(load.first + 3)).exists)
        began = time.monotonic()
        if kind == "silent":
            for process in _processes_of(session):
                with suppress(psutil.NoSuchProcess):  # a short one, such as a chmod of Java's
                    process.suspend()
        else:
            kill_session(session)
        if lease:
            _until(lambda: _committed(folder) == load.first + 3)
            return time.monotonic() - began
        with _owner(folder, 0):
            _until(lambda: _committed(folder) == load.first + 3)
            return time.monotonic() - began


def _handed_over(folder: Path, size: Size) -> tuple[float, float]:
    """Return the seconds of one handover under steady input, and the usual ones between two commits."""
    load = _load(folder, size)
    with _owner(folder, _LEASE, "handover"):
        _until(lambda: _committed(folder) == load.first + 2)
        while not (folder / "handed").exists():
            load.change()
            time.sleep(_PACE)
        epoch, usual = (folder / "handed").read_text().split()
        last, after = (folder / "checkpoint" / "commits" / str(int(epoch) + later) for later in (0, 1))
        load.change()  # the new owner may have been quick, and waits
        _until(after.exists)
        seconds = after.stat().st_mtime - last.stat().st_mtime
    shutil.rmtree(folder, ignore_errors=True)
    return seconds, float(usual)


def _load(folder: Path, size: Size) -> Workload:
    folder.mkdir(parents=True)
    no_session: Any = None  # the files are written without Spark
    load = Workload(no_session, folder, size.keys, size.changes)
    for _ in range(2):
        load.change()
    return load


@contextmanager
def _owner(folder: Path, lease: float, then: str = "") -> Iterator[int]:
    """Start an owner, and kill it and its standby at the end."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.owner", str(folder), str(lease), then],
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        if lease and (folder / "standby").exists():
            kill_session(int((folder / "standby").read_text()))
        kill_session(process.pid)
        process.wait()


def _idle(session: int) -> tuple[float, float]:
    """Return the share of a core that a session's processes take, in percent, and their memory in bytes."""
    processes = _processes_of(session)
    before, began = _seconds(processes), time.monotonic()
    time.sleep(_IDLE)
    share = 100 * (_seconds(processes) - before) / (time.monotonic() - began)
    return share, float(sum(process.memory_info().rss for process in processes))


def _seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _committed(folder: Path) -> int:
    names = (file.name for file in (folder / "checkpoint" / "commits").glob("*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.005)
