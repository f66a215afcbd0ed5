"""The table of a recording, without Spark: what is dropped, what is pinned, and what a reader of offsets gets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from capturing.test_hostile_store import with_action
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructType

import streamstate as ss
from streamstate.errors import NotReplayableError, QueryError, UntrustedStoreError
from streamstate.snapshots.capture.recording.batches import MARKS
from streamstate.snapshots.capture.recording.recording import RECORDED, Recording, kept, required_recording
from streamstate.snapshots.capture.recording.source import RecordedReader
from streamstate.snapshots.capture.recording.trimming import pin_inputs
from streamstate.snapshots.store.delta import Place, commit_once
from streamstate.snapshots.store.delta.data_files import DataFile, write_file

COLUMNS = pa.schema([("value", pa.int64())])


def add(place: Place, version: int, rows: pa.Table, newest: int) -> None:
    """Commit some batches, as a recorder does."""

    def write(table: DeltaTable, _: int) -> list[DataFile]:
        return write_file(place, pa.schema(table.schema().to_arrow()), rows)

    commit_once(place, "recorder", version, write, marks={RECORDED: newest})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A recording of six batches, of 1, 2, 3 … rows with the numbers 0, 1, 2 …; the fourth and fifth share a file."""
    place = Place(str(tmp_path / "recording"))
    Recording(place).create(COLUMNS, "numbers")
    number = 0
    for version, batches in enumerate([[0], [1], [2], [3, 4], [5]]):
        rows = []
        for batch in batches:
            for position in range(batch + 1):
                rows.append({"_batch": batch, "_partition": 0, "_position": position, "value": number})
                number += 1
        table = pa.Table.from_pylist(rows, schema=pa.schema([*MARKS, *COLUMNS]))
        add(place, version, table, batches[-1])
    return place


def reader(place: Place, tasks: int = 2) -> RecordedReader:
    """Return the reader that Spark would use."""
    return RecordedReader(place, StructType().add("value", LongType()), tasks)


def read(place: Place, after: int, upto: int) -> list[int]:
    """The numbers between two offsets."""
    source = reader(place)
    start, end = ({**source.initialOffset(), "batch": batch} for batch in (after, upto))
    parts = source.partitions(start, end)
    assert len(parts) <= 2
    return sorted(value for part in parts for rows in source.read(part) for value in rows["value"].to_pylist())


def test_offsets_are_batches(place: Place) -> None:
    """The rows after one batch up to another, for any two, also after files were merged."""
    source = reader(place)
    assert source.initialOffset()["batch"] == -1
    assert source.latestOffset(source.initialOffset(), None)["batch"] == 5
    ends = [0, 1, 3, 6, 10, 15, 21]
    for merged in (False, True):
        if merged:
            required_recording(place).optimize.compact()
        for after in range(-1, 6):
            for upto in range(after, 6):
                assert read(place, after, upto) == list(range(ends[after + 1], ends[upto + 1]))


def test_a_recording_cannot_list_files_outside(place: Place, tmp_path: Path) -> None:
    """Somebody else may have written it: the files of its batches are in its folder."""
    assert place.folder is not None
    mine = tmp_path / "mine.parquet"
    shutil.copy(next(place.folder.glob("part-*")), mine)
    with_action(place.folder, "add", "../mine.parquet")
    with pytest.raises(UntrustedStoreError, match="does not belong to this table"):
        read(place, -1, 5)


def test_only_whole_files_are_dropped(place: Place) -> None:
    """A batch that shares its file with one that stays is kept; what is gone is an error, never fewer rows."""
    recording = Recording(place)
    assert recording.drop(-1) == -1
    assert recording.drop(1) == 1
    assert read(place, 1, 5) == list(range(3, 21))
    assert recording.drop(3) == 2
    assert kept(required_recording(place)).dropped == 2
    assert read(place, 2, 5) == list(range(6, 21))
    assert reader(place).initialOffset()["batch"] == 2
    with pytest.raises(NotReplayableError, match=r"batches 2 to 2 .* retention dropped them"):
        read(place, 1, 5)
    assert recording.drop(1) == 2


def test_a_pin_holds_what_comes_after_it(place: Place) -> None:
    """The lowest pin counts, from the offsets of a fork."""
    recording = Recording(place)
    for batch in (4, 1, 3):
        offset = f'{{"recording": "{place.uri}", "id": "x", "batch": {batch}}}'
        pin_inputs([None, offset, '{"logOffset": 3}', "no JSON", "7"])
    assert recording.drop(5) == 1
    assert read(place, 1, 5) == list(range(3, 21))
    Recording(place).pin(-1)
    pin_inputs([f'{{"recording": "{place.uri}-gone", "id": "x", "batch": 1}}'])
    assert not Path(f"{place.uri}-gone").exists()


def test_another_recording_in_its_place_is_an_error(place: Place, tmp_path: Path) -> None:
    """An offset says which recording it is of."""
    source = reader(place)
    start, end = source.initialOffset(), source.latestOffset(source.initialOffset(), None)
    Path(place.uri).rename(tmp_path / "before")
    Recording(place).create(COLUMNS, "numbers")
    with pytest.raises(NotReplayableError, match="is not the recording that this query has read"):
        reader(place).partitions(start, end)
    with pytest.raises(NotReplayableError, match="is not the recording that this query has read"):
        reader(place).latestOffset(end, None)


def test_one_recorder_at_a_time(place: Place) -> None:
    """Each turn has a higher number."""
    turns = [Recording(place).claim() for _ in range(3)]
    assert turns == sorted(set(turns))


def test_a_path_that_holds_something_else_is_refused(place: Place, tmp_path: Path) -> None:
    """Other columns, another frame, another table, other files; nothing changes there."""
    with pytest.raises(QueryError, match="other columns: value"):
        Recording(place).check(pa.schema([("value", pa.string())]), "numbers")
    with pytest.raises(QueryError, match="the input of another frame"):
        Recording(place).check(COLUMNS, "letters")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("nothing")
    with pytest.raises(ss.StreamStateError, match="is not a recording"):
        Recording(Place(str(tmp_path / "notes"))).create(COLUMNS, "numbers")
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["todo.txt"]
