"""Large captures: executors write the files, the driver commits them, and nobody can tell the difference."""

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
from streamstate.snapshots import table_capture
from streamstate.snapshots.capture import Capturer
from streamstate.snapshots.change_log import log_schema
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.delta import Place, open_or_create, open_table
from streamstate.snapshots.delta.commits import empty_commit
from streamstate.snapshots.delta.data_files import write_file
from streamstate.snapshots.errors import CaptureError, InvalidArgumentError, StoreError
from streamstate.snapshots.executors import reports
from streamstate.snapshots.executors.failures import FAILURES, told
from streamstate.snapshots.executors.jobs import Jobs, Written
from streamstate.snapshots.executors.reports import Reports
from streamstate.snapshots.executors.scale import ROWS_IN_DRIVER
from streamstate.snapshots.executors.tasks import TableTask, write_changes
from streamstate.snapshots.executors.written import require_good
from streamstate.snapshots.manifest import Manifest

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
    """Every pass is large, however few rows it has."""
    spark.conf.set(ROWS_IN_DRIVER, "0")
    yield
    spark.conf.unset(ROWS_IN_DRIVER)


def both_ways(spark: SparkSession, checkpoint: Path, folder: Path) -> ss.History:
    """The checkpoint captured by the driver and by the executors, both compared with Spark's reader and each other."""
    histories = []
    for name, rows in (("driver", "1000000000"), ("executors", "0")):
        spark.conf.set(ROWS_IN_DRIVER, rows)
        ss.capture(checkpoint, folder / name, "q", spark=spark)
        histories.append(ss.open_store(folder / name)["q"])
        assert compare(spark, checkpoint, histories[-1]) > 0
    spark.conf.unset(ROWS_IN_DRIVER)
    pd.testing.assert_frame_equal(histories[0].epochs()[MANIFEST], histories[1].epochs()[MANIFEST])
    return histories[1]


def data_files(table: Path) -> list[str]:
    """The data files that stand in a table's folder, committed or not."""
    return sorted(file.name for file in table.iterdir() if file.is_file())


def committed(table: Path) -> list[str]:
    """The data files that the table's newest version holds."""
    found = open_table(Place(str(table)))
    assert found is not None
    return sorted(uri.rsplit("/", 1)[-1] for uri in found.file_uris())


class Remembering(StatefulProcessor):
    """Keeps each key's values in a list, started over now and then, and timers, one fewer at times."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.handle = handle
        self.seen = handle.getListState("seen", "v long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Take in one epoch's rows of a key."""
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


def remembering(source: Source) -> DataFrame:
    """A query with a list variable and timers."""
    grouped = source.stream().groupBy("k")
    return grouped.transformWithStateInPandas(Remembering(), "k string", "update", "processingTime")


def run_remembering(spark: SparkSession, source: Source, checkpoint: Path) -> None:
    """Run it over all input; in processing time there would always be one more epoch."""
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    run(remembering(source), checkpoint)
    spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")


def test_both_ways_give_the_same_history(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Keyed state: the same rows at every epoch, the same counts in the manifest; and each way is what it says."""
    for epoch in range(4):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    both_ways(spark, tmp_path / "c", tmp_path)
    small, many = (committed(tmp_path / way / "q/op0") for way in ("driver", "executors"))
    assert len(many) % 2 == 0  # two state partitions
    assert len(many) > len(small)


def test_deletes_are_deletes_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    """Windows leave the state: their keys are deleted and no longer counted."""
    timed = Source(spark, tmp_path / "timed", "k string, v long, t timestamp")
    for epoch in range(5):
        timed.add(hours(epoch))
    windows = timed.stream().withWatermark("t", "1 hour").groupBy(F.window("t", "1 hour"), "k").agg(F.sum("v"))
    run(windows, tmp_path / "c")
    history = both_ways(spark, tmp_path / "c", tmp_path)
    assert history.diff(1, history.live().epoch).counts["removed"] > 0


def test_lists_and_timers_both_ways(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """List elements keep their positions; timers, for which there is no feed, are compared in the cluster."""
    for epoch in range(4):
        source.add(letters(epoch, keys=3, rows=9))
    run_remembering(spark, source, tmp_path / "c")
    history = both_ways(spark, tmp_path / "c", tmp_path)
    assert sorted(history.tables()) == ["op0_seen", "op0_timers"]


def test_a_purged_beginning_is_a_keyframe_both_ways(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """The first whole state after a gap is written by the executors, positions of list elements included."""
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    spark.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "100ms")
    try:
        for epoch in range(6):
            source.add(letters(epoch, keys=3, rows=9))
        run_remembering(spark, source, tmp_path / "c")
    finally:
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100")
        spark.conf.unset("spark.sql.streaming.stateStore.maintenanceInterval")
    history = both_ways(spark, tmp_path / "c", tmp_path)
    assert "gap" in [*history.epochs()["status"]]


def test_without_a_feed_whole_states_are_compared(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Changelog checkpointing off: the executors compare each epoch with the one before, and say what would help."""
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


def test_passes_of_both_kinds_alternate(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Each takes up where the other left the log."""
    for epoch in range(4):
        source.add(letters(epoch))
        run(counts(source), tmp_path / "c")
        spark.conf.set(ROWS_IN_DRIVER, "0" if epoch % 2 else "1000000")
        assert ss.capture(tmp_path / "c", tmp_path / "s", "q", spark=spark).epochs == (epoch,)
    spark.conf.unset(ROWS_IN_DRIVER)
    assert compare(spark, tmp_path / "c", ss.open_store(tmp_path / "s")["q"]) == 4


def test_executors_write_keyframes_too(
    spark: SparkSession, source: Source, tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the changes outweigh the state: all live keys again, which later epochs are read from."""
    monkeypatch.setattr(table_capture, "_SMALLEST_KEYFRAME", 0)
    for epoch in range(4):
        source.add(letters(epoch))
        run(counts(source), tmp_path / "c")
        ss.capture(tmp_path / "c", tmp_path / "s", "q", spark=spark)
    history = ss.open_store(tmp_path / "s")["q"]
    assert compare(spark, tmp_path / "c", history) == 4
    assert history.epochs()["keyframes"].iloc[-1]["op0"] > 0
    assert len(committed(tmp_path / "s/q/op0")) > 2 * 4  # two files a pass, and two a keyframe


@pytest.mark.parametrize(("rows", "is_large"), [("1", True), ("1000000", False)])
def test_the_first_pass_is_measured(
    spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path, rows: str, is_large: bool
) -> None:
    """Nothing is known of the query yet: what its checkpoint holds decides."""
    spark.conf.set(ROWS_IN_DRIVER, rows)
    capturer = Capturer(spark, Checkpoint(counted[0]), str(tmp_path / "s"), "q")
    capturer.run()
    spark.conf.unset(ROWS_IN_DRIVER)
    assert capturer._tables["op0"].large == is_large


def test_a_setting_that_is_no_number_is_refused(
    spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path
) -> None:
    """And the error says what would be right."""
    spark.conf.set(ROWS_IN_DRIVER, "many")
    with pytest.raises(InvalidArgumentError, match="whole number of rows"):
        ss.capture(counted[0], tmp_path / "s", "q", spark=spark)
    spark.conf.unset(ROWS_IN_DRIVER)


def test_a_log_ahead_of_the_manifest_is_taken_up(
    spark: SparkSession,
    counted: tuple[Path, Path],
    tmp_path: Path,
    large: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A capture that died between the files' commit and the manifest's: no row is written again."""

    def dies(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "append", dies)
        with pytest.raises(StoreError, match="disk is full"):
            ss.capture(counted[0], tmp_path / "s", "q", spark=spark)
    before = committed(tmp_path / "s/q/op0")
    assert before
    ss.capture(counted[0], tmp_path / "s", "q", spark=spark)
    assert set(before) <= set(committed(tmp_path / "s/q/op0"))
    assert compare(spark, counted[0], ss.open_store(tmp_path / "s")["q"]) == 5


def test_a_commit_in_between_has_the_files_written_again(
    spark: SparkSession,
    counted: tuple[Path, Path],
    tmp_path: Path,
    large: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sweep's fence may have removed them; nothing is doubled, no file is left over."""
    place, changes, calls = Place(str(tmp_path / "s/q/op0")), Jobs.changes, []

    def overtaken(self: Jobs, *arguments: Any) -> Written:
        written = changes(self, *arguments)
        calls.append(written)
        table = open_table(place)
        assert table is not None
        if len(calls) == 1:
            assert empty_commit(place, table, "fence")
        return written

    monkeypatch.setattr(Jobs, "changes", overtaken)
    ss.capture(counted[0], tmp_path / "s", "q", spark=spark)
    assert len(calls) > 1
    assert calls[0].facts == calls[1].facts
    assert data_files(tmp_path / "s/q/op0") == committed(tmp_path / "s/q/op0")
    assert compare(spark, counted[0], ss.open_store(tmp_path / "s")["q"]) == 5


def log_table(folder: Path) -> Place:
    """An empty change log."""
    place = Place(str(folder / "log"))
    open_or_create(place, log_schema(LOG, ["k"]), "log")
    return place


def feed(*rows: tuple[int, str, str, int | None]) -> pa.RecordBatch:
    """Rows of a change feed."""
    names = ("_epoch", "_change", "k", "n")
    return pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=LOG)


def test_a_task_keeps_the_last_row_of_each_key_and_epoch(tmp_path: Path) -> None:
    """Batches end anywhere; what a key had before within an epoch is gone, a delete takes its values along."""
    place = log_table(tmp_path)
    batches = [
        feed((0, "update", "a", 1), (0, "update", "b", 2)),
        feed((0, "update", "a", 3), (1, "update", "b", 4)),
        feed((1, "delete", "b", None), (3, "update", "c", 5)),
    ]
    done = reports.read(pa.Table.from_batches([*write_changes(TableTask(place, LOG, ("k",)), iter(batches))]))
    (file,) = done.files
    rows = pa.parquet.read_table(tmp_path / "log" / file.path).select(["_epoch", "_change", "k", "n"]).to_pylist()
    found = sorted(tuple(row.values()) for row in rows)
    assert found == [(0, "put", "a", 3), (0, "put", "b", 2), (1, "delete", "b", None), (3, "put", "c", 5)]
    assert [(one.epoch, len(one.puts), len(one.deletes)) for one in done.epochs if one.changes] == [
        (0, 1, 0),
        (0, 1, 0),
        (1, 0, 1),
        (3, 1, 0),
    ]
    least = {"_change": "delete", "_epoch": 0, "n": 2}
    assert {"minValues": least, "numRecords": 4}.items() <= json.loads(file.statistics).items()


def test_epochs_that_do_not_ascend_are_refused(tmp_path: Path) -> None:
    """Everything rests on Spark's order, so it is looked at."""
    task = TableTask(log_table(tmp_path), LOG, ("k",))
    with pytest.raises(CaptureError, match="epoch 0 after epoch 1"):
        list(write_changes(task, iter([feed((1, "update", "a", 1), (0, "update", "a", 1))])))
    assert data_files(tmp_path / "log") == []


def test_a_folder_that_executors_do_not_see_is_said(tmp_path: Path) -> None:
    """A store on the driver's own disk, with executors elsewhere."""
    task = TableTask(Place(str(tmp_path / "nowhere")), LOG, ("k",))
    done = reports.read(pa.Table.from_batches([*write_changes(task, iter([]))]))
    with pytest.raises(CaptureError, match=r"(?s)does not see.*nowhere.*shared file system"):
        require_good(task.place, LOG, done)


def test_files_are_looked_at_before_they_are_committed(tmp_path: Path) -> None:
    """There, whole, of the table's columns, in the table: Delta itself would commit anything."""
    place = log_table(tmp_path)
    (good,) = write_file(place, LOG, pa.Table.from_batches([feed((0, "put", "a", 1))]))
    (other,) = write_file(place, LOG.remove(4), pa.Table.from_batches([feed((0, "put", "a", 1))]))

    def look(**changed: Any) -> None:
        require_good(place, LOG, Reports([dataclasses.replace(good, **changed)], [], [], set()))

    look()
    for wrong, says in (
        ({"path": good.path.replace("part-", "part-f")[:5] + "0" * 32 + good.path[37:]}, "cannot read it"),
        ({"path": f"../log/{good.path}"}, "no name of a data file"),
        ({"size": good.size + 1}, "not what its task wrote"),
        ({"rows": 2}, "not what its task wrote"),
        ({"path": other.path, "size": other.size}, "not what its task wrote"),
    ):
        with pytest.raises(CaptureError, match=says):
            look(**wrong)


def test_digests_of_another_engine_are_refused(tmp_path: Path) -> None:
    """DuckDB's hash is the same within one version alone."""
    with pytest.raises(CaptureError, match="Install the same packages"):
        require_good(log_table(tmp_path), LOG, Reports([], [], [], {"0.1"}))


def test_executors_without_the_package_are_told_of(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker says that cannot import what the driver sent becomes advice."""
    (tmp_path / "only_the_driver_has_it.py").write_text("def same(batches):\n    yield from batches\n")
    monkeypatch.syspath_prepend(tmp_path)
    from only_the_driver_has_it import same  # type: ignore[import-not-found]  # made a line above

    with pytest.raises(FAILURES) as raised:
        spark.range(1).mapInArrow(same, "id long").toArrow()
    error = told(raised.value)
    assert isinstance(error, CaptureError)
    assert "lacks 'only_the_driver_has_it'" in str(error)
    assert "Install streamstate there" in str(error)


def test_what_runs_on_executors_loads_no_deltalake() -> None:
    """It is in processes that were forked."""
    code = (
        "import sys, streamstate.snapshots.executors.tasks; print('deltalake' in sys.modules, 'pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_live_keys_are_those_of_the_log(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """A capture that starts again counts from the log: the same rows as one that went on."""
    spark.conf.set(ROWS_IN_DRIVER, "0")
    for _ in range(5):
        Capturer(spark, Checkpoint(counted[0]), str(tmp_path / "s"), "q").run()
    spark.conf.unset(ROWS_IN_DRIVER)
    fresh, kept = ss.open_store(tmp_path / "s")["q"], ss.open_store(counted[1])["counts"]
    ours = ["epoch", "rows", "changes"]
    np.testing.assert_array_equal(
        fresh.epochs()[ours].to_numpy(), kept.epochs()[ours].to_numpy()[: len(fresh.epochs())]
    )
