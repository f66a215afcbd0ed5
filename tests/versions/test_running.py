"""Queries start and are captured."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)

import streamstate as ss
from scripts.house import sources
from scripts.typecheck import folders
from streamstate.snapshots.spark.task_times import running_tasks, task_load
from versions.queries import EPOCHS, Totals, add, aggregated, input_of, state, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.versions("import of every module but the tutorials")
def test_every_module_can_be_imported() -> None:
    """No module needs what only some versions of Spark have. The tutorials use what is new."""
    for name in sources(folders()):
        if not name.endswith("__main__") and ".tutorials." not in name:
            importlib.import_module(name)


@pytest.mark.versions("`ss.start`")
def test_a_query_starts_and_is_captured(totals: Totals) -> None:
    """Each epoch's state is the batch's, and the state is read from its changelog."""
    assert totals.history.captured() == [*range(EPOCHS)]
    for epoch in range(EPOCHS):
        assert state(totals.history, epoch) == totals.expected(epoch)
    assert totals.checkpoint.operators()["reads"].tolist() == ["changelog"]


@pytest.mark.versions("`history.load`, with tasks")
def test_the_load_of_each_epoch_is_kept(totals: Totals) -> None:
    """What Spark reports has the same names in each version; its status has the tasks of the newest epoch."""
    load = totals.history.load()
    frame = load.to_pandas()
    assert frame[["seconds", "rows", "state_rows", "state_bytes"]].notna().all(axis=None)
    assert {"addBatch", "walCommit"} < set(load.phases().columns)
    assert totals.running is not None
    assert totals.running.query is not None
    loads = [task_load(totals.running.query, epoch) for epoch in range(EPOCHS)]
    tasks = loads[-1]
    assert tasks is not None
    assert tasks.worst_seconds >= tasks.median_seconds
    assert any(tasks is not None and tasks.stateful for tasks in loads)  # once, the source's stage may take longest
    now = running_tasks(totals.running.query)
    assert now is not None
    assert now.newest_job >= 0
    assert now.stages == ()


@pytest.mark.versions("`%%stream`")
def test_a_cell_starts_a_query(totals: Totals, shell: Shell) -> None:
    """The cell of a notebook does the same."""
    shell.names["rows"] = totals.build()
    running = shell.run("%%stream counted --trigger available-now\nrows")
    assert running.wait(timeout=300) == EPOCHS - 1
    assert state(running.history, EPOCHS - 1) == totals.expected(EPOCHS - 1)
    running.stop()


@pytest.mark.versions("`running.restart`")
def test_a_query_is_restarted(spark: SparkSession, tmp_path: Path) -> None:
    """It goes on with the next epoch."""
    totals = Totals.started(spark, tmp_path, epochs=1)
    assert totals.running is not None
    add(totals.input, 1, input_of(1))
    assert totals.running.restart().wait(timeout=300) == 1
    assert state(totals.history, 1) == totals.expected(1)


@pytest.mark.versions("`Checkpoint.capture`")
def test_a_checkpoint_is_captured(totals: Totals, tmp_path: Path) -> None:
    """Spark's reader agrees, where there is one."""
    report = totals.checkpoint.capture(tmp_path / "store", "again", verify="all")
    assert report.epochs == (*range(EPOCHS),)
    assert not report.by_spark
    assert state(ss.open_store(tmp_path / "store")["again"], 1) == totals.expected(1)


@pytest.mark.versions("`Checkpoint.follow`")
def test_a_running_query_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    """Each epoch is captured while the query runs, with its plan."""
    source = tmp_path / "input"
    add(source, 0, input_of(0))
    query = (
        aggregated(stream(spark, source))
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    capture = ss.Checkpoint(query).follow(tmp_path / "store", "totals")
    try:
        for epoch in range(2):
            add(source, epoch, input_of(epoch))
            assert capture.wait(epoch, timeout=300) == epoch
    finally:
        query.stop()
        capture.stop()
    expected = {tuple(row) for row in aggregated(spark.read.parquet(str(source))).collect()}
    assert state(ss.open_store(tmp_path / "store")["totals"], 1) == expected


def _processor() -> Any:
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class Count(StatefulProcessor):
        """Counts the rows of each key."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.n = handle.getValueState("n", "n long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            import pandas as pd

            before = self.n.get()
            self.n.update(((before[0] if before else 0) + sum(map(len, rows)),))
            yield pd.DataFrame({"k": [key[0]]})

        def close(self) -> None:
            pass

    return Count()


@pytest.mark.versions("`transformWithState`, captured", new_in_spark="4.0")
def test_state_of_a_processor(totals: Totals, tmp_path: Path) -> None:
    """A variable's value is the batch's."""
    frame: DataFrame = (
        stream(totals.spark, totals.input)
        .groupBy("k")
        .transformWithStateInPandas(_processor(), "k string", "Update", "None")
    )
    running = ss.start(frame, "counted", tmp_path / "store", trigger="available-now", partitions=2)
    assert running.wait(timeout=300) == EPOCHS - 1
    found = running.history.at(1).table("op0_n").to_pandas()
    assert dict(zip(found["k"], found["n"], strict=True)) == {k: n for k, n, *_ in totals.expected(1)}


@pytest.mark.versions("read limits of a running query")
def test_a_limit_is_moved_while_a_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    """A source of files obeys it from the next epoch on; the limit of its options is never exceeded, and comes back."""
    from streamstate.snapshots.spark.epoch_reports import reports_after
    from streamstate.snapshots.spark.read_limits import ReadLimits

    folder, files = tmp_path / "input", iter(range(100))

    def put(count: int) -> None:
        for number in islice(files, count):
            add(folder, number, input_of(number % EPOCHS))

    put(4)
    reader = spark.readStream.schema("k string, v long, t timestamp").option("maxFilesPerTrigger", 2)
    writer = reader.parquet(str(folder)).groupBy("k").count().writeStream.format("noop").outputMode("update")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="100 milliseconds").start()
    rows = len(input_of(0))
    try:
        query.processAllAvailable()
        limits = ReadLimits(spark, query)
        assert [(source.unit, source.own) for source in limits.sources()] == [("files", 2)]
        for limit, most in ((1, 1), (9, 2), (None, 2)):
            newest = max(int(report["batchId"]) for report in reports_after(query, -1))
            limits.set([limit])
            put(6)
            query.processAllAvailable()
            read = [int(report["numInputRows"]) // rows for report in reports_after(query, newest)]
            assert sum(read) == 6
            assert max(read[1:]) == most
    finally:
        query.stop()
