"""A query whose lease is lost is stopped, and one that another process owns is not started."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Source, counts, letters
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from sampling import sampled

import streamstate as ss
from availability.owners import until
from streamstate.errors import NotOwnerError, QueryError
from streamstate.launch.claiming import remove_drafts
from streamstate.launch.running import Running
from streamstate.operations.availability.lease import FAILED, STOPPED, Lease
from streamstate.snapshots.spark.stop_timer import StopTimer
from streamstate.snapshots.store.layout import Layout

LASTS = 3.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of the query ``counts``."""
    return tmp_path / "store"


@pytest.fixture
def start(spark: SparkSession, source: Source, store: Path) -> Iterator[Callable[..., Running]]:
    """Starts the query ``counts`` with a lease, and waits for its first epoch."""
    started: list[Running] = []

    def starting(frame: DataFrame | None = None, **options: Any) -> Running:
        source.add(letters(len(started)))
        query = counts(source) if frame is None else frame
        options = {"lease": LASTS} | options
        running = ss.start(query, "counts", store, checkpoint=store.parent / "checkpoint", **options)
        started.append(running)
        until(lambda: (running.query is not None and running.query.lastProgress) or running.state == "failed")
        return running

    yield starting
    for running in started:
        running.newest.stop()


def lease(store: Path) -> Lease:
    """The lease on the query, as another process sees it."""
    return Lease.of(Layout.at(store), "counts", lasts=LASTS)


def overtake(store: Path) -> None:
    """Begin the next term, as a challenger does that has seen no renewal."""
    other = lease(store)
    newest = other.newest()
    assert newest is not None
    other.files.create(f"{other.folder}/{newest.number + 1}", "{}")


def released(store: Path) -> str | None:
    """Why the newest term was released."""
    newest = lease(store).newest()
    return None if newest is None else newest.released


def test_a_query_whose_lease_is_lost_is_stopped(start: Callable[..., Running], store: Path) -> None:
    """Its handle says why, and a restart finds the owner."""
    running = start()
    overtake(store)
    until(lambda: running.state == "failed")
    assert running.query is not None
    assert not running.query.isActive
    with pytest.raises(QueryError, match="another process may run it: term 2 of the lease has begun"):
        running.wait(epoch=7, timeout=300)
    assert "term 2" in str(running.status().error)


def test_supervision_does_not_restart_it(start: Callable[..., Running], store: Path) -> None:
    """The query has not failed: it belongs to another process."""
    running = start(restart=ss.BackOff())
    overtake(store)
    until(lambda: running.state == "failed")
    assert running.supervised is not None
    assert (running.supervised.over, running.supervised.restarts) == (True, 0)


def test_a_lost_lease_keeps_the_sink_from_being_called(
    start: Callable[..., Running], store: Path, source: Source
) -> None:
    """A function of ``foreachBatch`` is called by the owner only."""
    seen: list[int] = []

    def note(rows: DataFrame, epoch: int) -> None:
        rows.collect()
        seen.append(epoch)

    running = start(sink=note)
    assert running.launch is not None
    held = running.launch.fence.lease
    assert held is not None
    held.lost, held._held = "a test took it", None
    source.add(letters(5))
    until(lambda: running.state == "failed")
    assert seen == [0]


@pytest.mark.slow
def test_a_store_that_cannot_be_written_stops_the_query(
    start: Callable[..., Running], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease runs out, by the holder's own clock; nobody has to take it over."""
    running = start()
    assert running.launch is not None
    held = running.launch.fence.lease
    assert held is not None

    def refuse(*_: object, **__: object) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr(held.files, "replace", refuse)
    began = time.monotonic()
    until(lambda: running.state == "failed")
    assert time.monotonic() - began < LASTS
    assert "was not renewed in time" in str(running.status().error)


@pytest.mark.slow
def test_a_renewal_that_failed_once_stops_nothing(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one counts, and the timer in the JVM goes with it."""
    running = start()
    assert running.launch is not None
    held = running.launch.fence.lease
    assert held is not None
    failed: list[str] = []
    write = held.files.replace

    def refuse_once(path: str, text: str) -> None:
        if not failed:
            failed.append(path)
            raise OSError("the connection was reset")
        write(path, text)

    monkeypatch.setattr(held.files, "replace", refuse_once)
    until(lambda: failed)
    time.sleep(LASTS)  # nothing is to happen
    assert running.state == "running"
    assert running.launch.fence.error is None


def test_the_timer_stops_a_query_while_python_does_nothing(start: Callable[..., Running], spark: SparkSession) -> None:
    """It is in the JVM; a setting that was replaced in time has no effect."""
    running = start()
    query: StreamingQuery | None = running.query
    assert query is not None
    timer = StopTimer(spark, str(query.id))
    assert timer.keep(timer.set(0.3))
    assert timer.keep(timer.set(600))
    time.sleep(0.5)  # nothing is to happen
    assert query.isActive
    timer.keep(timer.set(0.05))
    until(lambda: not query.isActive)
    assert not timer.keep(timer.set(600))
    timer.end()


@pytest.mark.slow
def test_python_that_is_paused_does_not_keep_the_query(start: Callable[..., Running]) -> None:
    """The renewals end, as those of a process that is stopped by a debugger; then the JVM stops the query."""
    running = start()
    assert running.launch is not None
    assert running.query is not None
    fence = running.launch.fence
    query = running.query
    assert fence.lease is not None
    with fence.lease._lock:  # the thread that renews waits for it
        until(lambda: not query.isActive, 10)
    until(lambda: running.state == "failed")


@pytest.mark.slow
def test_a_stopped_query_gives_its_lease_back(start: Callable[..., Running], store: Path) -> None:
    """Those that wait for it know that it was stopped on purpose, and another start needs no lease."""
    running = start()
    running.stop()
    assert released(store) == STOPPED
    again = start(lease=None)
    assert again.launch is not None
    assert again.launch.fence.lease is None


@pytest.mark.slow
def test_the_lease_is_kept_through_restarts(start: Callable[..., Running], store: Path) -> None:
    """Restarting, supervising and rescaling are those of one owner; an old handle does not release it."""
    first = start()
    running = first.restart()
    running = running.supervise()
    running.wait(epoch=0, timeout=300)
    running.rescale(3)
    first.stop()
    newest = lease(store).newest()
    assert newest is not None
    assert (newest.number, newest.released) == (1, None)
    assert running.state == "running"
    assert newest.launch["mode"] == "update"


def test_a_query_that_fails_frees_its_lease(start: Callable[..., Running], store: Path) -> None:
    """A standby need not wait."""

    def fail(_rows: DataFrame, _epoch: int) -> None:
        raise ValueError("no luck")

    running = start(sink=fail)
    until(lambda: running.state == "failed")
    until(lambda: released(store) == FAILED)


def test_a_query_that_another_process_owns_is_not_started(start: Callable[..., Running], store: Path) -> None:
    """The error names the owner; it comes as soon as that shows a sign of life."""
    owner = lease(store)
    assert owner.try_acquire()
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(0.1):
            owner.renew()

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        for lasts in (None, LASTS):
            with pytest.raises(NotOwnerError, match=r"counts is owned by process \d+ on .*, which holds term 1"):
                start(lease=lasts)
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_a_lease_that_was_left_behind_is_waited_for(start: Callable[..., Running], store: Path) -> None:
    """The process that was killed may be paused only, so the start takes as long as its lease lasts."""
    assert lease(store).try_acquire()
    began = time.monotonic()
    running = start(lease=None)
    assert time.monotonic() - began >= LASTS
    assert running.launch is not None
    assert running.launch.fence.lease is not None
    assert running.launch.fence.lease.token == 2


@pytest.mark.parametrize("log", sampled(["offsets", "commits"], 1))
def test_spark_creates_an_epoch_once(start: Callable[..., Running], source: Source, store: Path, log: str) -> None:
    """Of two queries that plan or commit an epoch, one fails."""
    entered, go_on = threading.Event(), threading.Event()

    def hold(rows: DataFrame, epoch: int) -> None:
        rows.collect()
        if epoch == 1:
            entered.set()
            go_on.wait(60)

    running = start(sink=hold, lease=None)
    checkpoint = store.parent / "checkpoint"
    if log == "offsets":
        (checkpoint / "offsets" / "1").write_bytes((checkpoint / "offsets" / "0").read_bytes())
        go_on.set()
        source.add(letters(1))
    else:
        source.add(letters(1))
        entered.wait(60)
        (checkpoint / "commits" / "1").write_bytes((checkpoint / "commits" / "0").read_bytes())
        go_on.set()
    until(lambda: running.state == "failed")
    assert running.query is not None
    assert "CONCURRENT_STREAM_LOG_UPDATE" in str(running.query.exception())


@pytest.mark.parametrize("manager", ["FileContextBased", "FileSystemBased"])
def test_an_owner_that_was_paused_before_a_rename_fails(spark: SparkSession, tmp_path: Path, manager: str) -> None:
    """Its successor has deleted the temporary file, so no commit is replaced."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    package = "org.apache.spark.sql.execution.streaming.checkpointing"
    commits = tmp_path / "commits"
    commits.mkdir()
    path = jvm.org.apache.hadoop.fs.Path
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    made = jvm.java.lang.Class.forName(f"{package}.{manager}CheckpointFileManager").getConstructors()[0]
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0], arguments[1] = path(str(commits)), conf
    stream = made.newInstance(arguments).createAtomic(path(str(commits / "7")), False)
    stream.write(1)
    assert any(file.name.endswith(".tmp") for file in commits.iterdir())
    remove_drafts(str(tmp_path), spark)
    with pytest.raises(Exception, match=r"(?i)FileNotFound|not found|does not exist"):
        stream.close()
    assert not (commits / "7").exists()
