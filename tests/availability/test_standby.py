"""A standby takes a query over: nothing is lost or done twice, and the first owner never commits again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from availability import primary
from availability.owners import check_undisturbed, write_file
from streamstate.operations.availability.lease import STOPPED, Lease
from streamstate.operations.drill.processes import _processes_of, kill_session
from streamstate.snapshots.store.layout import Layout

pytestmark = pytest.mark.slow
LASTS = 3.0


class Owners:
    """A primary and its standby, over a folder of input files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.checkpoint, self.files = folder, folder / "checkpoint", 0
        self.input = folder / "input"
        self.input.mkdir()
        (folder / "out").mkdir()
        self.feed(3)
        self.log = (folder / "log").open("wb")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, sys.path)),
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        command = [sys.executable, primary.__file__, str(folder), str(LASTS)]
        self.process = subprocess.Popen(
            command, env=environment, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def feed(self, files: int) -> None:
        """Add input files, each for an epoch."""
        for number in range(self.files, self.files + files):
            write_file(self.input, number)
        self.files += files

    def event(self, what: str) -> dict[str, Any] | None:
        """The first event of a kind."""
        with suppress(FileNotFoundError):
            for line in (self.folder / "events").read_text().splitlines():
                if (event := json.loads(line))["what"] == what:
                    return dict(event)
        return None

    def wait(self, condition: Callable[[], Any], seconds: float = 240) -> Any:
        """Wait for a condition, and return what it gives."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            log = (self.folder / "log").read_text(errors="replace")[-2000:]
            assert time.monotonic() < end, f"{self.event('standby failed')}\n{log}"
            time.sleep(0.02)
        return found

    @property
    def committed(self) -> int:
        """The newest committed epoch."""
        return max((int(file.name) for file in self.checkpoint.glob("commits/*") if file.name.isdigit()), default=-1)

    def begin_epoch(self) -> None:
        """Wait until an epoch is planned that has all the input there is.

        Before that, Spark may have noted its file already; a restart then reads that together with the next one.
        """
        self.feed(1)
        self.wait((self.checkpoint / "offsets" / str(self.files - 1)).exists)

    def ready(self) -> int:
        """Wait until the standby is warm, and return its process id."""
        self.wait(lambda: self.event("ready"))
        return int((self.event("standby") or {})["pid"])

    def close(self) -> None:
        """Kill what still runs."""
        sessions = [self.process.pid]
        if (standby := self.event("standby")) is not None:
            sessions.append(int(standby["pid"]))
        for session in sessions:
            kill_session(session)
        self.process.wait()
        self.log.close()


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[Owners]:
    """A primary with a standby that is starting."""
    made = Owners(tmp_path)
    yield made
    made.close()


def writers(owners: Owners, epoch: int) -> set[int]:
    """The processes that wrote the results of an epoch."""
    return {int(file.stem.partition("-")[2]) for file in (owners.folder / "out").glob(f"{epoch}-*.json")}


def end_standby(owners: Owners, process: int) -> None:
    """Stop the query where the standby runs it."""
    standby = psutil.Process(process)
    standby.send_signal(signal.SIGTERM)
    owners.wait(lambda: not standby.is_running() or standby.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.exhaustive  # a drill kills the owner too
def test_a_kill(spark: SparkSession, owners: Owners) -> None:
    """The standby goes on in the epoch in which the primary was killed."""
    standby = owners.ready()
    owners.begin_epoch()
    kill_session(owners.process.pid)
    owners.feed(3)
    owners.wait(lambda: owners.committed == owners.files - 1)
    assert writers(owners, owners.files - 1) == {standby}
    end_standby(owners, standby)
    assert (newest := Lease.of(Layout.at(owners.folder / "store"), "counts").newest()) is not None
    assert (newest.number, newest.released) == (2, STOPPED)
    check_undisturbed(spark, owners.folder, owners.files)


def test_a_pause(spark: SparkSession, owners: Owners) -> None:
    """The primary wakes up after the takeover: it stops, says why, and has committed nothing more."""
    standby = owners.ready()
    owners.begin_epoch()
    paused = _processes_of(owners.process.pid)
    for process in paused:
        process.suspend()
    owners.feed(3)
    owners.wait(lambda: owners.committed == owners.files - 1)
    commits = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in owners.checkpoint.glob("commits/[0-9]*")}
    for process in paused:
        process.resume()
    end = owners.wait(lambda: owners.event("end"))
    assert end["state"] == "failed"
    assert "another process may run it" in end["error"]
    owners.wait(lambda: owners.event("stopped"))
    after = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in owners.checkpoint.glob("commits/[0-9]*")}
    assert after == commits
    owners.feed(2)
    owners.wait(lambda: owners.committed == owners.files - 1)
    assert writers(owners, owners.files - 1) == {standby}
    end_standby(owners, standby)
    check_undisturbed(spark, owners.folder, owners.files)


@pytest.mark.exhaustive
def test_a_standby_that_is_killed(owners: Owners) -> None:
    """The primary goes on, and shows that it has no standby any more."""
    standby = owners.ready()
    kill_session(standby)
    owners.wait(lambda: owners.event("standby failed"))
    owners.feed(3)
    owners.wait(lambda: owners.committed == owners.files - 1)
    assert owners.event("end") is None


def test_a_clean_stop(owners: Owners) -> None:
    """Stopping the query ends its standby, which does not take it over."""
    standby = psutil.Process(owners.ready())
    (owners.folder / "stop").touch()
    owners.wait(lambda: owners.event("stopped"))
    owners.wait(lambda: not standby.is_running() or standby.status() == psutil.STATUS_ZOMBIE)
    committed = owners.committed
    owners.feed(1)
    assert (newest := Lease.of(Layout.at(owners.folder / "store"), "counts").newest()) is not None
    assert (newest.number, newest.released) == (1, STOPPED)
    assert owners.committed == committed
    assert not [*owners.folder.glob(".checkpoint-standby*")]
