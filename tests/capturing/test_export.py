"""Exports: an ordinary Delta table whose versions are the epochs, whole after any interruption."""

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
from streamstate.snapshots.errors import (
    InvalidArgumentError,
    NotAnExportError,
    NotAStoreError,
    StreamStateError,
    UnknownEpochError,
    UnknownQueryError,
    UnknownTableError,
)
from streamstate.snapshots.export import parsed

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
    """Ends an export where a process could have been killed."""


def rows(path: Path, version: int) -> State:
    """A version of an exported table as a plain dict, read with deltalake alone."""
    found = DeltaTable(path, version=version).to_pyarrow_table()
    assert found.schema.names == ["key", "value"]
    return {row["key"]: row["value"] for row in found.to_pylist()}


def test_version_i_is_the_i_th_epoch(tmp_path: Path) -> None:
    """All captured epochs, also an empty one and those after a gap; nothing but the state's columns."""
    write(tmp_path / "s", STATES)
    report = ss.export(tmp_path / "s", "q", tmp_path / "out")
    assert (report.epochs, report.written, report.rows) == ((0, 1, 3, 4, 5, 6), 6, 8)
    assert [rows(tmp_path / "out", version) for version in range(6)] == [STATES[epoch] for epoch in report.epochs]
    assert DeltaTable(tmp_path / "out").version() == 5


def test_each_version_says_which_epoch_it_is(tmp_path: Path) -> None:
    """The commit's metadata names the epoch, its offsets, its watermark and when it was committed."""
    write(tmp_path / "s", STATES)
    ss.export(tmp_path / "s", "q", tmp_path / "out", epochs=[1, 5])
    first, second = sorted(DeltaTable(tmp_path / "out").history(), key=lambda one: one["version"])
    assert (first["streamstate.epoch"], second["streamstate.epoch"]) == ("1", "5")
    assert (first["streamstate.query"], first["streamstate.table"]) == ("q", "op0")
    assert json.loads(first["streamstate.offsets"]) == [0]
    assert json.loads(first["streamstate.watermark"]) is None
    assert second["streamstate.committed_at"] == START.replace(minute=5).isoformat()


def test_chosen_epochs_come_in_order_and_once(tmp_path: Path) -> None:
    """Numbers have to be captured, ranges take in what is."""
    write(tmp_path / "s", STATES)
    report = ss.export(tmp_path / "s", "q", tmp_path / "out", epochs=[5, range(1, 5), 3])
    assert report.epochs == (1, 3, 4, 5)
    assert parsed("3,5,10:12") == [3, 5, range(10, 13)]


@pytest.mark.parametrize("killed_before", range(4))
def test_a_killed_export_goes_on_where_it_stood(tmp_path: Path, killed_before: int) -> None:
    """The versions that are there are whole, and the same call writes the others."""
    write(tmp_path / "s", STATES)

    def progress(done: int, _total: int) -> None:
        if done == killed_before:
            raise Killed

    with pytest.raises(Killed):
        ss.export(tmp_path / "s", "q", tmp_path / "out", progress=progress)
    assert DeltaTable.is_deltatable(str(tmp_path / "out")) == bool(killed_before)
    report = ss.export(tmp_path / "s", "q", tmp_path / "out")
    assert (len(report.epochs), report.written) == (6, 6 - killed_before)
    assert [rows(tmp_path / "out", version) for version in range(6)] == [STATES[epoch] for epoch in report.epochs]
    assert ss.export(tmp_path / "s", "q", tmp_path / "out").written == 0


def test_an_export_goes_on_with_new_epochs_and_survives_retention(tmp_path: Path) -> None:
    """What was exported once stays although the store has dropped it."""
    write(tmp_path / "s", STATES[:4])
    ss.export(tmp_path / "s", "q", tmp_path / "out")
    write(tmp_path / "s", STATES)
    ss.keep(tmp_path / "s", "q", last=2)
    report = ss.export(tmp_path / "s", "q", tmp_path / "out")
    assert (report.epochs, report.written) == ((0, 1, 3, 5, 6), 2)
    assert [rows(tmp_path / "out", version) for version in range(5)] == [STATES[epoch] for epoch in report.epochs]


def test_retention_comes_in_between(tmp_path: Path) -> None:
    """An epoch that goes while others are written is missing by name; the others are right."""
    write(tmp_path / "s", STATES)

    def progress(done: int, _total: int) -> None:
        if done == 2:
            ss.keep(tmp_path / "s", "q", last=1)

    with pytest.raises(UnknownEpochError, match="Epoch 3 of q is not captured, or was dropped by retention"):
        ss.export(tmp_path / "s", "q", tmp_path / "out", progress=progress)
    assert [rows(tmp_path / "out", version) for version in range(2)] == STATES[:2]


def test_other_readers_read_it(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """DuckDB over the files of a version, Polars by version, and deltalake, against Spark's own state reader."""
    report = ss.export(counted[1], "counts", tmp_path / "out", epochs=[1, 3, 4])
    history = ss.open_store(counted[1])["counts"]
    for version, epoch in enumerate(report.epochs):
        table = DeltaTable(tmp_path / "out", version=version)
        expected = captured_rows(history.at(epoch).table())
        assert expected == spark_rows(spark, counted[0], "op0", epoch)
        by_duckdb = duckdb.read_parquet(table.file_uris()).to_arrow_table()
        by_polars = polars.read_delta(str(tmp_path / "out"), version=version).to_arrow()
        for found in (table.to_pyarrow_table(), by_duckdb, by_polars):
            assert captured_rows(_Rows(found)) == expected  # type: ignore[arg-type]


class _Rows:
    """What the oracle asks of a state table."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def to_arrow(self) -> pa.Table:
        return self._rows


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"epochs": [2]}, UnknownEpochError, "nearest captured: 1, 3"),
        ({"epochs": [range(50, 60)]}, UnknownEpochError, "No captured epoch of q"),
        ({"epochs": ["1"]}, InvalidArgumentError, "whole number"),
        ({"table": "op1"}, UnknownTableError, "op0"),
        ({"name": "nope"}, UnknownQueryError, "q"),
        ({"store": "nowhere"}, NotAStoreError, "is not a store"),
    ],
)
def test_errors_name_what_would_be_right(
    tmp_path: Path, options: dict[str, Any], error: type[StreamStateError], says: str
) -> None:
    """And nothing is written."""
    write(tmp_path / "s", STATES)
    given = {"store": tmp_path / "s", "name": "q", "path": tmp_path / "out", **options}
    with pytest.raises(error, match=says):
        ss.export(**given)
    assert not (tmp_path / "out").exists()


def test_anything_else_in_the_place_is_refused(tmp_path: Path) -> None:
    """A file, a folder with files, another table, an export of another query, other epochs: all stay as they are."""
    write(tmp_path / "s", STATES)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    write_deltalake(tmp_path / "other", pa.table({"x": [1]}))
    for name, says in [("file", "is a file"), ("folder", "other files in it"), ("other", "another Delta table")]:
        with pytest.raises(NotAnExportError, match=says):
            ss.export(tmp_path / "s", "q", tmp_path / name)
    ss.export(tmp_path / "s", "q", tmp_path / "out", epochs=[0, 3])
    with pytest.raises(NotAnExportError, match="holds the epochs 0, 3"):
        ss.export(tmp_path / "s", "q", tmp_path / "out", epochs=[1, 3])
    assert DeltaTable(tmp_path / "out").version() == 1
    assert DeltaTable(tmp_path / "other").version() == 0


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1:", ":3", "1-3", "-1"])
def test_a_list_of_epochs_that_is_none(text: str) -> None:
    """Is refused with an example."""
    with pytest.raises(InvalidArgumentError, match="3,5,10:20"):
        parsed(text)
