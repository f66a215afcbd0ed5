"""Captures in their own processes, without Spark: a warm one, new ones, and ``streamstate follow``."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

import streamstate as ss
from benchmarks.replayed import Stepped

_CALL = "import sys, streamstate as ss; ss.Checkpoint(sys.argv[1]).capture(*sys.argv[2:])"
_PEAK = "; from benchmarks.processes import peak; print(peak())"
_LOOK_SECONDS = 0.002
_TIMEOUT = 600.0


@dataclass(frozen=True)
class Took:
    """Cost of a capture."""

    seconds: float
    cpu: float
    """CPU seconds of all threads of the process."""


class WarmProcess:
    """A process that replays a recording and captures it epoch by epoch."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def step(self, epochs: int = 1) -> Took:
        """Reveal epochs and capture them in one pass, as a follower does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{epochs}\n")
        self._process.stdin.flush()
        return Took(*json.loads(self._process.stdout.readline()))


@contextmanager
def warm_process(recording: Path, store: Path) -> Iterator[WarmProcess]:
    """Yield a warm process, which ends with the block."""
    command = [sys.executable, "-m", "benchmarks.processes", str(recording), str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield WarmProcess(process)  # leaving closes the pipe, which ends the process


def call_in_new_process(checkpoint: Path, store: Path) -> None:
    """Run ``Checkpoint.capture`` in a new Python."""
    subprocess.run([sys.executable, "-c", _CALL, str(checkpoint), str(store), "load"], check=True)


def call_and_peak(checkpoint: Path, store: Path) -> int:
    """Run ``Checkpoint.capture`` in a new Python and return its peak memory in bytes."""
    command = [sys.executable, "-c", _CALL + _PEAK, str(checkpoint), str(store), "load"]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def command_in_new_process(checkpoint: Path, store: Path) -> None:
    """Run ``streamstate capture``."""
    subprocess.run([*_command("capture", checkpoint, store)], check=True, stdout=subprocess.DEVNULL)


class Follower:
    """``streamstate follow`` in its own process."""

    def __init__(self, process: subprocess.Popen[bytes], store: Path) -> None:
        self._process, self._history = process, ss.open_store(store)["load"]
        self._measured = psutil.Process(process.pid)

    def wait(self, epoch: int) -> float:
        """Wait until an epoch can be queried, and return the time, as ``time.time()``."""
        late = time.monotonic() + _TIMEOUT
        while not self.reached(epoch):
            if time.monotonic() > late or self._process.poll() is not None:
                raise AssertionError(f"epoch {epoch} cannot be queried: the newest is {self._history.live().epoch}")
            threading.Event().wait(_LOOK_SECONDS)
        return time.time()

    def reached(self, epoch: int) -> bool:
        """Return True if an epoch can be queried."""
        return self._history.live().epoch >= epoch

    def cpu(self) -> float:
        """Return the CPU seconds of the process so far."""
        times = self._measured.cpu_times()
        return float(times.user + times.system)

    def resident(self) -> int:
        """Return the resident memory in bytes."""
        return int(self._measured.memory_info().rss)

    def peak(self) -> int:
        """Return the peak memory in bytes."""
        return peak(self._process.pid)


@contextmanager
def follower(checkpoint: Path, store: Path) -> Iterator[Follower]:
    """Yield a follower of a checkpoint, which ends with the block."""
    with subprocess.Popen([*_command("follow", checkpoint, store), "--quiet"]) as process:
        try:
            yield Follower(process, store)
            process.terminate()
            if process.wait(_TIMEOUT):
                raise AssertionError(f"streamstate follow ended with status {process.returncode}")
        finally:
            process.kill()  # does nothing to a process that has ended


def peak(pid: int | str = "self") -> int:
    """Return the peak resident memory of a process so far, in bytes; Linux only."""
    # What getrusage says begins with the parent's peak, which a new program inherits.
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def median_seconds(took: Sequence[Took]) -> float:
    """Return the median of their seconds."""
    return statistics.median(capture.seconds for capture in took)


def _command(command: str, checkpoint: Path, store: Path) -> list[str]:
    return [sys.executable, "-m", "streamstate", command, str(checkpoint), "--store", str(store), "--name", "load"]


def _main(recording: str, store: str) -> None:
    """Capture as many epochs as each line of standard input says; answer with the seconds and the CPU seconds."""
    sys.modules["pyspark"] = None  # type: ignore[assignment]  # so that it cannot be imported
    stepped = Stepped(None, Path(recording), Path(store))
    for line in sys.stdin:
        before = time.process_time()
        seconds = stepped.step(int(line))
        print(json.dumps([seconds, time.process_time() - before]), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
