"""``%stream rescale`` stops a query, repartitions and verifies its state, and restarts the query, also on failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Source, counts, letters
from notebook_shell import Shell, bare_shell, shell, shown_at_once  # noqa: F401 (fixtures)
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.errors import InvalidArgumentError, QueryError, RescaleError
from streamstate.launch.running import Running
from streamstate.operations.rescaling import rescale as rescaling
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles


@pytest.fixture
def running(shell: Shell, source: Source) -> Running:
    """A running query ``counts`` with two captured epochs."""
    for epoch in range(2):
        source.add(letters(epoch))
    shell.names["counted"] = counts(source)
    handle = shell.run("%%stream counts --trigger 100ms\ncounted")
    assert isinstance(handle, Running)
    handle.wait(epoch=1, timeout=300)
    return handle


def partitions(handle: Running) -> int | None:
    """The number of partitions of a query's state."""
    checkpoint = CheckpointFiles(handle.checkpoint)
    return checkpoint.partitions(checkpoint.committed()[-1])


@pytest.mark.slow
def test_a_running_query_is_rescaled(
    shell: Shell, running: Running, source: Source, spark: SparkSession, shown_at_once: list[str]
) -> None:
    """It is restarted with the new number of partitions, and every captured state equals Spark's."""
    report = shell.run("%stream rescale counts --partitions 5 -o report")
    assert shell.names["report"] is report
    assert report.partitions == (2, 5)
    assert any("comparing the state before and after, key by key" in line for line in shown_at_once)
    assert shown_at_once[-1].startswith("counts has 5 partitions; it was stopped for ")
    handle = shell.notebook.query("counts")
    assert handle.state == "running"
    source.add(letters(2))
    assert handle.wait(epoch=report.epoch + 1, timeout=300) > report.epoch
    history = ss.open_store(handle.store)["counts"]
    assert compare(spark, handle.checkpoint.path, history) == report.epoch + 2
    assert partitions(handle) == 5


@pytest.mark.slow
def test_a_failed_rescale_restarts_the_query(shell: Shell, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query has its old number of partitions, and the error is raised."""

    def lost(*_: Any) -> int:
        raise OSError("executor lost")

    monkeypatch.setattr(rescaling, "repartition", lost)
    assert "executor lost" in shell.fails("%stream rescale counts --partitions 5", RescaleError)
    handle = shell.notebook.query("counts")
    assert handle.state == "running"
    assert partitions(handle) == 2


def test_an_invalid_line_leaves_the_query_running(shell: Shell, running: Running) -> None:
    """The current number, a missing number, and a number with --advise are refused."""
    assert "already has 2 partitions" in shell.fails("%stream rescale --partitions 2", InvalidArgumentError)
    assert "--advise recommends" in shell.fails("%stream rescale counts", InvalidArgumentError)
    shell.fails("%stream rescale counts --partitions 3 --advise", InvalidArgumentError)
    assert running.state == "running"


@pytest.mark.exhaustive
def test_advise_changes_nothing(shell: Shell, running: Running) -> None:
    """``--advise`` returns the facts and the reasons."""
    advice = shell.run("%stream rescale counts --advise -o advice")
    assert shell.names["advice"] is advice
    assert advice.facts.partitions == 2
    assert advice.reasons
    assert running.state == "running"


@pytest.mark.slow
def test_a_stopped_query_stays_stopped(shell: Shell, running: Running) -> None:
    """It is rescaled, but not restarted."""
    shell.run("%stream stop counts")
    assert shell.run("%stream rescale counts --partitions 3").partitions == (2, 3)
    assert running.state == "stopped"
    assert partitions(running) == 3


def test_a_query_that_runs_elsewhere_is_refused(shell: Shell, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """The message says to stop it where it runs."""
    shell.run(f"%stream attach {counted[0]} --name away --store {tmp_path / 'store'}")
    assert "Stop it where it runs" in shell.fails("%stream rescale away --partitions 3", QueryError)


def test_an_interrupted_rescale_is_undone_at_the_next_start(
    shell: Shell, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restart reports this, and the query has its old number of partitions."""
    shell.run("%stream stop counts")

    def lost(*_: Any) -> int:
        raise OSError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr(rescaling, "compare_states", lost)
        patched.setattr(rescaling, "recover_rescale", lambda *_: None)
        with pytest.raises(RescaleError):
            ss.Checkpoint(running.checkpoint.path).rescale(4)
    assert partitions(running) == 4
    shell.run("%stream restart counts")
    assert "An interrupted rescale of counts was undone" in shell.printed
    assert partitions(running) == 2
