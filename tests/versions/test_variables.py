"""Shared variables and recorded input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import streamstate as ss
from versions.queries import EPOCHS, Totals, add, input_of, rows_of, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.versions("shared variables", since="4.0")
def test_a_shared_variable(
    totals: Totals, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators read the version of their epoch, and contribute; the wait for the end waits for the last epoch's."""
    from pyspark.sql import functions as F

    from streamstate.variables import version_pump

    monkeypatch.setattr(version_pump, "_INTERVAL", 60)
    store = tmp_path_factory.mktemp("shared") / "store"
    limit, late = ss.shared(store, "limit", "long", init=15), ss.shared(store, "late", "counter")

    def over(v: int) -> bool:
        if v > limit.get():
            late.add(1)
            return True
        return False

    rows = stream(totals.spark, totals.input).where(F.udf(over, "boolean")("v"))
    running = ss.start(
        rows.groupBy("k").count(), "q", store, trigger="available-now", partitions=2, shared=(limit, late)
    )
    running.wait(timeout=300)
    expected = totals.rows(EPOCHS - 1).where("v > 15").groupBy("k").count().collect()
    found = running.history.live().table().to_pandas()
    assert dict(zip(found["k"], found["count"], strict=True)) == {row[0]: row[1] for row in expected}
    assert late.get() == sum(row[1] for row in expected)
    running.stop()


@pytest.mark.versions("`ss.shed`", since="4.0")
def test_shedding(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An epoch keeps what its level says, and its progress counts what was dropped; a step keeps the same."""
    from streamstate.shedding import declare_level, level_for, weighted_count
    from streamstate.snapshots.store.epoch_load import ShedCounts

    folder = tmp_path_factory.mktemp("shed")
    add(folder / "input", 0, input_of(0))

    def build() -> DataFrame:
        kept = ss.shed(stream(spark, folder / "input"), id="v", value="v", weight="w")
        return kept.groupBy("k").agg(weighted_count().alias("rows"))

    frame = build()
    level = declare_level(folder / "store", "q", init=level_for("v < 2", 0.5))
    counts = []
    for epoch in range(2):
        if epoch:
            add(folder / "input", epoch, input_of(epoch))
            level.set(level_for(None, 0.25))
        running = ss.start(
            frame, "q", folder / "store", checkpoint=folder / "checkpoint", trigger="available-now", partitions=2
        )
        running.wait(timeout=300)
        assert running.query is not None
        observed = running.query.recentProgress[-1]["observedMetrics"]
        counts.append(ShedCounts.observed({name: row.asDict() for name, row in observed.items()}))
        running.stop()
    for epoch, found in enumerate(counts):
        assert found is not None
        assert (found.level, found.rows) == (epoch, 11)
        assert found.rows - found.kept == sum(found.dropped.values()) > 0
    fork = ss.Checkpoint(folder / "checkpoint").fork(folder / "fork", at=0)
    fork.step(build)
    fork.capture(folder / "store", "forked")
    tables = [ss.open_store(folder / "store")[name].at(1).table().to_pandas() for name in ("q", "forked")]
    assert rows_of(tables[0]) == rows_of(tables[1])


@pytest.mark.versions("`ss.record`, `ss.recorded`", since="4.0")
def test_recorded_input(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A recording has each row once."""
    folder = tmp_path_factory.mktemp("recorded")
    add(folder / "input", 0, input_of(0))
    frame = ss.record(stream(spark, folder / "input"), folder / "recording")
    running = ss.start(frame.groupBy("k").count(), "q", folder / "store", trigger="100ms", partitions=1)
    try:
        running.wait(epoch=0, timeout=300)
    finally:
        running.stop()
    found = running.history.live().table().to_pandas()
    assert dict(zip(found["k"], found["count"], strict=True)) == input_of(0)["k"].value_counts().to_dict()
    assert ss.recorded(folder / "recording").isStreaming
