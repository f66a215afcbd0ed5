"""Linear Road measured: traffic in real time, a query in its own process, every answer compared with the oracle's."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from benchmarks.harness import Measurement, Size, bounded
from benchmarks.linear_road.oracle import Judged, Oracle
from benchmarks.linear_road.traffic import CYCLE, PEAK, Traffic
from benchmarks.overload import committed_files
from streamstate.operations.drill.processes import _processes_of, kill_session

LATENCY = 5.0
"""Seconds from a report's arrival to its answers; the paper allows 10 for daily expenditures, which come with them."""
SEEP = 7.0
"""Expressways of a virtual machine with SEEP: 350 on 50 machines (Castro Fernandez et al., SIGMOD 2013)."""
_WAIT = 900.0
_WARM = 5
"""Seconds of input that are fed one by one, before the clock starts: Spark compiles the query."""
_DISTURBED = 0.6
"""When, in shares of the run, the query is killed or rescaled."""
_PREPARED = 0.2
"""The share of the run after which the standby, or the process that is handed the query, is started."""


def linear_road(_spark: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure Linear Road with ``--keys`` expressways; the paper's ramp of three hours takes ``--epochs`` minutes.

    Two runs of the same input: without capture, and with capture. ``--changes`` is how many seconds of input arrive in
    a second; above 1, only the answers are meaningful, so there is only the run with capture.
    """
    on = ("capture on", True, None)
    yield from _runs(folder, size, (on,) if size.changes > 1 else (("capture off", False, None), on))


def linear_road_disturbed(_spark: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure Linear Road, as above, while the query is killed, taken over, handed over and rescaled.

    Four runs of the same input, all with capture.
    """
    disturbed = (
        ("killed and started again", True, kill),
        ("killed beside a standby", True, take_over),
        ("handed over", True, hand_over),
        ("rescaled", True, rescale),
    )
    yield from _runs(folder, size, disturbed)


def _runs(
    folder: Path, size: Size, runs: Sequence[tuple[str, bool, Callable[[Run], None] | None]]
) -> Iterator[Measurement]:
    traffic = Traffic(size.keys, 60 * size.epochs)
    files = traffic.write(folder / "made")
    oracle = Oracle(files, folder / "made" / "past")
    for name, captured, disturb in runs:
        load = os.getloadavg()[0]
        place, past = folder / name.replace(" ", "_"), folder / "made" / "past"
        run = Run(place, files, past, captured=captured, speed=size.changes)
        run.drive(disturb)
        setting = (
            f"L={size.keys}, the ramp in {size.epochs} min, {name}, {size.changes} s of input a second; "
            f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after"
        )
        yield from _figures(run, oracle.judge(run.answers()), traffic, setting)


def _figures(run: Run, judged: Judged, traffic: Traffic, setting: str) -> Iterator[Measurement]:
    off = judged.missing + judged.wrong
    ours = f"of {judged.answers:,}: {judged.kinds.get(0, 0):,} tolls ({judged.tolls:,} above 0), "
    ours += f"{judged.kinds.get(1, 0):,} accident alerts, {judged.kinds.get(2, 0):,} balances, "
    ours += f"{judged.kinds.get(3, 0):,} expenditures"
    yield bounded("answers that differ from the oracle's", ours, off, 0, runs=1, setting=setting, unit="")
    seconds = run.response_times()
    late = sum(took > LATENCY for took in seconds.values())
    if run.disturbed is None:
        p99 = float(np.percentile([*seconds.values()], 99))
        ours = f"median {float(np.median([*seconds.values()])):.2f} s, p99 {p99:.2f} s, {late} of {len(seconds)} s late"
        yield bounded("the slowest answer", ours, max(seconds.values()), LATENCY, runs=1, setting=setting)
        yield _share(run, traffic, setting)
        return
    last = max((second for second, took in seconds.items() if took > LATENCY), default=run.disturbed)
    ours = f"{late} of {len(seconds)} seconds of input answered late, the last one {last - run.disturbed} s afterwards"
    yield Measurement("from the last commit before to the next", ours, run.standing, "the bound", math.inf, 1, setting)


def _share(run: Run, traffic: Traffic, setting: str) -> Measurement:
    """Return the CPU time of the query in the last quarter, for the reports of one expressway at its peak."""
    last = range(run.last_quarter + 1, len(run.files))
    reports = sum(traffic.cars(second // CYCLE) for second in last) * traffic.expressways / CYCLE
    spent = run.cpu[1] - run.cpu[0]
    question, share = "CPU time of an expressway at its peak, share of a core", 100 * spent / reports * PEAK
    ours = f"{1e6 * spent / reports:.1f} µs a report, L={100 / share:.0f} a core; {spent / len(last):.2f} cores busy"
    return Measurement(question, ours, share, "SEEP: 7 a VM", 100 / SEEP, 1, setting, unit="%")


@dataclass
class Run:
    """One run: the feeder here, the query in a process of its own.

    Args:
        folder: for input, checkpoint, answers and store.
        files: the input, a file for each second.
        past: the historical table.
        captured: capture the query.
        speed: simulated seconds in a real one.
    """

    folder: Path
    files: Sequence[Path]
    past: Path
    captured: bool
    partitions: int = os.cpu_count() or 1
    speed: float = 1.0
    arrived: dict[str, float] = field(init=False, default_factory=dict)
    disturbed: int | None = field(init=False, default=None)
    """The second of input at which the query was killed, handed over or rescaled."""
    standing: float = field(init=False, default=0.0)
    """The seconds from the last commit before that to the next one."""
    cpu: list[float] = field(init=False, default_factory=list)
    """The CPU seconds of the query when the last quarter of the input begins, and at its end."""
    query: Owner = field(init=False)

    def drive(self, disturb: Callable[[Run], None] | None = None) -> None:
        """Feed all seconds, and wait until all are answered. The clock starts when the first few have been."""
        (self.folder / "input").mkdir(parents=True)
        self.query = QueryProcess(self)
        try:
            for epoch, file in enumerate(self.files[:_WARM]):
                self._arrive(file)
                self.query.wait_for(self.commit(epoch).exists)
            feeder = threading.Thread(target=self._feed, daemon=True)
            feeder.start()
            if disturb is not None:
                disturb(self)
            feeder.join()
            self.query.stop()
        finally:
            self.query.kill()

    def wait_until(self, share: float) -> None:
        """Wait until a share of the input has arrived."""
        self.query.wait_for(lambda: len(self.arrived) > share * len(self.files))
        self.disturbed = len(self.arrived)

    def response_times(self) -> dict[int, float]:
        """Return the seconds from each file's arrival to the commit of its answers, by second of input."""
        found = {}
        for committed, names in committed_files(self.folder / "checkpoint").values():
            found.update({int(Path(name).stem): committed - self.arrived[name] for name in names})
        return {second: took for second, took in found.items() if second >= _WARM}

    def committed(self) -> int:
        """Return the number of epochs that are committed."""
        return len([*(self.folder / "checkpoint" / "commits").glob("[0-9]*")])

    def commit(self, epoch: int) -> Path:
        """Return the file of an epoch's commit."""
        return self.folder / "checkpoint" / "commits" / str(epoch)

    def answers(self) -> list[Path]:
        """Return the files of answers."""
        return sorted((self.folder / "answers").glob("*/part-*.parquet"))

    def _feed(self) -> None:
        start = time.time()
        for number, file in enumerate(self.files[_WARM:], _WARM):
            time.sleep(max(start + (number - _WARM) / self.speed - time.time(), 0.0))
            self._arrive(file)
            if number in (self.last_quarter, len(self.files) - 1):
                self.cpu.append(self.query.cpu())

    @property
    def last_quarter(self) -> int:
        """The second at which the last quarter of the input begins."""
        return len(self.files) * 3 // 4

    def _arrive(self, file: Path) -> None:
        # A link with a new time: Spark reads files in the order of their times.
        os.utime(file)
        self.arrived[file.name] = time.time()
        os.link(file, self.folder / "input" / file.name)


class Owner:
    """A process that has taken the query over, in a session of the operating system."""

    def __init__(self, run: Run, process: int) -> None:
        self.run, self.pid = run, process

    def stop(self) -> None:
        """Wait until everything is answered, and let it end."""
        files = {file.name for file in self.run.files}
        self.wait_for(lambda: files <= {name for _, names in self._committed() for name in names}, every=0.5)
        os.kill(self.pid, signal.SIGTERM)
        psutil.Process(self.pid).wait(_WAIT)

    def ask(self, line: str) -> str:
        """Send it a line; only the first process listens."""
        raise NotImplementedError(line)

    def cpu(self) -> float:
        """Return the CPU seconds of all its processes so far."""
        times = [process.cpu_times() for process in _processes_of(self.pid)]
        return sum(spent.user + spent.system for spent in times)

    def kill(self) -> None:
        """Kill it and all that it started."""
        kill_session(self.pid)

    def wait_for(self, condition: Callable[[], bool], every: float = 0.01) -> None:
        """Wait for a condition while it runs, and look at it every so many seconds."""
        late = time.monotonic() + _WAIT
        while not condition():
            if self.ended() or time.monotonic() > late:
                raise AssertionError(f"the query failed, or waits:\n{(self.run.folder / 'log').read_text()[-2000:]}")
            time.sleep(every)

    def ended(self) -> bool:
        """Check that it has ended."""
        return not _processes_of(self.pid)

    def _committed(self) -> Collection[tuple[float, Sequence[str]]]:
        return committed_files(self.run.folder / "checkpoint").values()


class QueryProcess(Owner):
    """The process that is started to run the query."""

    def __init__(self, run: Run) -> None:
        self._log = run.folder / "log"
        store = str(run.folder / "store") if run.captured else ""
        command = [sys.executable, "-m", "benchmarks.linear_road", str(run.folder), str(run.past)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(run.partitions), store],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
                start_new_session=True,
            )
        super().__init__(run, self._process.pid)

    def ask(self, line: str) -> str:
        """Send it a line, and return the one that it prints."""
        self._tell(line)
        assert self._process.stdout is not None
        if not (answer := self._process.stdout.readline()):
            raise AssertionError(f"the query failed:\n{self._log.read_text()[-2000:]}")
        return answer

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Let it answer everything, and wait until it has ended."""
        self._tell("stop")
        if self._process.wait(_WAIT):
            raise AssertionError(f"the query failed:\n{self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill it and all that it started."""
        super().kill()
        self._process.wait()

    def ended(self) -> bool:
        """Check that it has ended."""
        return self._process.poll() is not None


def kill(run: Run, successor: Callable[[Run], Owner] = QueryProcess) -> None:
    """Kill the query's processes, and start it again, or wait for the one that takes it over."""
    run.wait_until(_DISTURBED)
    number, killed = run.committed(), time.time()
    run.query.kill()
    run.query = successor(run)
    run.query.wait_for(run.commit(number).exists)
    if run.commit(number).stat().st_mtime < killed:  # the query made it before it was killed
        number += 1
        run.query.wait_for(run.commit(number).exists)
    run.standing = run.commit(number).stat().st_mtime - run.commit(number - 1).stat().st_mtime


def take_over(run: Run) -> None:
    """Start a standby, and kill the query once that is warm."""
    run.wait_until(_PREPARED)
    process = int(run.query.ask("standby"))
    kill(run, lambda _run: Owner(run, process))


def hand_over(run: Run) -> None:
    """Hand the query over to a new process."""
    run.wait_until(_PREPARED)
    process, seconds = run.query.ask("handover").split()
    run.disturbed, run.standing = len(run.arrived), float(seconds)
    run.query.kill()  # which ends by itself
    run.query = Owner(run, int(process))


def rescale(run: Run) -> None:
    """Rescale the running query to twice its partitions."""
    run.wait_until(_DISTURBED)
    run.standing = float(run.query.ask(f"rescale {2 * run.partitions}"))
