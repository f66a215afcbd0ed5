"""Capture of many queries in one process: a first capture, an idle follower and its delay, and the overview."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

from benchmarks.harness import Measurement, Size, bounded, timed

_RECORDED = Path(__file__).parent.parent / "tests" / "recorded" / "spark-4.3.tar.xz"
_FIRST = 4
"""Epochs of each query before the measured one."""
_SETTLED, _IDLE = 15.0, 20.0
_TIMEOUT = 600
_RUNS = 3
_OVERVIEWS = """
import json, sys
import streamstate as ss, streamstate.state_inspect.store_facts
from benchmarks.harness import timed
store = ss.open_store(sys.argv[1])
print(json.dumps([timed(store.overview), timed(store.overview)]))
"""


def fleet(_spark: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure many queries in one process: first capture, an idle follower, all committing within a second."""
    recorded = _recorded(folder)
    paths = _copies(recorded, folder / "root", size.keys)
    setting = f"{size.keys:,} queries, {_FIRST} epochs each, one more for the delay"
    command = [sys.executable, "-m", "streamstate"]
    where = ["--root", str(folder / "root"), "--store", str(folder / "store")]
    took = timed(lambda: subprocess.run([*command, "capture", *where], check=True, stdout=subprocess.DEVNULL))
    yield bounded("first capture of all queries", "streamstate capture", took, 60, runs=1, setting=setting)
    with _follower([*command, "follow", *where, "--json"]) as (process, captured):
        threading.Event().wait(_SETTLED)
        before, began = _cpu(process), time.monotonic()
        threading.Event().wait(_IDLE)
        share = (_cpu(process) - before) / (time.monotonic() - began)
        yield bounded("share of a core, idle", "streamstate follow", 100 * share, 15, runs=1, setting=setting, unit="%")
        before = _cpu(process)
        committed = _commit_within_a_second(recorded, paths)
        lags = sorted(captured(name) - at for name, at in committed.items())
        for name, lag, bound in (("median", statistics.median(lags), 2.0), ("slowest", lags[-1], 6.0)):
            yield bounded("commit to captured, all within a second", name, lag, bound, runs=len(lags), setting=setting)
        spent = (_cpu(process) - before) / len(lags)
        yield bounded("processor time of an epoch", "streamstate follow", spent, 0.010, runs=len(lags), setting=setting)
        memory = process.memory_info().rss
        yield bounded("memory of the follower", "resident", memory, 600 * 2**20, runs=1, setting=setting, unit="B")
    took_of = [_overviews(folder / "store") for _ in range(_RUNS)]
    for name, took_each in zip(("first in a process", "again"), zip(*took_of, strict=True), strict=True):
        yield bounded("Store.overview", name, statistics.median(took_each), 1, runs=_RUNS, setting=setting)


def _overviews(store: Path) -> list[float]:
    """Return how long the first overview of a new process takes, without imports, and the next."""
    command = [sys.executable, "-c", _OVERVIEWS, str(store)]
    took: list[float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return took


def _recorded(folder: Path) -> Path:
    """Unpack the checkpoint of a small query of five epochs."""
    with tarfile.open(_RECORDED) as tar:
        tar.extractall(folder, filter="data")
    return folder / "4.3" / "counted" / "checkpoint"


def _copies(recorded: Path, root: Path, count: int) -> list[Path]:
    """Copy a checkpoint, each time as that of another query; the files are linked."""
    paths = [root / f"team_{number % 10}" / f"query_{number:04}" for number in range(count)]
    for path in paths:
        shutil.copytree(recorded, path, copy_function=os.link)
        (path / "metadata").unlink()
        (path / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}), encoding="utf-8")
        (path / "commits" / str(_FIRST)).unlink()
    return paths


def _commit_within_a_second(recorded: Path, paths: list[Path]) -> dict[str, float]:
    """Commit an epoch of each query, and return the times."""
    began, found = time.time(), dict[str, float]()
    for at, path in enumerate(paths, 1):
        hidden = path / "commits" / f".{_FIRST}.tmp"
        shutil.copyfile(recorded / "commits" / str(_FIRST), hidden)
        hidden.rename(path / "commits" / str(_FIRST))
        found[path.name] = time.time()
        threading.Event().wait(max(0.0, began + at / len(paths) - time.time()))
    return found


@contextmanager
def _follower(command: list[str]) -> Iterator[tuple[psutil.Process, _Captured]]:
    """Yield a follower and what waits for the time at which it captured a query."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield psutil.Process(process.pid), _Captured(process.stdout)
        finally:
            process.terminate()
            process.wait(_TIMEOUT)


class _Captured:
    """The times at which a follower says that it captured the queries."""

    def __init__(self, lines: IO[str]) -> None:
        self._times = dict[str, float]()
        self._changed = threading.Condition()
        threading.Thread(target=self._read, args=[lines], daemon=True).start()

    def __call__(self, query: str) -> float:
        """Return the time of a query's pass, and wait for it if need be."""
        with self._changed:
            if not self._changed.wait_for(lambda: query in self._times, _TIMEOUT):
                raise TimeoutError(f"{query} was not captured")
            return self._times[query]

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            with self._changed:
                self._times[json.loads(line)["query"]] = time.time()
                self._changed.notify_all()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
