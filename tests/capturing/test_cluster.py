"""In a large capture, executors write the files and the driver commits them; the history is the same."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import Source, counts, letters, run
from oracle import compare
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import streamstate as ss
from capturing.test_capture import hours
from streamstate.errors import CaptureError, InvalidArgumentError, StoreError
from streamstate.reports import History
from streamstate.snapshots.capture.epoch_commit import Capturer
from streamstate.snapshots.capture.executors import reports
from streamstate.snapshots.capture.executors.reports import Reports, require_valid
from streamstate.snapshots.capture.executors.tasks import TableTask, write_changes
from streamstate.snapshots.capture.executors.writer import ExecutorWriter, Written
from streamstate.snapshots.capture.table_capture import ROWS_IN_DRIVER
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.failures import executor_error, failures
from streamstate.snapshots.store import keyframes
from streamstate.snapshots.store.changelog import log_schema
from streamstate.snapshots.store.delta import Place, open_or_create, open_table
from streamstate.snapshots.store.delta.commits import empty_commit
from streamstate.snapshots.store.delta.data_files import write_file
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest

pytestmark = pytest.mark.slow

# Spark's Python processes cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

MANIFEST = ["epoch", "status", "committed_at", "offsets", "watermark", "rows", "changes", "keyframes"]
LOG = pa.schema(
    [
        ("_epoch", pa.int64()),
        ("_change", pa.string()),
        ("_partition", pa.int32()),
        ("k", pa.string()),
        ("n", pa.int64()),
    ]
)


@pytest.fixture
def large(spark: SparkSession) -> Iterator[None]:
    """Let executors write every pass, even with few rows."""
    spark.conf.set(ROWS_IN_DRIVER, "0")
    yield
    spark.conf.unset(ROWS_IN_DRIVER)


def both_ways(spark: SparkSession, checkpoint: Path, folder: Path) -> History:
    """Capture by the driver and by executors; compare both histories with Spark's reader and with each other."""
    histories = []
    for name, rows in (("driver", "1000000000"), ("executors", "0")):
        spark.conf.set(ROWS_IN_DRIVER, rows)
        ss.Checkpoint(checkpoint).capture(folder / name, "q", spark=spark)
        histories.append(ss.open_store(folder / name)["q"])
        assert compare(spark, checkpoint, histories[-1]) > 0
    spark.conf.unset(ROWS_IN_DRIVER)
    pd.testing.assert_frame_equal(histories[0].epochs()[MANIFEST], histories[1].epochs()[MANIFEST])
    return histories[1]


def data_files(table: Path) -> list[str]:
    """The data files in a table's folder, committed or not."""
    return sorted(file.name for file in table.iterdir() if file.is_file())


def committed(table: Path) -> list[str]:
    """The data files of the table's newest version."""
    opened = open_table(Place(str(table)))
    assert opened is not None
    return sorted(uri.rsplit("/", 1)[-1] for uri in opened.file_uris())


class ListAndTimers(StatefulProcessor):
    """Keeps the values of each key in a list that is sometimes replaced, and at most two timers."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the list."""
        self.handle = handle
        self.seen = handle.getListState("seen", "v long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Append the values, and register a timer."""
        values = [int(value) for frame in rows for value in frame["v"]]
        if max(values) % 3 == 0:
            self.seen.put([(-1,)])
        for value in values:
            self.seen.appendValue((value,))
        self.handle.registerTimer(10**14 + max(values))
        for timer in sorted(self.handle.listTimers())[2:]:
            self.handle.deleteTimer(timer)
        yield pd.DataFrame({"k": [key[0]]})

    def close(self) -> None:
        """Nothing to close."""


def list_and_timers(source: Source) -> DataFrame:
    """A query with a list variable and timers."""
    grouped = source.stream().groupBy("k")
    return grouped.transformWithStateInPandas(ListAndTimers(), "k string", "update", "processingTime")


def run_list_and_timers(spark: SparkSession, source: Source, checkpoint: Path) -> None:
    """Run the query over all input, without epochs for timers: there would always be another one."""
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    run(list_and_timers(source), checkpoint)
    spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")


def test_driver_and_executors_give_the_same_history(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Rows and manifests of a keyed aggregate are the same. Executors write more files, one per state partition."""
    for epoch in range(4):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    both_ways(spark, tmp_path / "c", tmp_path)
    by_driver, by_executors = (committed(tmp_path / name / "q/op0") for name in ("driver", "executors"))
    assert len(by_executors) % 2 == 0  # two state partitions
    assert len(by_executors) > len(by_driver)


def test_driver_and_executors_write_the_same_deletes(spark: SparkSession, tmp_path: Path) -> None:
    """The keys of expired windows are deleted and no longer counted."""
    timed = Source(spark, tmp_path / "timed", "k string, v long, t timestamp")
    for epoch in range(5):
        timed.add(hours(epoch))
    windows = timed.stream().withWatermark("t", "1 hour").groupBy(F.window("t", "1 hour"), "k").agg(F.sum("v"))
    run(windows, tmp_path / "c")
    history = both_ways(spark, tmp_path / "c", tmp_path)
    assert history.diff(1, history.live().epoch).counts["removed"] > 0


@pytest.mark.exhaustive
def test_driver_and_executors_write_the_same_lists_and_timers(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """List elements keep their positions. Timers have no change feed, so executors compare their states."""
    for epoch in range(4):
        source.add(letters(epoch, keys=3, rows=9))
    run_list_and_timers(spark, source, tmp_path / "c")
    history = both_ways(spark, tmp_path / "c", tmp_path)
    assert sorted(history.tables()) == ["op0_seen", "op0_timers"]


@pytest.mark.exhaustive
def test_list_positions_continue_in_a_new_capture(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Each call starts from the store: the lengths of the lists that change come from the log."""
    for epoch in range(3):
        source.add(letters(epoch, keys=3, rows=9))
        run_list_and_timers(spark, source, tmp_path / "c")
        ss.Checkpoint(tmp_path / "c").capture(tmp_path / "s", "q", spark=spark)
    assert compare(spark, tmp_path / "c", ss.open_store(tmp_path / "s")["q"]) == 6


@pytest.mark.exhaustive
def test_driver_and_executors_write_the_same_keyframe_after_a_gap(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """The keyframe has the positions of list elements."""
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    spark.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "100ms")
    try:
        for epoch in range(6):
            source.add(letters(epoch, keys=3, rows=9))
        run_list_and_timers(spark, source, tmp_path / "c")
    finally:
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100")
        spark.conf.unset("spark.sql.streaming.stateStore.maintenanceInterval")
    history = both_ways(spark, tmp_path / "c", tmp_path)
    assert "gap" in [*history.epochs()["status"]]


@pytest.mark.exhaustive
def test_states_are_compared_if_there_is_no_change_feed(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Without changelog checkpointing, executors compare the state of each epoch with the previous one."""
    feed = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    version = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    spark.conf.set(feed, "false")
    spark.conf.set(version, "1")
    try:
        for epoch in range(3):
            source.add(letters(epoch))
        run(counts(source), tmp_path / "c")
    finally:
        spark.conf.set(feed, "true")
        spark.conf.set(version, "2")
    both_ways(spark, tmp_path / "c", tmp_path)


@pytest.mark.exhaustive
def test_driver_and_executors_continue_the_same_log(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Passes by the driver and by executors can alternate."""
    for epoch in range(4):
        source.add(letters(epoch))
        run(counts(source), tmp_path / "c")
        spark.conf.set(ROWS_IN_DRIVER, "0" if epoch % 2 else "1000000")
        assert ss.Checkpoint(tmp_path / "c").capture(tmp_path / "s", "q", spark=spark).epochs == (epoch,)
    spark.conf.unset(ROWS_IN_DRIVER)
    assert compare(spark, tmp_path / "c", ss.open_store(tmp_path / "s")["q"]) == 4


@pytest.mark.exhaustive
def test_executors_write_keyframes(
    spark: SparkSession, source: Source, tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a keyframe when there have been more changes than the state has rows; later epochs start from it."""
    monkeypatch.setattr(keyframes, "SMALLEST_KEYFRAME", 0)
    for epoch in range(4):
        source.add(letters(epoch))
        run(counts(source), tmp_path / "c")
        ss.Checkpoint(tmp_path / "c").capture(tmp_path / "s", "q", spark=spark)
    history = ss.open_store(tmp_path / "s")["q"]
    assert compare(spark, tmp_path / "c", history) == 4
    assert history.epochs()["keyframes"].iloc[-1]["op0"] > 0
    assert len(committed(tmp_path / "s/q/op0")) > 2 * 4  # two files per pass and two per keyframe


@pytest.mark.parametrize(("rows", "is_large"), [("1", True), ("1000000", False)])
def test_the_size_of_the_first_pass_is_estimated(
    spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path, rows: str, is_large: bool
) -> None:
    """In the first pass, the size of the checkpoint decides whether executors write the files."""
    spark.conf.set(ROWS_IN_DRIVER, rows)
    capturer = Capturer(spark, CheckpointFiles(counted[0]), Layout.at(tmp_path / "s"), "q")
    capturer.run()
    spark.conf.unset(ROWS_IN_DRIVER)
    assert capturer._tables["op0"].large == is_large


def test_an_invalid_number_of_rows_is_rejected(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """The setting must be a number."""
    spark.conf.set(ROWS_IN_DRIVER, "many")
    with pytest.raises(InvalidArgumentError, match="expected a number of rows"):
        ss.Checkpoint(counted[0]).capture(tmp_path / "s", "q", spark=spark)
    spark.conf.unset(ROWS_IN_DRIVER)


def test_a_log_ahead_of_the_manifest_is_continued(
    spark: SparkSession,
    counted: tuple[Path, Path],
    tmp_path: Path,
    large: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a capture fails between the commits of the log and the manifest, the next one does not duplicate rows."""

    def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "append", fail)
        with pytest.raises(StoreError, match="disk is full"):
            ss.Checkpoint(counted[0]).capture(tmp_path / "s", "q", spark=spark)
    before = committed(tmp_path / "s/q/op0")
    assert before
    ss.Checkpoint(counted[0]).capture(tmp_path / "s", "q", spark=spark)
    assert set(before) <= set(committed(tmp_path / "s/q/op0"))
    assert compare(spark, counted[0], ss.open_store(tmp_path / "s")["q"]) == 5


@pytest.mark.exhaustive
def test_files_are_written_again_after_a_concurrent_commit(
    spark: SparkSession,
    counted: tuple[Path, Path],
    tmp_path: Path,
    large: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sweep may have deleted the files. No rows are duplicated, and no orphaned files remain."""
    place, changes, calls = Place(str(tmp_path / "s/q/op0")), ExecutorWriter.changes, []

    def changes_before_commit(self: ExecutorWriter, *arguments: Any) -> Written:
        written = changes(self, *arguments)
        calls.append(written)
        table = open_table(place)
        assert table is not None
        if len(calls) == 1:
            assert empty_commit(place, table, "fence")
        return written

    monkeypatch.setattr(ExecutorWriter, "changes", changes_before_commit)
    ss.Checkpoint(counted[0]).capture(tmp_path / "s", "q", spark=spark)
    assert len(calls) > 1
    assert calls[0].entries == calls[1].entries
    assert data_files(tmp_path / "s/q/op0") == committed(tmp_path / "s/q/op0")
    assert compare(spark, counted[0], ss.open_store(tmp_path / "s")["q"]) == 5


def log_table(folder: Path) -> Place:
    """An empty change log."""
    place = Place(str(folder / "log"))
    open_or_create(place, log_schema(LOG, ["k"]), "log")
    return place


def feed(*rows: tuple[int, str, str, int | None]) -> pa.RecordBatch:
    """A batch of a change feed."""
    names = ("_epoch", "_change", "k", "n")
    return pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=LOG)


def test_a_task_keeps_the_last_row_of_each_key_and_epoch(tmp_path: Path) -> None:
    """Earlier rows of the same key and epoch are dropped, also across batches. Deletes have no values."""
    place = log_table(tmp_path)
    batches = [
        feed((0, "update", "a", 1), (0, "update", "b", 2)),
        feed((0, "update", "a", 3), (1, "update", "b", 4)),
        feed((1, "delete", "b", None), (3, "update", "c", 5)),
    ]
    task = TableTask(place, LOG, ("k",))
    report = reports.parse_reports(pa.Table.from_batches([*write_changes(task, iter(batches))]))
    (file,) = report.files
    rows = pa.parquet.read_table(tmp_path / "log" / file.path).select(["_epoch", "_change", "k", "n"]).to_pylist()
    values = sorted(tuple(row.values()) for row in rows)
    assert values == [(0, "put", "a", 3), (0, "put", "b", 2), (1, "delete", "b", None), (3, "put", "c", 5)]
    found = [(epoch.epoch, epoch.changes, epoch.live) for epoch in report.epochs if epoch.changes]
    assert found == [(0, 1, 1), (0, 1, 1), (1, 1, 0), (3, 1, 1)]
    minimum = {"_change": "delete", "_epoch": 0, "n": 2}
    assert {"minValues": minimum, "numRecords": 4}.items() <= json.loads(file.statistics).items()


def test_epochs_out_of_order_are_rejected(tmp_path: Path) -> None:
    """Tasks rely on the order in which Spark returns epochs. No file is left behind."""
    task = TableTask(log_table(tmp_path), LOG, ("k",))
    with pytest.raises(CaptureError, match="epoch 0 after epoch 1"):
        list(write_changes(task, iter([feed((1, "update", "a", 1), (0, "update", "a", 1))])))
    assert data_files(tmp_path / "log") == []


def test_a_folder_that_executors_cannot_access_is_reported(tmp_path: Path) -> None:
    """The error explains that the store must be on a shared file system."""
    task = TableTask(Place(str(tmp_path / "nowhere")), LOG, ("k",))
    report = reports.parse_reports(pa.Table.from_batches([*write_changes(task, iter([]))]))
    with pytest.raises(CaptureError, match=r"(?s)cannot see.*nowhere.*shared file system"):
        require_valid(task.place, LOG, report)


def test_files_are_checked_before_they_are_committed(tmp_path: Path) -> None:
    """Reported files must be in the table's folder, complete, and have its columns. Delta does not check this."""
    place = log_table(tmp_path)
    (good,) = write_file(place, LOG, pa.Table.from_batches([feed((0, "put", "a", 1))]))
    (other,) = write_file(place, LOG.remove(4), pa.Table.from_batches([feed((0, "put", "a", 1))]))

    def check(**changed: Any) -> None:
        require_valid(place, LOG, Reports([dataclasses.replace(good, **changed)], [], []))

    check()
    for changed, message in (
        ({"path": good.path.replace("part-", "part-f")[:5] + "0" * 32 + good.path[37:]}, "cannot read it"),
        ({"path": f"../log/{good.path}"}, "not the name of a data file"),
        ({"size": good.size + 1}, "not what its task wrote"),
        ({"rows": 2}, "not what its task wrote"),
        ({"path": other.path, "size": other.size}, "not what its task wrote"),
    ):
        with pytest.raises(CaptureError, match=message):
            check(**changed)


def test_the_error_for_a_missing_package_on_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an executor cannot import a module, the error names the module and what to install."""
    (tmp_path / "only_the_driver_has_it.py").write_text("def same(batches):\n    yield from batches\n")
    monkeypatch.syspath_prepend(tmp_path)
    from only_the_driver_has_it import same  # type: ignore[import-not-found]  # written above

    with pytest.raises(failures()) as raised:
        spark.range(1).mapInArrow(same, "id long").toArrow()
    error = executor_error(raised.value)
    assert isinstance(error, CaptureError)
    assert "lacks 'only_the_driver_has_it'" in str(error)
    assert "Install streamstate on the executors" in str(error)


def test_tasks_do_not_import_deltalake_or_pyspark() -> None:
    """Executors run tasks in forked processes."""
    tasks = "streamstate.snapshots.capture.executors.tasks"
    code = f"import sys, {tasks}; print('deltalake' in sys.modules, 'pyspark' in sys.modules)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.split() == ["False", "False"]


@pytest.mark.exhaustive
def test_restarted_captures_record_the_same(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Captures that restart for each pass record the same as one that kept running: only the first epoch is counted."""
    spark.conf.set(ROWS_IN_DRIVER, "0")
    for _ in range(5):
        Capturer(spark, CheckpointFiles(counted[0]), Layout.at(tmp_path / "s"), "q").run()
    spark.conf.unset(ROWS_IN_DRIVER)
    restarted, continuous = ss.open_store(tmp_path / "s")["q"], ss.open_store(counted[1])["counts"]
    columns = ["epoch", "rows", "changes"]
    assert [rows["op0"] is None for rows in restarted.epochs()["rows"]] == [False, True, True, True, True]
    np.testing.assert_array_equal(
        restarted.epochs()[columns].to_numpy(), continuous.epochs()[columns].to_numpy()[: len(restarted.epochs())]
    )
