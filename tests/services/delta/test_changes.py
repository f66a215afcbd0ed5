"""Queries over a table that changes: its change feed, its schema, and the oldest commits of its log."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import streamstate as ss
from services.delta.conftest import Table
from services.delta.test_inputs import numbers, reasons, run
from streamstate.errors import NotReplayableError


def test_a_change_feed(table: Table, tmp_path: Path) -> None:
    """An epoch's input has the changes of its commits, old and new values of an update together."""
    table.sql("CREATE TABLE {} (k STRING, v BIGINT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    table.append(0, 6, files=2)
    table.sql("UPDATE {} SET v = v + 100 WHERE k = 'k1'")
    table.sql("DELETE FROM {} WHERE v = 3")
    running = run(table, tmp_path, readChangeFeed="true", startingVersion=0)
    history = running.history
    feed = table.spark.read.format("delta").options(readChangeFeed="true", startingVersion=0).load(table.path)
    read = [tuple(row) for epoch in history.epochs()["epoch"] for row in history.inputs(epoch).collect()]
    assert sorted(read) == sorted(tuple(row) for row in feed.collect())
    [changed] = [epoch for epoch in history.epochs()["epoch"] if {101, 1} <= numbers(history, epoch)]
    assert history.why(changed, k="k1").count() == 4
    table.vacuum()
    [reason] = reasons(lambda: history.inputs(changed))
    assert "(1 of table version 2)" in reason or "(2 of table version 2)" in reason


def test_a_start_that_nothing_records(table: Table, tmp_path: Path) -> None:
    """The first epoch from startingVersion=latest is refused, since Delta would read nothing; later ones are exact."""
    table.append(0, 3)
    build = partial(table.totals, startingVersion="latest")
    running = ss.start(build(), "late", tmp_path / "store", checkpoint=tmp_path / "cp", trigger="500ms", partitions=2)
    assert running.query is not None
    running.query.processAllAvailable()
    table.append(3, 6)
    running.wait(0, timeout=300)
    table.append(6, 12)
    running.wait(1, timeout=300)
    running.stop()
    history = running.history
    assert numbers(history, 1) == {*range(6, 12)}
    for reason in reasons(
        lambda: history.inputs(0),
        lambda: history.why(0, k="k1"),
        lambda: running.checkpoint.audit(build),
        lambda: running.checkpoint.replay(build, to=tmp_path / "replay", epochs="0..1"),
    ):
        assert "startingVersion=latest" in reason
    assert running.checkpoint.fork(tmp_path / "fork", at=0).step(build).epoch == 1


def test_an_added_column(table: Table, tmp_path: Path) -> None:
    """Epochs before and after it are read with the columns that the query was planned with."""
    table.append(0, 4)
    running = run(table, tmp_path)
    first = table.spark.sql("SELECT 7 AS extra, 'k1' AS k, CAST(9 AS BIGINT) AS v")
    first.write.format("delta").mode("append").option("mergeSchema", "true").save(table.path)
    history = running.history
    assert history.inputs(0).columns == ["k", "v"]
    assert numbers(history, 0) == {*range(4)}
    again = run(table, tmp_path)
    assert [row.asDict() for row in again.history.inputs(1).collect()] == [{"k": "k1", "v": 9, "extra": 7}]
    assert again.history.inputs(0).count() == 4
    assert again.checkpoint.fork(tmp_path / "fork", at=0).step(table.totals).epoch == 1


def test_a_column_that_is_gone(table: Table, tmp_path: Path) -> None:
    """The refusal names the column."""
    table.append(0, 4)
    running = run(table, tmp_path)
    other = table.spark.sql("SELECT 'k1' AS k, '9' AS w")
    other.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(table.path)
    [reason] = reasons(lambda: running.history.inputs(0))
    assert "v" in reason
    assert "schema" in reason


@pytest.mark.parametrize("fails_on_loss", [pytest.param("true", marks=pytest.mark.exhaustive), "false"])
def test_commits_that_left_the_log(table: Table, tmp_path: Path, fails_on_loss: str) -> None:
    """The refusal names the versions; Delta itself would return no rows with failOnDataLoss=false."""
    for first in range(0, 15, 3):
        table.append(first, first + 3)
    running = run(table, tmp_path, startingVersion=0, failOnDataLoss=fails_on_loss)
    assert numbers(running.history, 1) == {3, 4, 5}
    table.spark.sql(f"SELECT * FROM delta.`{table.path}`").count()
    for version in range(3):
        Path(table.path, "_delta_log", f"{version:020}.json").unlink()
    [reason] = reasons(lambda: running.history.inputs(1))
    assert "version 1 of the Delta table" in reason
    assert "delta.logRetentionDuration" in reason


def test_a_recording_outlives_vacuum(table: Table, tmp_path: Path) -> None:
    """A recorded query reads its input from the recording."""
    table.append(0, 6, files=2)
    rows = ss.record(table.spark.readStream.format("delta").load(table.path), tmp_path / "recording")
    counts = rows.groupBy("k").count()
    running = ss.start(counts, "recorded", tmp_path / "store", trigger="1s", partitions=2)
    running.wait(0, timeout=300)
    if not running.history.live().table().count():  # epoch 0 came before the first record
        running.wait(1, timeout=300)
    running.stop()
    table.sql("OPTIMIZE {}")
    table.vacuum()
    epochs = running.history.epochs()["epoch"]
    assert set().union(*(numbers(running.history, epoch) for epoch in epochs)) == {*range(6)}


def test_another_table_at_the_path(table: Table, tmp_path: Path) -> None:
    """A table that was created anew is not read instead of the old one."""
    import shutil

    table.append(0, 6)
    running = run(table, tmp_path)
    shutil.rmtree(table.path)
    table.append(0, 6)
    with pytest.raises(NotReplayableError, match="unexpected Delta table"):
        running.history.inputs(0)
