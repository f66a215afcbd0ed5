"""Prepared files are kept across concurrent commits, and written again only if necessary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from streamstate.snapshots.store.delta import Place, append_once, commit_once, open_or_create
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.data_files import DataFile, write_file
from streamstate.snapshots.store.delta.maintenance import sweep
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.delta.reusable_files import Prepared

SCHEMA = pa.schema([("n", pa.int64())])


def rows(*numbers: int) -> pa.Table:
    """Rows of the table."""
    return pa.table({"n": list(numbers)}, schema=SCHEMA)


def nothing(_place: Place) -> None:
    """Make no concurrent commit."""


def another_commit(place: Place) -> None:
    """Append a row, as a capture does."""
    version = required(place).version() + 1
    append_once(place, "capture", version, lambda _: rows(version))


def a_sweep(place: Place) -> None:
    """Delete an orphaned file and the prepared file, after a fence."""
    write_file(place, SCHEMA, rows(99))
    assert sweep(place)


@pytest.mark.parametrize(
    ("between", "fits", "written"),
    [(nothing, True, 1), (another_commit, True, 1), (another_commit, False, 2), (a_sweep, True, 2)],
)
def test_files_are_written_again_only_if_necessary(
    tmp_path: Path, between: Callable[[Place], None], fits: bool, written: int
) -> None:
    """They are written again after a commit that they do not fit, and after a fence, but not after other commits."""
    place = Place(str(tmp_path / "t"))
    open_or_create(place, SCHEMA, "test")
    calls: list[list[DataFile]] = []

    def make(version: TableVersion) -> list[DataFile]:
        calls.append(write_file(version.place, SCHEMA, rows(-1)))
        if len(calls) == 1:
            between(place)
        return calls[-1]

    prepared = Prepared(place, "n", make, lambda *_: fits)
    assert commit_once(place, "slow", 1, prepared.write, keeps_files=True) == -1
    assert len(calls) == written
    table = TableVersion(place, required(place))
    assert table.scan("n", -1, -1).read_all().num_rows == 1
    committed = {file.path for file in table.files("n")}
    assert {path.name for path in (tmp_path / "t").glob("*.parquet")} == committed


def test_unnecessary_files_are_deleted(tmp_path: Path) -> None:
    """If another writer has made the same commit, ``discard`` deletes the files."""
    place = Place(str(tmp_path / "t"))
    open_or_create(place, SCHEMA, "test")

    def make(version: TableVersion) -> list[DataFile]:
        append_once(place, "slow", 1, lambda _: rows(-1))
        return write_file(version.place, SCHEMA, rows(-1))

    prepared = Prepared(place, "n", make, lambda *_: True)
    assert commit_once(place, "slow", 1, prepared.write, keeps_files=True) == 1
    prepared.discard()
    assert TableVersion(place, required(place)).scan("n").read_all().num_rows == 1
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1
