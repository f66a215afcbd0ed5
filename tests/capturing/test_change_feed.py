"""Changes are decoded without Spark, which confirms them where it runs, and reads what cannot be decoded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from oracle import compare
from pyspark.sql import SparkSession
from recorded.unpacked import unpacked

import streamstate as ss
from streamstate.errors import InvalidArgumentError
from streamstate.snapshots import change_feed
from streamstate.snapshots.change_feed import first_difference
from streamstate.snapshots.changelog import reader
from streamstate.snapshots.operators import Columns
from streamstate.snapshots.spark.session import StreamStateWarning
from streamstate.snapshots.state_reader import StateReader, StateRows

# Captures checkpoints where neither PySpark nor Java can be used, and prints the reports, or the error.
WITHOUT_SPARK = """
import json, sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
import streamstate as ss
for checkpoint, store in json.loads(sys.argv[1]):
    try:
        report = ss.capture(checkpoint, store, "q")
        print(json.dumps([report.epochs, dict(report.by_spark)]))
    except ss.errors.StreamStateError as error:
        print(json.dumps([type(error).__name__, str(error)]))
        capture = ss.follow(checkpoint, store + "-followed", "q")
        try:
            capture.wait(timeout=60)
        except ss.errors.CaptureError as error:
            print(json.dumps([capture.status.state, str(error)]))
"""


def captured_without_spark(*pairs: tuple[Path, Path]) -> list[list[Any]]:
    """What captures in a process without Spark reported."""
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    arguments = json.dumps([[str(checkpoint), str(store)] for checkpoint, store in pairs])
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, arguments], env=environment, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in process.stdout.splitlines()]


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
        report = ss.capture(checkpoint, tmp_path, "q", spark=spark)
    assert "differs from what Spark reads: {" in report.by_spark["op0"]
    assert " instead of {" in report.by_spark["op0"]
    assert compare(spark, checkpoint, ss.open_store(tmp_path)["q"]) == 4


@pytest.mark.parametrize(("verify", "compared"), [("never", 0), ("first", 1), ("sample", 1), ("all", 2)])
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
    assert ss.capture(checkpoint, tmp_path, "q", verify=verify, spark=spark).epochs
    assert len(asked) == compared


def test_an_invalid_verify_is_refused(tmp_path: Path) -> None:
    """The error lists the choices."""
    with pytest.raises(InvalidArgumentError, match="verify='some': expected first, sample, all, never"):
        ss.capture(tmp_path, tmp_path / "store", verify="some")  # type: ignore[arg-type]


def test_capture_needs_no_spark(spark: SparkSession, checkpoint: Path, tmp_path: Path) -> None:
    """Unless a table has no changelog: then the error says what to install."""
    window = checkpoint.parent.parent / "RocksDB-with-changelog" / "window"
    missing = unpacked("3.5", tmp_path) / "RocksDB" / "aggregation"
    reports = captured_without_spark((checkpoint, tmp_path / "a"), (window, tmp_path / "b"), (missing, tmp_path / "c"))
    assert [epochs[:4] for epochs, _ in reports[:2]] == [[0, 1, 2, 3]] * 2
    assert [by_spark for _, by_spark in reports[:2]] == [{}, {}]
    assert reports[2][0] == "MissingDependencyError"
    assert "Spark has to read op0" in reports[2][1]
    assert "pip install" in reports[2][1]
    assert reports[3][0] == "failed"
    assert "Spark has to read op0" in reports[3][1]
    assert compare(spark, checkpoint, ss.open_store(tmp_path / "a")["q"]) == 4
