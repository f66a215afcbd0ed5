"""A planned handover: new code goes on in another process between two epochs, or the old code goes on here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import drilled
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from availability import primary
from availability.owners import check_undisturbed, until, write_file
from streamstate.errors import QueryError
from streamstate.launch.handover import _Handover
from streamstate.launch.running import Running
from streamstate.operations.availability.lease import STOPPED, Lease
from streamstate.operations.availability.local_processes import identified
from streamstate.operations.availability.standby import OWNER, StandbyStatus, StatusFile
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.state_stores import replay_ahead
from streamstate.snapshots.store.layout import Layout

pytestmark = pytest.mark.slow


def new_code(folder: Path) -> DataFrame:
    """The same query with a condition that always holds, and fails while there is a file ``gate``."""

    @F.udf("boolean")
    def passes(_key: str) -> bool:
        if (folder / "gate").exists():
            raise ValueError("the gate is closed")
        return True

    frame = drilled.letters(folder / "input").where(passes("k"))
    return frame.groupBy("k").agg(F.count("*"), F.avg("v"), F.max("v"))


class Query:
    """A query that runs here, over a folder of input files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, 0
        for name in ("input", "out"):
            (folder / name).mkdir()
        self.feed(3)
        self.build: Callable[[], DataFrame] = partial(drilled.counts, folder / "input")
        self.running = ss.start(
            self.build(),
            "counts",
            folder / "store",
            checkpoint=folder / "checkpoint",
            sink=partial(primary.write_rows, folder),
            trigger="300ms",
        )
        self.reach()

    def feed(self, files: int) -> None:
        """Add input files, each for an epoch."""
        for number in range(self.files, self.files + files):
            write_file(self.folder / "input", number)
        self.files += files

    @property
    def committed(self) -> list[int]:
        """The committed epochs."""
        return sorted(int(file.name) for file in (self.folder / "checkpoint" / "commits").glob("[0-9]*"))

    def reach(self) -> None:
        """Wait until the input is processed."""
        until(lambda: self.committed == [*range(self.files)])

    def writers(self, epoch: int) -> list[int]:
        """The processes that wrote the results of an epoch."""
        return [int(file.stem.partition("-")[2]) for file in (self.folder / "out").glob(f"{epoch}-*.json")]


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Iterator[Query]:
    """A query that has committed three epochs."""
    made = Query(tmp_path)
    yield made
    made.running.newest.stop()


def ended_process() -> dict[str, Any] | None:
    """What identifies a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        return identified([process.pid])


def newest_term(query: Query) -> tuple[int, str | None]:
    """The number of the lease's newest term, and why it was released."""
    newest = Lease.of(Layout.at(query.folder / "store"), "counts").newest()
    assert newest is not None
    return newest.number, newest.released


def test_code_that_means_something_else(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before a process starts, and so is code that Spark refuses; an epoch that runs is no finding."""
    monkeypatch.setattr(sys.modules["streamstate.operations.code_check.check"], "unfinished_epoch", lambda _: 3)
    with pytest.raises(QueryError, match=r"runs as before. If that is meant, pass changed=True") as refused:
        query.running.hand_over(partial(new_code, query.folder))
    assert "unfinished" not in str(refused.value)
    with pytest.raises(QueryError, match=r"runs as before. Change the code"):
        query.running.hand_over(lambda: query.build().select("k"), changed=True)
    assert query.running.state == "running"
    assert not (query.folder / "store" / "counts" / "_lease").exists()


def test_much_to_replay_is_waited_out(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query runs on until a snapshot leaves few changes, or few bytes; but not for ever, nor if it ends."""
    running, files = query.running, CheckpointFiles(query.folder / "checkpoint")
    versions, size = replay_ahead(files, query.committed[-1])
    written = [file.stat().st_size for file in (query.folder / "checkpoint" / "state").glob(f"*/*/{versions}_*log")]
    assert (versions, size) == (query.files, versions * sum(written))
    assert running.launch is not None
    handover = _Handover(running, running.launch, files, 60, lambda *_: None)
    asked: list[tuple[int, int]] = []

    def replays(*found: tuple[int, int]) -> None:
        asked[:] = found
        monkeypatch.setattr("streamstate.launch.handover.replay_ahead", lambda *_: asked.pop(0))

    for few in ((12, 9_000_000), (60, 1_000_000)):
        replays((60, 9_000_000), few, (0, 0))
        handover._wait_for_snapshot()
        assert asked == [(0, 0)]
    replays(*[(60, 9_000_000)] * 9)
    with monkeypatch.context() as changed:
        changed.setattr("streamstate.launch.handover._UPLOAD_SECONDS", 1.2)
        handover._wait_for_snapshot()
    assert 0 < len(asked) < 8
    running.newest.stop()
    with pytest.raises(QueryError, match="it is stopped"):
        handover._wait_for_snapshot()


def test_the_query_stops_right_after_a_commit(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on until the next one, if that is due soon; but not for ever, nor if none is usual."""
    running, files = query.running, CheckpointFiles(query.folder / "checkpoint")
    assert running.launch is not None
    handover = _Handover(running, running.launch, files, 60, lambda *_: None)
    monkeypatch.setattr("streamstate.launch.handover._COMMIT_SECONDS", 60.0)
    before = query.committed
    for usual in (None, 0.01):
        monkeypatch.setattr(handover, "_usual", lambda _epoch, usual=usual: usual)
        handover._wait_for_commit()

    def feed(_epoch: int) -> float:
        query.feed(1)
        return 30.0

    monkeypatch.setattr(handover, "_usual", feed)
    handover._wait_for_commit()
    assert query.committed == [*before, query.files - 1]


def test_a_handover(spark: SparkSession, query: Query) -> None:
    """Code that fails in its first epoch is taken back; then it goes on after the old code, and nothing is lost."""
    gate, left = query.folder / "gate", query.folder / ".checkpoint-standby.killed"
    left.mkdir()
    StatusFile(Layout.at(query.folder / "store"), "counts", left.name.removeprefix(".checkpoint-")).write(
        StandbyStatus(processes=ended_process())
    )

    def close(message: str, _share: float | None) -> None:
        if "starting" in message:
            gate.touch()
            query.feed(1)

    with pytest.raises(QueryError, match=r"runs as before: the new code failed.*the gate is closed"):
        query.running.hand_over(partial(new_code, query.folder), changed=True, progress=close)
    running: Running = query.running.newest
    assert running.state == "running"
    query.reach()
    gate.unlink()
    before = query.files

    def feed(message: str, _share: float | None) -> None:
        if "starting" in message:
            query.feed(2)

    report = running.hand_over(partial(new_code, query.folder), changed=True, progress=feed)
    try:
        assert report.epoch == before - 1
        assert report.owner.status().state == OWNER
        assert report.seconds is not None
        assert report.seconds < 60
        assert "the code changes: " in repr(report)
        assert running.state == "stopped"
        until(lambda: not [*query.folder.glob(".checkpoint-standby*")])  # not even what one that was killed has left
        query.reach()
        assert {*query.writers(query.files - 1)} == {report.owner.process.pid}
        history = ss.open_store(query.folder / "store")["counts"]
        until(lambda: history.captured() == query.committed)
    finally:
        report.owner.stop()
    assert newest_term(query) == (4, STOPPED)
    check_undisturbed(spark, query.folder, query.files)
    with pytest.raises(QueryError, match="is stopped, and only a query that runs in this process"):
        running.hand_over(query.build)
