"""Real queries that hang: in a task, in a sink, in a source. Each is noticed with its cause, and the policy acts."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Source
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import streamstate as ss
from streamstate.operations.availability.lease import FAILED, Lease
from streamstate.operations.availability.standby import READY, StandbyStatus, StatusFile
from streamstate.operations.supervision.restart_policy import WhenStalled
from streamstate.operations.supervision.stall_cause import cause_of_stall
from streamstate.operations.supervision.supervise import Supervised
from streamstate.reports import Running
from streamstate.snapshots.store.control_table import SUPERVISION, Control
from streamstate.snapshots.store.layout import Layout

pytestmark = pytest.mark.slow
EPOCHS = 8
"""Epochs after which a query's usual time is known: two of a start, five that count, and one to spare."""
QUICK: dict[str, Any] = {"stalled_after": 2, "stall_floor": 2, "initial_wait": 0}
"""Of a policy that does not wait long."""


def until(condition: Callable[[], object], seconds: float = 90) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class Hanging:
    """A query of ``k`` and ``n``, and a file that makes it hang."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.source, self.folder = source, folder
        self.flag = folder / "hang"
        self.rows: list[str] = []
        self.epochs = EPOCHS
        self.running: Running | None = None

    def add(self) -> None:
        """Add the input of an epoch."""
        keys = [f"k{number}" for number in range(8)]
        self.rows += keys
        self.source.add({"k": keys, "v": [*range(8)]})

    def start(self, frame: DataFrame, **options: Any) -> Supervised:
        """Start it, and hang in the epoch after those that tell its usual time; looks may miss some of them."""
        for _ in range(EPOCHS):
            self.add()
        self.running = ss.start(frame, "q", self.folder / "store", checkpoint=self.folder / "checkpoint", **options)
        self.running.wait(epoch=EPOCHS - 1, timeout=300)
        supervised = self.running.supervised
        assert supervised is not None
        time.sleep(0.5)  # Spark's report on the epoch follows
        while supervised._stalls._pace.usual is None:
            self.add()
            self.running.wait(epoch=self.epochs, timeout=300)
            self.epochs += 1
            time.sleep(0.5)
        self.flag.touch()
        return supervised

    def go_on(self) -> None:
        """Hang no more."""
        self.flag.unlink(missing_ok=True)

    def events(self) -> list[str]:
        """What supervision has written to the store."""
        rows = Control(Layout.at(self.folder / "store"), "q").rows()
        return [str(row.inputs["event"]) for row in rows if row.kind == SUPERVISION]

    def result(self) -> dict[str, int]:
        """The newest captured state."""
        assert self.running is not None
        rows = self.running.history.live().result().to_arrow().to_pylist()
        return {row["k"]: row["n"] for row in rows}


@pytest.fixture
def hanging(source: Source, tmp_path: Path) -> Iterator[Hanging]:
    """A query that can hang; it is let go and stopped at the end."""
    query = Hanging(source, tmp_path)
    yield query
    query.go_on()
    if query.running is not None:
        query.running.newest.stop()


def live(status: StatusFile, supervised: Supervised) -> None:
    """What a standby that is ready writes, until the query is handed over."""
    for beats in itertools.count():
        status.write(StandbyStatus(state=READY, beats=beats))
        if supervised.over:
            return
        time.sleep(0.2)


def counted(frame: DataFrame) -> DataFrame:
    """The rows per key."""
    return frame.groupBy("k").agg(F.count("*").alias("n"))


@pytest.mark.parametrize("act", ["restart", pytest.param("hand over", marks=pytest.mark.exhaustive)])
def test_a_hung_python_worker_is_found_and_the_query_restarted(hanging: Hanging, act: WhenStalled) -> None:
    """The verdict names the task and its worker. The query goes on with the same results as a batch.

    Without a standby, there is nobody to hand it over to.
    """
    flag = str(hanging.flag)

    @F.udf("string")
    def slow(k: str) -> str:
        while k == "k3" and Path(flag).exists():
            time.sleep(0.1)
        return k

    frame = hanging.source.stream().repartition(4, "k").select(slow("k").alias("k"), "v")
    policy = ss.BackOff(**QUICK, when_stalled=act)
    supervised = hanging.start(counted(frame), restart=policy)
    seen: list[str] = []
    hanging.add()

    def restarting() -> bool:
        seen.append(supervised.state)
        return supervised.restarts > 0

    assert hanging.running is not None
    until(lambda: cause_of_stall(supervised.query).kind == "python worker")
    until(restarting)
    stalled = re.compile(
        r"running \(no epoch for \d+ s, usually [\d.]+ s: (task \d of stage \d+ runs [\d.]+ s, the others took [\d.]+ s"
        r"|stage \d+ has 1 of 4 tasks left, the longest running for [\d.]+ s); it waits for its Python worker,"
        " and none uses the CPU"
    )
    assert any(map(stalled.match, seen)), set(seen)
    assert ("no standby is ready to take over" in str(supervised.error)) == (act == "hand over")
    hanging.go_on()
    hanging.add()
    assert hanging.running.wait(epoch=hanging.epochs + 1, timeout=300) == hanging.epochs + 1
    assert hanging.result() == dict(Counter(hanging.rows))
    events = hanging.events()
    assert events[events.index("restart") - 1] == "stalled"
    until(lambda: supervised.state == "running")


def test_a_sink_that_hangs_is_neither_run_twice_nor_handed_over(
    hanging: Hanging, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its function cannot be stopped, so the lease stays. When it returns, the lease is given back for the standby."""
    monkeypatch.setattr("streamstate.operations.supervision.supervise._STOP_SECONDS", 3.0)
    flag = hanging.flag

    def write(rows: DataFrame, _epoch: int) -> None:
        rows.collect()
        while flag.exists():
            time.sleep(0.05)

    policy = ss.BackOff(**QUICK, when_stalled="hand over")
    supervised = hanging.start(counted(hanging.source.stream()), restart=policy, sink=write, lease=3)
    layout = Layout.at(hanging.folder / "store")
    other = threading.Thread(target=live, args=(StatusFile(layout, "q", "standby.other"), supervised))
    other.start()
    hanging.add()
    until(lambda: "cannot be stopped" in hanging.events())
    assert "the function of foreachBatch runs, and no task of Spark does; it cannot be stopped" in supervised.state
    assert hanging.running is not None
    assert "it cannot be stopped: it has not ended after 3 s" in repr(hanging.running)
    assert (supervised.restarts, supervised.over) == (0, False)
    assert [query.runId for query in spark.streams.active] == [supervised.query.runId]
    newest = Lease.of(layout, "q").newest()
    assert newest is not None
    assert newest.released is None
    hanging.go_on()
    until(lambda: hanging.running is not None and hanging.running.state == "failed")
    until(lambda: (term := Lease.of(layout, "q").newest()) is not None and term.released == FAILED)
    other.join()
    assert hanging.events() == ["stalled", "cannot be stopped", "handed over"]
    assert "(not started again: it was handed over to its standby)" in str(hanging.running.status().error)


def counting() -> type[DataSource]:
    """A source that Spark's Python processes get as it is, because they cannot import it."""

    class Counting(DataSource):
        """Its newest offset stands in a file. It takes its time to say so, and hangs while another file exists."""

        @classmethod
        def name(cls) -> str:
            """Its format."""
            return "counting"

        def schema(self) -> str:
            """Its columns."""
            return "k string, v long"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 (Spark's name and arguments)
            """Read it."""

            class Reader(DataSourceStreamReader):
                def __init__(self, folder: Path) -> None:
                    self.folder = folder

                def initialOffset(self) -> dict[str, int]:  # noqa: N802
                    return {"n": 0}

                def latestOffset(self) -> dict[str, int]:  # type: ignore[override] # noqa: N802 (the arguments may be left out)
                    time.sleep(0.3)
                    while (self.folder / "hang").exists():
                        time.sleep(0.05)
                    return {"n": int((self.folder / "newest").read_text())}

                def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
                    return [InputPartition(end["n"] - start["n"])]

                def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
                    return iter([("a", 1)] * int(partition.value))

            return Reader(Path(self.options["path"]))

    return Counting


def test_a_source_that_hangs_is_told_from_an_idle_one(hanging: Hanging, spark: SparkSession) -> None:
    """An idle query never stalls, though its source is asked all the time. One that hangs goes on by itself."""
    spark.dataSource.register(counting())
    newest = hanging.folder / "newest"
    newest.write_text("0")
    frame = spark.readStream.format("counting").load(str(hanging.folder))
    policy = ss.BackOff(stalled_after=1.5, stall_floor=1.5)
    hanging.running = running = ss.start(counted(frame), "q", hanging.folder / "store", restart=policy)
    for epoch in range(EPOCHS):
        newest.write_text(str(epoch + 1))
        running.wait(epoch=epoch, timeout=300)
    supervised = running.supervised
    assert supervised is not None
    end = time.monotonic() + 5
    while time.monotonic() < end:
        assert supervised.state == "running"
        time.sleep(0.1)
    assert hanging.events() == []
    hanging.flag.touch()
    until(lambda: supervised.stall is not None)
    stall = supervised.stall
    assert stall is not None
    assert stall.cause.kind == "source"
    assert "PythonMicroBatchStream does not answer: PythonStreamingSourceRunner.latestOffset" in str(stall)
    newest.write_text(str(EPOCHS + 1))
    hanging.go_on()
    assert running.wait(epoch=EPOCHS, timeout=300) == EPOCHS
    until(lambda: hanging.events() == ["stalled", "went on"])
    assert supervised.state == "running"
    assert supervised.restarts == 0


def test_a_burst_is_slow_and_no_stall(hanging: Hanging) -> None:
    """While its tasks end one after the other, an epoch may take much longer than usual."""
    flag = str(hanging.flag)

    @F.udf("string")
    def slow(k: str) -> str:
        time.sleep(float(Path(flag).read_text() or 0) if Path(flag).exists() else 0)
        return k

    frame = hanging.source.stream().repartition(16).select(slow("k").alias("k"), "v")
    supervised = hanging.start(counted(frame), restart=ss.BackOff(**QUICK))
    bound, rows, cores = supervised._stalls._pace.bound, 96, 2
    assert bound is not None
    hanging.flag.write_text(str(1.6 * bound * cores / rows))
    hanging.source.add({"k": ["burst"] * rows, "v": [*range(rows)]})
    assert hanging.running is not None
    assert hanging.running.wait(epoch=hanging.epochs, timeout=300) == hanging.epochs
    until(lambda: (report := supervised.query.lastProgress) is not None and report["batchId"] == hanging.epochs)
    report = supervised.query.lastProgress
    assert report is not None
    assert report["durationMs"]["triggerExecution"] / 1000 > 1.5 * bound
    assert hanging.events() == []
