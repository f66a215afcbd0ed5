"""``%stream rescale``: stop after a committed epoch, spread the state anew, verify, go on; or go on as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Source, counts, letters
from notebook_shell import Shell, bare_shell, shell, shown_at_once  # noqa: F401 (fixtures)
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.magics.running import RunningQuery
from streamstate.recovery import rescale as rescaling
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import InvalidArgumentError, QueryError, RescaleError


@pytest.fixture
def running(shell: Shell, source: Source) -> RunningQuery:
    """A query called counts that goes on, with two epochs of input, captured."""
    for epoch in range(2):
        source.add(letters(epoch))
    shell.names["counted"] = counts(source)
    handle = shell.run("%%stream counts --trigger 100ms\ncounted")
    assert isinstance(handle, RunningQuery)
    handle.wait(epoch=1, timeout=120)
    return handle


def partitions(handle: RunningQuery) -> int | None:
    """How many partitions a query's state has."""
    checkpoint = Checkpoint(handle.checkpoint)
    return checkpoint.partitions(checkpoint.committed()[-1])


def test_a_running_query_is_rescaled(
    shell: Shell, running: RunningQuery, source: Source, spark: SparkSession, shown_at_once: list[str]
) -> None:
    """It goes on with the new number, capture too, and the state of every epoch is Spark's."""
    report = shell.run("%stream rescale counts --partitions 5 -o report")
    assert shell.names["report"] is report
    assert report.partitions == (2, 5)
    assert any("comparing it with what it was, key by key" in line for line in shown_at_once)
    assert shown_at_once[-1].startswith("counts has 5 partitions; it stood still for ")
    handle = shell.notebook.query("counts")
    assert handle.state == "running"
    source.add(letters(2))
    assert handle.wait(epoch=report.epoch + 1, timeout=120) > report.epoch
    history = ss.open_store(handle.store)["counts"]
    assert compare(spark, handle.checkpoint, history) == report.epoch + 2
    assert partitions(handle) == 5


def test_a_failure_goes_on_as_before(shell: Shell, running: RunningQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query runs again with its old number, and the error is raised."""

    def lost(*_: Any) -> int:
        raise OSError("executor lost")

    monkeypatch.setattr(rescaling, "repartition", lost)
    assert "executor lost" in shell.fails("%stream rescale counts --partitions 5", RescaleError)
    handle = shell.notebook.query("counts")
    assert handle.state == "running"
    assert partitions(handle) == 2


def test_what_is_refused_leaves_the_query_running(shell: Shell, running: RunningQuery) -> None:
    """The number it has, none, both options: found before anything is stopped."""
    assert "2 partitions already" in shell.fails("%stream rescale --partitions 2", InvalidArgumentError)
    assert "--advise says how many" in shell.fails("%stream rescale counts", InvalidArgumentError)
    shell.fails("%stream rescale counts --partitions 3 --advise", InvalidArgumentError)
    assert running.state == "running"


def test_advice(shell: Shell, running: RunningQuery) -> None:
    """``--advise`` changes nothing, and says why."""
    advice = shell.run("%stream rescale counts --advise -o advice")
    assert shell.names["advice"] is advice
    assert advice.facts.partitions == 2
    assert advice.reasons
    assert running.state == "running"


def test_a_stopped_query_stays_stopped(shell: Shell, running: RunningQuery) -> None:
    """It is rescaled and not started."""
    shell.run("%stream stop counts")
    assert shell.run("%stream rescale counts --partitions 3").partitions == (2, 3)
    assert running.state == "stopped"
    assert partitions(running) == 3


def test_a_query_that_runs_elsewhere(shell: Shell, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """It has to be stopped where it runs; the message says how to go on."""
    shell.run(f"%stream attach {counted[0]} --name away --store {tmp_path / 'store'}")
    assert "Stop it where it runs" in shell.fails("%stream rescale away --partitions 3", QueryError)


def test_a_killed_rescale_is_taken_back_at_a_start(
    shell: Shell, running: RunningQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting the query again says so, and goes on with the old number."""
    shell.run("%stream stop counts")

    def lost(*_: Any) -> int:
        raise OSError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr(rescaling, "verify", lost)
        patched.setattr(rescaling, "recover", lambda *_: None)
        with pytest.raises(RescaleError):
            ss.rescale(running.checkpoint, 4)
    assert partitions(running) == 4
    shell.run("%stream restart counts")
    assert "A rescale of counts to 4 partitions was killed" in shell.said
    assert partitions(running) == 2
