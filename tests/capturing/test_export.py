"""An export is an ordinary Delta table with a version for each epoch, and can be resumed after an interruption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from oracle import captured_rows, spark_rows
from pyspark.sql import SparkSession
from synthetic import START, State, write

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    NotAnExportError,
    NotAStoreError,
    StreamStateError,
    UnknownEpochError,
    UnknownQueryError,
    UnknownTableError,
)

STATES: list[State | None] = [
    {"a": 1},
    {"a": 2, "b": 5},
    None,
    {"b": 6, "c": 7},
    {},
    {"z": 1, "b": 6},
    {"z": 2},
]


class Killed(BaseException):
    """Interrupts an export, like a killed process."""


def rows(path: Path, version: int) -> State:
    """A version of an exported table as a plain dict, read with deltalake."""
    table = DeltaTable(path, version=version).to_pyarrow_table()
    assert table.schema.names == ["key", "value"]
    return {row["key"]: row["value"] for row in table.to_pylist()}


def test_each_version_is_an_epoch(tmp_path: Path) -> None:
    """All captured epochs are exported, including empty states and epochs after a gap, with the state's columns."""
    write(tmp_path / "s", STATES)
    report = ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out")
    assert (report.epochs, report.written, report.rows) == ((0, 1, 3, 4, 5, 6), 6, 8)
    assert [rows(tmp_path / "out", version) for version in range(6)] == [STATES[epoch] for epoch in report.epochs]
    assert DeltaTable(tmp_path / "out").version() == 5


def test_commit_metadata_describes_the_epoch(tmp_path: Path) -> None:
    """It has the epoch, the query, the table, the offsets, the watermark and the commit time."""
    write(tmp_path / "s", STATES)
    ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out", epochs=[1, 5])
    first, second = sorted(DeltaTable(tmp_path / "out").history(), key=lambda commit: commit["version"])
    assert (first["streamstate.epoch"], second["streamstate.epoch"]) == ("1", "5")
    assert (first["streamstate.query"], first["streamstate.table"]) == ("q", "op0")
    assert json.loads(first["streamstate.offsets"]) == [0]
    assert json.loads(first["streamstate.watermark"]) is None
    assert second["streamstate.committed_at"] == START.replace(minute=5).isoformat()


def test_selected_epochs_are_sorted_and_unique(tmp_path: Path) -> None:
    """Ranges select the captured epochs in them. Exporting the same epochs again writes nothing."""
    write(tmp_path / "s", STATES)
    report = ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out", epochs=[5, range(1, 5), 3])
    assert report.epochs == (1, 3, 4, 5)
    again = ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out", epochs="1..5")
    assert (again.epochs, again.written) == (report.epochs, 0)


@pytest.mark.parametrize("killed_before", range(4))
def test_a_killed_export_is_resumed(tmp_path: Path, killed_before: int) -> None:
    """The same call writes the remaining versions only."""
    write(tmp_path / "s", STATES)

    def progress(message: str, _share: float | None) -> None:
        if message == f"{killed_before} of 6 versions":
            raise Killed

    with pytest.raises(Killed):
        ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out", progress=progress)
    assert DeltaTable.is_deltatable(str(tmp_path / "out")) == bool(killed_before)
    report = ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out")
    assert (len(report.epochs), report.written) == (6, 6 - killed_before)
    assert [rows(tmp_path / "out", version) for version in range(6)] == [STATES[epoch] for epoch in report.epochs]
    assert ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out").written == 0


def test_new_epochs_are_added_to_an_export(tmp_path: Path) -> None:
    """Exported epochs are kept even if retention has dropped them from the store."""
    write(tmp_path / "s", STATES[:4])
    ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out")
    write(tmp_path / "s", STATES)
    ss.open_store(tmp_path / "s")["q"].retain(last=2)
    report = ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out")
    assert (report.epochs, report.written) == ((0, 1, 3, 5, 6), 2)
    assert [rows(tmp_path / "out", version) for version in range(5)] == [STATES[epoch] for epoch in report.epochs]


def test_retention_during_an_export(tmp_path: Path) -> None:
    """The error names the first epoch that was dropped before it was written. Earlier versions are right."""
    write(tmp_path / "s", STATES)

    def progress(message: str, _share: float | None) -> None:
        if message.startswith("2 of "):
            ss.open_store(tmp_path / "s")["q"].retain(last=1)

    with pytest.raises(UnknownEpochError, match="Epoch 3 of q is not captured, or was dropped by retention"):
        ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out", progress=progress)
    assert [rows(tmp_path / "out", version) for version in range(2)] == STATES[:2]


def test_other_tools_read_an_export(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """DuckDB, Polars and deltalake find the rows of Spark's own state reader in each version."""
    report = ss.open_store(counted[1])["counts"].export(tmp_path / "out", epochs=[1, 3, 4])
    history = ss.open_store(counted[1])["counts"]
    for version, epoch in enumerate(report.epochs):
        table = DeltaTable(tmp_path / "out", version=version)
        expected = captured_rows(history.at(epoch).table())
        assert expected == spark_rows(spark, counted[0], "op0", epoch)
        by_duckdb = duckdb.read_parquet(table.file_uris()).to_arrow_table()
        by_polars = polars.read_delta(str(tmp_path / "out"), version=version).to_arrow()
        for rows_read in (table.to_pyarrow_table(), by_duckdb, by_polars):
            assert captured_rows(_Rows(rows_read)) == expected  # type: ignore[arg-type]


class _Rows:
    """The part of a state table that the oracle uses."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def to_arrow(self) -> pa.Table:
        return self._rows


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": [2]}, UnknownEpochError, "nearest captured epochs: 1, 3"),
        ({"epochs": [range(50, 60)]}, UnknownEpochError, "None of the epochs to export of q"),
        ({"epochs": ["1"]}, InvalidArgumentError, "Invalid epochs"),
        ({"table": "op1"}, UnknownTableError, "op0"),
        ({"name": "nope"}, UnknownQueryError, "q"),
        ({"store": "nowhere"}, NotAStoreError, "is not a store"),
    ],
)
def test_invalid_arguments_are_rejected(
    tmp_path: Path, options: dict[str, Any], error: type[StreamStateError], message: str
) -> None:
    """The error lists valid values, and the target is not created."""
    write(tmp_path / "s", STATES)
    store, name = options.pop("store", tmp_path / "s"), options.pop("name", "q")
    with pytest.raises(error, match=message):
        ss.open_store(store)[name].export(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_an_unsuitable_target_is_rejected(tmp_path: Path) -> None:
    """Files, folders with files, other Delta tables and exports of other epochs are not overwritten."""
    write(tmp_path / "s", STATES)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    write_deltalake(tmp_path / "other", pa.table({"x": [1]}))
    for name, message in [("file", "is a file"), ("folder", "other files in it"), ("other", "is not an export")]:
        with pytest.raises(NotAnExportError, match=message):
            ss.open_store(tmp_path / "s")["q"].export(tmp_path / name)
    ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out", epochs=[0, 3])
    with pytest.raises(NotAnExportError, match="holds the epochs 0, 3"):
        ss.open_store(tmp_path / "s")["q"].export(tmp_path / "out", epochs=[1, 3])
    assert DeltaTable(tmp_path / "out").version() == 1
    assert DeltaTable(tmp_path / "other").version() == 0
