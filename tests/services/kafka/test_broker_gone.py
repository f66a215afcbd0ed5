"""Brokers that do not answer, and topics that were deleted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from pyspark.sql import functions as f

import streamstate as ss
from services.kafka.broker import Broker
from services.kafka.counting import Counting, counts
from streamstate.errors import NotReplayableError, QueryError
from streamstate.snapshots.spark import kafka_broker
from streamstate.tutorials.broker import free_port
from streamstate.tutorials.staging import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def query(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Counting:
    """A query with two epochs over a topic that was deleted afterwards."""
    broker.create("gone")
    made = Counting(spark, broker, "gone", tmp_path_factory.mktemp("gone"), subscribe="gone")
    for _ in range(2):
        broker.produce("gone", ((n % 2, f"k{n % 5}", "v") for n in range(20)))
        made.run()
    broker.delete("gone")
    return made


_KILLED = """
import os, signal, sys
from streamstate.tutorials.broker import Broker
print(Broker(sys.argv[1])._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_broker_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    """As a kernel is that takes too long to shut down."""
    command = [sys.executable, "-c", _KILLED, str(tmp_path / "broker")]
    started = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert started.returncode == -9, started.stderr
    pid = int(started.stdout)
    assert wait_until(lambda: not psutil.pid_exists(pid), timeout=60)


@pytest.fixture
def nobody() -> str:
    """An address at which nobody answers."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shorter wait for brokers."""
    monkeypatch.setattr(kafka_broker, "ANSWERS_WITHIN", 1)


def _rehearsed(query: Counting, code: Callable[[], DataFrame], tmp_path: Path) -> None:
    query.checkpoint.fork(tmp_path / "fork", at=0).step(code)


def _replayed(query: Counting, code: Callable[[], DataFrame], tmp_path: Path) -> None:
    query.checkpoint.replay(code, epochs=(1, 1), to=tmp_path / "replay")


def _audited(query: Counting, code: Callable[[], DataFrame], tmp_path: Path) -> None:
    query.checkpoint.audit(code, epochs=(1, 1), replays=1, store=tmp_path / "audits")


PAST = pytest.mark.parametrize(
    "again", [_rehearsed, *(pytest.param(again, marks=pytest.mark.exhaustive) for again in (_replayed, _audited))]
)


@PAST
@pytest.mark.usefixtures("impatient")
def test_what_runs_again_asks_a_silent_broker_once(
    query: Counting, again: Callable[[Counting, Callable[[], DataFrame], Path], None], nobody: str, tmp_path: Path
) -> None:
    """It ends at once, and names the address."""
    began = time.monotonic()
    with pytest.raises(NotReplayableError, match=rf"Kafka at {nobody} does not answer"):
        again(query, query.elsewhere(nobody), tmp_path)
    assert time.monotonic() - began < 15


@PAST
def test_what_runs_again_names_a_deleted_topic(
    query: Counting, again: Callable[[Counting, Callable[[], DataFrame], Path], None], tmp_path: Path
) -> None:
    """Rather than Java's stack."""
    with pytest.raises(NotReplayableError, match="the topic gone has been deleted"):
        again(query, query.build, tmp_path)


def test_inputs_wait_a_few_seconds_for_a_silent_broker(query: Counting, nobody: str) -> None:
    """Not three minutes."""
    history = query.history
    history.describe(query.elsewhere(nobody))
    began = time.monotonic()
    try:
        with pytest.raises(NotReplayableError, match=rf"Kafka at {nobody} does not answer"):
            history.inputs(1)
        assert time.monotonic() - began < 8
    finally:
        history.describe(query.build)


def test_inputs_and_why_name_a_deleted_topic(query: Counting) -> None:
    """Rather than Java's stack."""
    query.history.describe(query.build)
    with pytest.raises(NotReplayableError, match="the topic gone has been deleted"):
        query.history.inputs(1)
    with pytest.raises(NotReplayableError, match="the topic gone has been deleted"):
        query.history.why(1, k="k3")


@pytest.mark.usefixtures("impatient")
def test_a_query_does_not_start_without_its_broker(query: Counting, nobody: str, tmp_path: Path) -> None:
    """Neither does a recorder."""
    frame = query.elsewhere(nobody)()
    with pytest.raises(QueryError, match=rf"Kafka at {nobody} does not answer"):
        ss.start(frame, "silent", tmp_path / "store")
    with pytest.raises(QueryError, match="There is no topic gone at"):
        ss.start(query.build(), "deleted", tmp_path / "store")


@pytest.mark.usefixtures("impatient")
def test_check_says_that_spark_would_not_start(query: Counting, nobody: str) -> None:
    """The code is refused until the broker answers, and has the topic."""
    silent = query.checkpoint.check(query.elsewhere(nobody))
    assert [finding.kind for finding in silent.findings if finding.level == "refused"] == ["source_unreachable"]
    deleted = query.checkpoint.check(query.build)
    assert [finding.kind for finding in deleted.findings if finding.level == "refused"] == ["topics_missing"]


def test_a_restart_asks_first(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A query goes on if it could not be started again. Supervision counts a start that is refused as a failure."""
    broker.create("lost", 1)
    broker.produce("lost", [(0, "k", "v")])
    failing = f.when(f.col("k") == "boom", f.raise_error(f.lit("boom"))).otherwise(f.col("k"))
    frame = counts(spark, broker.servers, subscribe="lost").withColumn("k", failing)
    back_off = ss.BackOff(initial_wait=1, max_failures_without_progress=2)
    running = ss.start(frame, "lost", tmp_path / "store", partitions=1, restart=back_off)
    running.wait(epoch=0, timeout=300)
    broker.produce("lost", [(0, "boom", "v")])
    assert running.supervised is not None
    while not running.supervised.restarting:
        time.sleep(0.05)
    broker.delete("lost")
    with pytest.raises(QueryError, match="There is no topic lost at"):
        running.restart()
    with pytest.raises(QueryError, match=r"failed 3 times in a row.*Last failure: There is no topic lost at"):
        running.supervised.wait(60)
    assert running.supervised.restarts == 0
    running.stop()
