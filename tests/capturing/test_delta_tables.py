"""Tables: rows are there once, files and log entries are what was written, and what nobody committed goes."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamstate.snapshots.delta import Place, append_once, commit_once, open_or_create, open_table
from streamstate.snapshots.delta.commits import Handle, required
from streamstate.snapshots.delta.compaction import compact
from streamstate.snapshots.delta.data_files import DataFile, DataFileWriter, write_file
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.delta.sweep import sweep
from streamstate.snapshots.errors import DamagedStoreError, StoreError

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
NOW = timedelta(0)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty table."""
    found = Place(str(tmp_path / "table"))
    open_or_create(found, SCHEMA, "a table")
    return found


def add(place: Place, version: int, *, writer: str = "w") -> int:
    """One row, under a version of the writer."""
    return append_once(place, writer, version, lambda _: pa.table({"n": [version], "text": [f"row {version}"]}))


def numbers(place: Place) -> list[int]:
    """What the table holds, by a reader of ours."""
    found = TableVersion(place, required(place)).scan("n", columns=["n"]).read_all()
    return sorted(found["n"].to_pylist())


def data_files(place: Place) -> list[Path]:
    """Parquet files in the table's folder, committed or not."""
    assert place.folder is not None
    return sorted(place.folder.glob("*.parquet"))


def test_a_version_is_appended_once(place: Place) -> None:
    """The same version again writes nothing, whichever handle looks."""
    handle = Handle(place)
    row = pa.table({"n": [3], "text": ["x"]})
    assert append_once(handle, "w", 3, lambda _: row) == -1
    assert append_once(place, "w", 3, lambda _: row) == 3
    assert append_once(handle, "w", 2, lambda _: row) == 3
    assert append_once(place, "another", 1, lambda _: row) == -1
    assert numbers(place) == [3, 3]


def test_racing_writers_leave_each_version_once(place: Place) -> None:
    """Every commit becomes the version after the one that its writer looked at, or is tried again."""

    def work() -> None:
        handle = Handle(place)
        for version in range(12):
            append_once(handle, "w", version, lambda _, n=version: pa.table({"n": [n], "text": [""]}))  # type: ignore[misc]

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(place) == list(range(12))
    assert len(data_files(place)) == 12, "a loser of a race leaves no file"


def test_other_readers_see_the_same(place: Place) -> None:
    """Plain Delta, with statistics by which files are left out."""
    for version in range(3):
        add(place, version)
    table = DeltaTable(place.uri)
    assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == [0, 1, 2]
    statistics = pa.table(table.get_add_actions(flatten=True))
    assert sorted(zip(statistics["min.n"].to_pylist(), statistics["max.n"].to_pylist(), strict=True)) == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]
    assert [one.path for one in TableVersion(place, table).files("n") if one.may_hold(1, 1)] == [
        one.path for one in TableVersion(place, table).files("n")[1:2]
    ]


def test_a_changed_byte_in_a_data_file_is_noticed(place: Place) -> None:
    """Wherever it is, footer included; and so is a file that is gone."""
    add(place, 0)
    (file,) = data_files(place)
    good = file.read_bytes()
    for at in (0, len(good) // 2, len(good) - 9):
        file.write_bytes(good[:at] + bytes([good[at] ^ 16]) + good[at + 1 :])
        with pytest.raises(DamagedStoreError, match="bytes are not those"):
            numbers(place)
    file.unlink()
    with pytest.raises(DamagedStoreError, match="No such file"):
        numbers(place)


def test_a_changed_log_entry_is_noticed(place: Place) -> None:
    """Emptied, cut short or changed; its checksum file has the format that Hadoop verifies by itself."""
    add(place, 0)
    assert place.folder is not None
    entry = place.folder / "_delta_log" / f"{1:020}.json"
    good, seal = entry.read_bytes(), entry.with_name(f".{entry.name}.crc").read_bytes()
    assert seal[:8] == b"crc\0\0\0\2\0"
    assert int.from_bytes(seal[8:12]) == zlib.crc32(good[:512])
    for bad in (b"", good[:-5], good.replace(b"add", b"adx", 1)):
        entry.write_bytes(bad)
        with pytest.raises(DamagedStoreError, match="checksum"):
            open_table(place)
    entry.write_bytes(good)
    assert numbers(place) == [0]


def test_what_a_dead_writer_left_unsealed_is_sealed(place: Place) -> None:
    """The next writer finishes it."""
    add(place, 0)
    assert place.folder is not None
    seal = place.folder / "_delta_log" / f".{1:020}.json.crc"
    seal.unlink()
    assert numbers(place) == [0]
    sweep(place)
    assert seal.exists()


def test_orphans_are_swept(place: Place) -> None:
    """A file that no commit took goes; what is committed stays, and so does what is not ours."""
    add(place, 0)
    orphan = write_file(place, SCHEMA, pa.table({"n": [7], "text": ["x"]}))[0].path
    assert place.folder is not None
    (place.folder / ".unfinished-0").write_bytes(b"PAR1")
    (place.folder / "notes.txt").write_text("mine")
    assert sweep(place) == sorted([".unfinished-0", orphan])
    assert sweep(place) == []
    assert numbers(place) == [0]
    assert (place.folder / "notes.txt").exists()


def test_a_sweep_takes_nothing_that_is_about_to_be_committed(place: Place) -> None:
    """A commit whose files were swept away from under it writes them anew."""
    written: list[str] = []

    def write(_table: DeltaTable, _stands: int) -> list[DataFile]:
        files = write_file(place, SCHEMA, pa.table({"n": [1], "text": ["x"]}))
        written.append(files[0].path)
        if len(written) == 1:
            assert sweep(place) == written
        return files

    assert commit_once(place, "w", 1, write) == -1
    assert len(written) == 2
    assert numbers(place) == [1]
    assert [file.name for file in data_files(place)] == written[1:]


def test_a_sweep_while_a_file_is_written(place: Place) -> None:
    """Half a file goes too, and its writer begins again."""
    attempts = 0

    def write(_table: DeltaTable, _stands: int) -> list[DataFile]:
        nonlocal attempts
        attempts += 1
        with DataFileWriter(place, SCHEMA) as writer:
            for start in range(0, 300_000, 100_000):
                rows = range(start, start + 100_000)
                writer.write(pa.table({"n": rows, "text": [""] * len(rows)}))
                if start == 100_000 and attempts == 1:
                    assert len(sweep(place)) == 1
        assert writer.file is not None
        return [writer.file]

    commit_once(place, "w", 1, write)
    assert attempts == 2
    assert len(numbers(place)) == 300_000


def test_an_error_while_writing_leaves_nothing(place: Place) -> None:
    """Neither rows nor files; the error is the caller's own."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": range(200_000), "text": [""] * 200_000})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_file(place, SCHEMA, rows())
    assert place.folder is not None
    assert [entry.name for entry in place.folder.iterdir()] == ["_delta_log"]


def test_small_files_are_merged(place: Place) -> None:
    """Rows stay, readers of an older version keep their files until the grace period has passed."""
    for version in range(70):
        add(place, version)
    before = TableVersion(place, required(place))
    assert compact(place, "n") == 70
    assert compact(place, "n") == 0
    assert len(required(place).file_uris()) == 1
    assert numbers(place) == list(range(70))
    assert sweep(place) == []
    assert sorted(before.scan("n").read_all()["n"].to_pylist()) == list(range(70))
    assert len(sweep(place, NOW)) == 70
    assert numbers(place) == list(range(70))
    with pytest.raises(DamagedStoreError):
        before.scan("n")


def test_a_merge_follows_what_was_appended_meanwhile(place: Place) -> None:
    """Merging and appending at once lose and double nothing."""
    for version in range(64):
        add(place, version)
    stop = threading.Event()

    def append() -> None:
        version = 64
        while not stop.is_set():
            add(place, version)
            version += 1

    thread = threading.Thread(target=append)
    thread.start()
    try:
        assert compact(place, "n") >= 64
    finally:
        stop.set()
        thread.join()
    found = numbers(place)
    assert found == list(range(len(found)))


def test_columns_and_types_grow(place: Place) -> None:
    """A new column is null in old rows; a wider type holds both; a type that fits neither is refused."""
    open_or_create(place, pa.schema([("n", pa.int64()), ("k", pa.int32())]), "")
    append_once(place, "w", 1, lambda _: pa.table({"n": [1], "k": pa.array([5], pa.int32())}))
    open_or_create(place, pa.schema([("n", pa.int64()), ("k", pa.int64()), ("s", pa.struct([("x", pa.int32())]))]), "")
    append_once(place, "w", 2, lambda _: pa.table({"n": [2], "k": [2**40], "s": [{"x": 1}]}))
    found = TableVersion(place, required(place)).scan("n").read_all().to_pylist()
    assert found == [{"n": 1, "text": None, "k": 5, "s": None}, {"n": 2, "text": None, "k": 2**40, "s": {"x": 1}}]
    assert sorted(DeltaTable(place.uri).to_pyarrow_table()["k"].to_pylist()) == [5, 2**40]
    with pytest.raises(StoreError, match="no type in common"):
        open_or_create(place, pa.schema([("k", pa.list_(pa.int64()))]), "")
