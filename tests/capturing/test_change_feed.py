"""Changes and states are decoded without Spark, which confirms them where it runs, and reads what is not decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from operators.processors import TRANSFORM
from operators.running import Run
from oracle import captured_rows, compare, spark_rows
from pyspark.sql import SparkSession
from recorded.unpacked import copied, unpacked
from sampling import sampled

import streamstate as ss
from capturing.without_spark import captured_without_spark
from streamstate.errors import InvalidArgumentError
from streamstate.extras import install_command
from streamstate.snapshots.capture import change_feed
from streamstate.snapshots.capture.change_feed import Verify, first_difference
from streamstate.snapshots.checkpoint.decoding import reader, whole_state
from streamstate.snapshots.checkpoint.state_tables import Columns
from streamstate.snapshots.spark.session import StreamStateWarning
from streamstate.snapshots.spark.state_reader import StateReader, StateRows


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of an aggregation over four epochs."""
    return unpacked("4.1", tmp_path_factory.mktemp("recorded")) / "RocksDB-format-2" / "aggregation"


def rows(*values: float, epoch: int = 0) -> StateRows:
    """Rows of one epoch with a value each."""
    table = pa.table({"_epoch": pa.array([epoch] * len(values), pa.int64()), "v": pa.array(values, pa.float64())})
    return StateRows(Columns((), ("v",), ()), table)


def test_the_first_row_that_differs_is_named() -> None:
    """Later epochs are not compared; a NaN equals itself; zeros differ by their sign."""
    nan = float("nan")
    assert first_difference(rows(1, nan), rows(1, nan), 0) is None
    assert first_difference(rows(epoch=1), rows(), 0) is None
    assert first_difference(rows(1, 2), rows(1), 0) == "2 rows instead of 1"
    difference = "{'_epoch': 0, 'v': -0.0} instead of {'_epoch': 0, 'v': 0.0}"
    assert first_difference(rows(1, -0.0), rows(1, 0.0), 0) == difference


@pytest.mark.slow
def test_a_table_that_spark_reads_differently_is_captured_by_spark(
    spark: SparkSession, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report shows both rows, and the captured state is Spark's."""
    decode = reader.changes

    def wrong(*arguments: Any) -> pa.Table:
        table = decode(*arguments)
        return table.set_column(table.column_names.index("count"), "count", pc.add(table["count"], 1))

    monkeypatch.setattr(change_feed, "changes", wrong)
    with pytest.warns(StreamStateWarning, match="Spark captures op0"):
        report = ss.Checkpoint(checkpoint).capture(tmp_path, "q", spark=spark)
    assert "differs from what Spark reads: {" in report.by_spark["op0"]
    assert " instead of {" in report.by_spark["op0"]
    assert compare(spark, checkpoint, ss.open_store(tmp_path)["q"]) == 4


@pytest.mark.parametrize(
    ("verify", "compared"),
    [
        ("never", 0),
        pytest.param("first", 1, marks=pytest.mark.exhaustive),
        pytest.param("sample", 1, marks=pytest.mark.exhaustive),
        ("all", 2),
    ],
)
def test_spark_confirms_what_verify_says(
    spark: SparkSession, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: Any, compared: int
) -> None:
    """Of each pass, or of the first."""
    asked: list[tuple[int, int]] = []
    read = StateReader.changes

    def changes(self: StateReader, table: Any, first: int, last: int) -> StateRows:
        asked.append((first, last))
        return read(self, table, first, last)

    monkeypatch.setattr(StateReader, "changes", changes)
    assert ss.Checkpoint(checkpoint).capture(tmp_path, "q", verify=verify, spark=spark).epochs
    assert len(asked) == compared


def test_the_first_time_is_the_first_in_the_stores_life(
    spark: SparkSession, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call finds in the store that this Spark has confirmed the format; ``sample`` compares all the same."""
    asked: list[int] = []
    read = StateReader.changes

    def changes(self: StateReader, table: Any, first: int, last: int) -> StateRows:
        asked.append(first)
        return read(self, table, first, last)

    monkeypatch.setattr(StateReader, "changes", changes)
    grown = copied(checkpoint, tmp_path / "checkpoint")
    later = [(grown / "commits" / str(epoch), grown / f"{epoch}") for epoch in (2, 3)]
    for commit, hidden in later:
        commit.rename(hidden)
    assert ss.Checkpoint(grown).capture(tmp_path / "store", "q", spark=spark).epochs == (0, 1)
    assert asked == [0]
    modes: tuple[Verify, ...] = ("first", "sample")
    for (commit, hidden), verify in zip(later, modes, strict=True):
        hidden.rename(commit)
        assert len(ss.Checkpoint(grown).capture(tmp_path / "store", "q", verify=verify, spark=spark).epochs) == 1
    assert asked == [0, 3]


def test_an_invalid_verify_is_refused(tmp_path: Path) -> None:
    """The error lists the choices."""
    with pytest.raises(InvalidArgumentError, match="verify='some': expected first, sample, all, never"):
        ss.Checkpoint(tmp_path).capture(tmp_path / "store", verify="some")  # type: ignore[arg-type]


@pytest.mark.slow
def test_capture_needs_no_spark(spark: SparkSession, checkpoint: Path, tmp_path: Path) -> None:
    """Neither where a table has changelogs nor where it has only snapshots."""
    window = checkpoint.parent.parent / "RocksDB-with-changelog" / "window"
    snapshots = unpacked("3.5", tmp_path) / "RocksDB" / "aggregation"
    stores = [tmp_path / name for name in ("a", "b", "c")]
    reports = captured_without_spark(*zip((checkpoint, window, snapshots), stores, strict=True))
    assert [epochs[:4] for epochs, _ in reports] == [[0, 1, 2, 3]] * 3
    assert [by_spark for _, by_spark in reports] == [{}, {}, {}]
    for path, store in ((checkpoint, stores[0]), (snapshots, stores[2])):
        assert compare(spark, path, ss.open_store(store)["q"]) == 4


@pytest.mark.slow
def test_the_error_says_what_to_install(tmp_path: Path) -> None:
    """Snapshots of RocksDB need rocksdict, or Spark."""
    snapshots = unpacked("3.5", tmp_path) / "RocksDB" / "aggregation"
    report, followed = captured_without_spark((snapshots, tmp_path / "store"), missing=("rocksdict",))
    assert report[0] == "MissingDependencyError"
    assert followed[0] == "failed"
    for text in (report[1], followed[1]):
        assert "Spark has to read op0" in text
    assert install_command("sidecar") in report[1]
    assert install_command("spark") in report[1]


@pytest.mark.slow
@pytest.mark.parametrize("provider", sampled(["HDFS", "RocksDB-with-changelog"], 1))
def test_a_gap_needs_no_spark(spark: SparkSession, tmp_path: Path, provider: str) -> None:
    """The first epoch after it is captured from a snapshot and the changelogs after that."""
    checkpoint, store = unpacked("4.2", tmp_path) / provider / "aggregation", tmp_path / "store"
    later = [checkpoint / log / str(epoch) for log in ("offsets", "commits") for epoch in (2, 3)]
    hidden = {file: file.rename(file.with_name(f"_{file.name}")) for file in later}
    (before,) = captured_without_spark((checkpoint, store))
    for file, other in hidden.items():
        other.rename(file)
    for epoch in range(3):
        purge(checkpoint, epoch)
    (after,) = captured_without_spark((checkpoint, store))
    assert (before, after) == ([[0, 1], {}], [[3], {}])
    history = ss.open_store(store)["q"]
    assert captured_rows(history.at(3).table()) == spark_rows(spark, checkpoint, "op0", 3)


def test_epochs_without_files_are_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    """Even if the commit log still lists them."""
    checkpoint = unpacked("4.2", tmp_path) / "HDFS" / "aggregation"
    for file in checkpoint.glob("state/0/*/[123].delta"):
        file.unlink()
    report, nothing = captured_without_spark((checkpoint, tmp_path / "store"), (checkpoint, tmp_path / "store"))
    assert (report, nothing) == ([[3], {}], [[], {}])
    history = ss.open_store(tmp_path / "store")["q"]
    assert captured_rows(history.at(3).table()) == spark_rows(spark, checkpoint, "op0", 3)


def purge(checkpoint: Path, epoch: int) -> None:
    """Delete an epoch from the logs."""
    for log in ("offsets", "commits"):
        (checkpoint / log / str(epoch)).unlink()


@pytest.mark.exhaustive
def test_timers_need_no_spark(spark: SparkSession, tmp_path: Path) -> None:
    """They have no change feed; their whole states are decoded and compared."""
    run, query = Run(spark, tmp_path), TRANSFORM["rows, event time and timers"]
    run.start(query, epochs=range(3))
    ((epochs, by_spark),) = captured_without_spark((run.checkpoint, run.store))
    assert by_spark == {}
    assert run.check() == len(query.tables) * len(epochs) >= 12


@pytest.mark.exhaustive
def test_a_whole_state_that_spark_reads_differently_is_captured_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with changes."""
    checkpoint = unpacked("3.5", tmp_path) / "RocksDB" / "aggregation"
    decode = whole_state.whole_state

    def wrong(*arguments: Any) -> pa.Table:
        return decode(*arguments).slice(1)

    monkeypatch.setattr(change_feed, "whole_state", wrong)
    with pytest.warns(StreamStateWarning, match="Spark captures op0"):
        report = ss.Checkpoint(checkpoint).capture(tmp_path / "store", "q", spark=spark)
    assert "What was decoded of its whole state differs from what Spark reads: " in report.by_spark["op0"]
    assert compare(spark, checkpoint, ss.open_store(tmp_path / "store")["q"]) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verify", "expected"), [("first", [[0]]), pytest.param("all", [[0], [1, 2, 3]], marks=pytest.mark.exhaustive)]
)
def test_spark_confirms_whole_states_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: Any, expected: list[list[int]]
) -> None:
    """The first epoch of the first pass, or all of each pass, as verify says."""
    checkpoint, asked = unpacked("3.5", tmp_path) / "RocksDB" / "aggregation", []
    read = StateReader.whole

    def whole(self: StateReader, table: Any, epochs: list[int]) -> StateRows:
        asked.append(epochs)
        return read(self, table, epochs)

    monkeypatch.setattr(StateReader, "whole", whole)
    report = ss.Checkpoint(checkpoint).capture(tmp_path / "store", "q", verify=verify, spark=spark)
    assert (report.epochs, dict(report.by_spark)) == ((0, 1, 2, 3), {})
    assert asked == expected
