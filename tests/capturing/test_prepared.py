"""Files that take long to write are kept while others commit, and written again where that is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from streamstate.snapshots.delta import Place, append_once, commit_once, open_or_create
from streamstate.snapshots.delta.commits import required
from streamstate.snapshots.delta.data_files import DataFile, write_file
from streamstate.snapshots.delta.prepared import Prepared
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.delta.sweep import sweep

SCHEMA = pa.schema([("n", pa.int64())])


def rows(*numbers: int) -> pa.Table:
    """Rows of the table."""
    return pa.table({"n": list(numbers)}, schema=SCHEMA)


def nothing(_place: Place) -> None:
    """Nobody comes in between."""


def another_commit(place: Place) -> None:
    """As a capture makes them all the time."""
    version = required(place).version() + 1
    append_once(place, "capture", version, lambda _: rows(version))


def a_sweep(place: Place) -> None:
    """Finds a file that no commit holds, sets its fence, and deletes it together with the one being prepared."""
    write_file(place, SCHEMA, rows(99))
    assert sweep(place)


@pytest.mark.parametrize(
    ("between", "fits", "written"),
    [(nothing, True, 1), (another_commit, True, 1), (another_commit, False, 2), (a_sweep, True, 2)],
)
def test_written_again_only_where_needed(
    tmp_path: Path, between: Callable[[Place], None], fits: bool, written: int
) -> None:
    """Not because of a commit that changes nothing for them; because of one that does, and after a fence."""
    place = Place(str(tmp_path / "t"))
    open_or_create(place, SCHEMA, "test")
    made: list[list[DataFile]] = []

    def make(version: TableVersion) -> list[DataFile]:
        made.append(write_file(version.place, SCHEMA, rows(-1)))
        if len(made) == 1:
            between(place)
        return made[-1]

    prepared = Prepared(place, "n", make, lambda *_: fits)
    assert commit_once(place, "slow", 1, prepared.write, keeps_files=True) == -1
    assert len(made) == written
    table = TableVersion(place, required(place))
    assert table.scan("n", -1, -1).read_all().num_rows == 1
    held = {one.path for one in table.files("n")}
    assert {path.name for path in (tmp_path / "t").glob("*.parquet")} == held


def test_not_needed_any_more(tmp_path: Path) -> None:
    """Where another made the same commit, the files are of no use and are deleted."""
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
