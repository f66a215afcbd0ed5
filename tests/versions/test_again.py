"""Epochs run again: forks, steps, replays, audits, and a fork that takes over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import streamstate as ss
from versions.queries import EPOCHS, Totals, add, aggregated, input_of, recaptured, state, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.versions("`Checkpoint.fork`, `step`")
def test_a_fork_steps(totals: Totals, tmp_path: Path) -> None:
    """Each epoch has the state of the batch; the original is as it was."""
    fork = totals.checkpoint.fork(tmp_path / "fork", at=0)
    assert recaptured(fork, tmp_path / "before", 0) == totals.expected(0)
    report = fork.step(totals.build, epochs=5, store=tmp_path / "store", name="fork")
    assert report.epoch == EPOCHS - 1
    for epoch in range(1, EPOCHS):
        assert state(ss.open_store(tmp_path / "store")["fork"], epoch) == totals.expected(epoch)
    assert totals.checkpoint.epochs()["epoch"].tolist() == [*range(EPOCHS)]


@pytest.mark.versions("`Checkpoint.replay`")
def test_a_replay(totals: Totals) -> None:
    """The same code gives the same state, other code another."""
    assert totals.checkpoint.replay(totals.build, epochs="1..2").same

    def build() -> DataFrame:
        return aggregated(stream(totals.spark, totals.input).where("k <> 'k1' OR v <> 13"))

    other = totals.checkpoint.replay(build, epochs="1..2")
    first = other.comparison.first
    assert first is not None
    assert (first.epoch, dict(first.key)) == (1, {"k": "k1"})


@pytest.mark.versions("`Checkpoint.debug`")
def test_a_debug_session(totals: Totals) -> None:
    """Forward and back."""
    with totals.checkpoint.debug(totals.build, at=0) as session:
        assert session.step().epoch == 1
        assert state(session.history, 1) == totals.expected(1)


@pytest.mark.versions("`Checkpoint.promote`", since="4.0")
def test_a_fork_takes_over(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The query goes on with the fork's state: epoch 1 read without one key."""
    folder = tmp_path_factory.mktemp("taken_over")
    own = Totals.started(spark, folder, epochs=2)

    def build() -> DataFrame:
        return aggregated(stream(own.spark, own.input).where("k <> 'only1'"))

    fork = own.checkpoint.fork(folder / "fork", at=0)
    fork.step(build)
    assert fork.promote(over=own.checkpoint).epoch == 1
    add(own.input, 2, input_of(2))
    assert own.running is not None
    epoch = own.running.restart().wait(timeout=300)
    assert epoch == 3  # after an epoch in which the fork took over
    assert state(own.history, epoch) == {row for row in own.expected(2) if row[0] != "only1"}


@pytest.mark.versions("`Checkpoint.audit`")
def test_an_audit(totals: Totals) -> None:
    """A deterministic query is clean, in other partitions too."""
    audit = totals.checkpoint.audit(totals.build, replays=1)
    assert audit.clean, audit
