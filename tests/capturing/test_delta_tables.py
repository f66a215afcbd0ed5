"""Delta tables: exactly-once appends, detection of changed files, merging, and deletion of orphaned files."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from streamstate.errors import DamagedStoreError, StoreError
from streamstate.snapshots.store.delta import Place, append_once, commit_once, log_checks, open_or_create, open_table
from streamstate.snapshots.store.delta.commits import Handle, remember_removed, required, update
from streamstate.snapshots.store.delta.data_files import DataFile, DataFileWriter, verified, write_file
from streamstate.snapshots.store.delta.maintenance import merge_small_files, sweep
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.delta.table import CHECKPOINT_INTERVAL

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
NOW = timedelta(0)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty table."""
    place = Place(str(tmp_path / "table"))
    open_or_create(place, SCHEMA, "a table")
    return place


def add(place: Place, version: int, *, writer: str = "w") -> int:
    """Append a row as a version of a writer."""
    return append_once(place, writer, version, lambda _: pa.table({"n": [version], "text": [f"row {version}"]}))


def numbers(place: Place) -> list[int]:
    """The column ``n`` in the table's newest version."""
    rows = TableVersion(place, required(place)).scan("n", columns=["n"]).read_all()
    return sorted(rows["n"].to_pylist())


def data_files(place: Place) -> list[Path]:
    """The data files in the table's folder, committed or not."""
    assert place.folder is not None
    return sorted(place.folder.glob("*.parquet"))


def test_a_version_is_appended_once(place: Place) -> None:
    """Appending a version again writes nothing, and returns the version of the writer."""
    handle = Handle(place)
    row = pa.table({"n": [3], "text": ["x"]})
    assert append_once(handle, "w", 3, lambda _: row) == -1
    assert append_once(place, "w", 3, lambda _: row) == 3
    assert append_once(handle, "w", 2, lambda _: row) == 3
    assert append_once(place, "another", 1, lambda _: row) == -1
    assert numbers(place) == [3, 3]


@pytest.mark.parametrize("commits", [1, 3, 15])
def test_an_updated_table_has_the_version_of_each_writer(place: Place, commits: int) -> None:
    """An open table that is updated agrees with a newly opened one."""
    table = required(place)
    writers = ["w", "another", "nobody"]
    for step in range(3):
        assert [table.transaction_version(writer) for writer in writers] == [
            DeltaTable(place.uri).transaction_version(writer) for writer in writers
        ]
        for version in range(commits):
            add(place, step * commits + version, writer=writers[version % 2])
        assert table.has_newer()
        assert update(place, table)
        assert not table.has_newer()


def test_a_writer_knows_the_table_that_it_has_written(place: Place) -> None:
    """It reads nothing back, and what it then says of the table is what a newly opened one says."""
    handle, rows = Handle(place), pa.table({"n": [0], "text": ["x"]})
    for step in range(12):
        append_once(handle, "w", step, lambda _: rows)
        written = handle.newest()
        opened = DeltaTable(place.uri)
        assert written.version() == opened.version()
        assert written.transaction_version("w") == opened.transaction_version("w") == step
        if step % 4 == 3:
            assert sorted(written.file_uris()) == sorted(opened.file_uris())
            assert written.schema() == opened.schema()
        if step % 3 == 2:
            add(place, step, writer="another")
            assert handle.newest().transaction_version("another") == step


def test_own_commits_are_not_read_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit and reading it back take milliseconds of deltalake; captures of many queries have none to spare."""
    handle = Handle(place)
    add_with = pa.table({"n": [0], "text": ["x"]})
    append_once(handle, "w", 0, lambda _: add_with)
    for name in ("update_incremental", "create_write_transaction"):
        monkeypatch.setattr(DeltaTable, name, lambda *_, **__: pytest.fail("deltalake was called"))
    assert append_once(handle, "w", 1, lambda _: add_with) == 0
    assert append_once(handle, "w", 2, lambda _: add_with) == 1
    monkeypatch.undo()
    assert numbers(place) == [0, 0, 0]


def test_what_a_writer_lists_is_its_version(place: Place) -> None:
    """A commit that came after its own is not in it until it looks for newer ones."""
    handle = Handle(place)
    add_to = pa.table({"n": [0], "text": ["x"]})
    append_once(handle, "w", 0, lambda _: add_to)
    table = handle.newest()
    append_once(handle, "w", 1, lambda _: add_to)
    add(place, 7, writer="another")
    assert (table.version(), len(table.file_uris())) == (2, 2)
    assert (handle.newest().version(), len(handle.newest().file_uris())) == (3, 3)


@pytest.mark.parametrize("rows", [1, 100])
def test_a_file_made_in_memory_is_like_a_large_one(place: Place, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """The log says the same of both, and their bytes are verified."""
    table = pa.table({"n": [*range(rows)], "text": ["x"] * rows})
    (small,) = write_file(place, SCHEMA, table)
    monkeypatch.setattr("streamstate.snapshots.store.delta.data_files._ROW_GROUP", 1)
    (large,) = write_file(place, SCHEMA, table)
    assert (small.statistics, small.rows, small.size) == (large.statistics, large.rows, large.size)
    assert place.folder is not None
    assert verified(place, small.path).read_bytes() == verified(place, large.path).read_bytes()
    files = [place.folder / file.path for file in (small, large)]
    assert len({file.stat().st_mode for file in files}) == 1
    assert [*place.folder.glob(".unfinished*")] == []


def test_concurrent_writers_append_each_version_once(place: Place) -> None:
    """Conflicting commits are retried, and leave neither duplicate rows nor files."""

    def append_all() -> None:
        handle = Handle(place)
        for version in range(12):
            append_once(handle, "w", version, lambda _, n=version: pa.table({"n": [n], "text": [""]}))  # type: ignore[misc]

    threads = [threading.Thread(target=append_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(place) == list(range(12))
    assert len(data_files(place)) == 12, "files of conflicting commits remain"


def test_deltalake_reads_the_same_rows(place: Place) -> None:
    """The tables are ordinary Delta tables, with statistics for file skipping."""
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
    assert [file.path for file in TableVersion(place, table).files("n") if file.may_hold(1, 1)] == [
        file.path for file in TableVersion(place, table).files("n")[1:2]
    ]


def test_a_changed_byte_in_a_data_file_is_detected(place: Place) -> None:
    """A change of any byte is detected, including the footer, and so is a missing file."""
    add(place, 0)
    (file,) = data_files(place)
    good = file.read_bytes()
    for index in (0, len(good) // 2, len(good) - 9):
        file.write_bytes(good[:index] + bytes([good[index] ^ 16]) + good[index + 1 :])
        with pytest.raises(DamagedStoreError, match="bytes have changed"):
            numbers(place)
    file.unlink()
    with pytest.raises(DamagedStoreError, match="No such file"):
        numbers(place)


def test_a_changed_log_entry_is_detected(place: Place) -> None:
    """Empty, truncated and changed entries are detected by checksum files, which have Hadoop's format."""
    add(place, 0)
    assert place.folder is not None
    entry = place.folder / "_delta_log" / f"{1:020}.json"
    good, checksum = entry.read_bytes(), entry.with_name(f".{entry.name}.crc").read_bytes()
    assert checksum[:8] == b"crc\0\0\0\2\0"
    assert int.from_bytes(checksum[8:12]) == zlib.crc32(good[:512])
    for bad in (b"", good[:-5], good.replace(b"add", b"adx", 1)):
        entry.write_bytes(bad)
        with pytest.raises(DamagedStoreError, match="checksum"):
            open_table(place)
    entry.write_bytes(good)
    assert numbers(place) == [0]


def test_a_missing_checksum_of_a_log_entry_is_written_later(place: Place) -> None:
    """An entry whose writer was killed before it wrote the checksum can be read; the next writer adds it."""
    add(place, 0)
    assert place.folder is not None
    checksum = place.folder / "_delta_log" / f".{1:020}.json.crc"
    checksum.unlink()
    assert numbers(place) == [0]
    sweep(place)
    assert checksum.exists()


def test_an_unfinished_file_is_private_to_its_owner(place: Place) -> None:
    """Only its owner can read an unfinished file; a complete file has the permissions of the table's folder."""
    assert place.folder is not None
    place.folder.chmod(0o755)
    count = 1 << 17
    with DataFileWriter(place, SCHEMA) as writer:
        writer.write(pa.table({"n": range(count), "text": ["x"] * count}))
        (unfinished,) = place.folder.glob(".unfinished-*")
        assert unfinished.stat().st_mode & 0o777 == 0o600
    assert [file.stat().st_mode & 0o777 for file in data_files(place)] == [0o644]


def test_orphaned_files_are_swept(place: Place) -> None:
    """Uncommitted data files are deleted. Committed files and files of other tools are kept."""
    add(place, 0)
    orphan = write_file(place, SCHEMA, pa.table({"n": [7], "text": ["x"]}))[0].path
    assert place.folder is not None
    (place.folder / ".unfinished-0").write_bytes(b"PAR1")
    (place.folder / "notes.txt").write_text("mine")
    assert sweep(place) == sorted([".unfinished-0", orphan])
    assert sweep(place) == []
    assert numbers(place) == [0]
    assert (place.folder / "notes.txt").exists()


def test_a_sweep_before_a_commit(place: Place) -> None:
    """A commit whose files have been swept writes them again."""
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
    """The unfinished file is deleted, and its writer starts again."""
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


def test_a_handle_is_opened_anew_before_it_is_slow(place: Place) -> None:
    """Deltalake's handles get slower with every version; what they return stays the same."""
    handle = Handle(place)
    opened = [handle.newest()]
    for number in range(2 * CHECKPOINT_INTERVAL + 2):
        add(place, number)
        table = handle.newest()
        assert table.transaction_version("w") == number
        assert not table.is_slow
        if table is not opened[-1]:
            opened.append(table)
    assert len(opened) == 3
    assert len(list((Path(place.uri) / "_delta_log").glob("*.checkpoint.parquet"))) == 2


def old(place: Place) -> None:
    """Make all files of the log look two days old."""
    assert place.folder is not None
    two_days_ago = time.time() - 2 * 24 * 3600
    for file in (place.folder / "_delta_log").iterdir():
        os.utime(file, (two_days_ago, two_days_ago))


def test_old_log_entries_are_removed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log then begins with a log checkpoint; the newest hundred versions stay, and so does what is young."""
    monkeypatch.setattr(log_checks, "_LAST_KEPT", 10)
    for number in range(75):
        add(place, number)
    assert place.folder is not None
    log = place.folder / "_delta_log"
    sweep(place)
    assert (log / f"{0:020}.json").exists()
    old(place)
    sweep(place)
    numbered = [name.name.removeprefix(".")[:20] for name in log.iterdir() if name.name != "_last_checkpoint"]
    assert min(numbered) == f"{60:020}"
    assert required(place).version() == 75
    assert numbers(place) == list(range(75))
    assert len(required(place).history()) == 16
    add(place, 75)
    assert numbers(place) == list(range(76))
    with DeltaTable(place.uri).to_pyarrow_dataset().scanner().to_reader() as rows:
        assert sum(batch.num_rows for batch in rows) == 76


def test_a_handle_that_was_idle_for_long_finds_the_newest_version(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry after its own version may have been removed meanwhile."""
    monkeypatch.setattr(log_checks, "_LAST_KEPT", 10)
    handle = Handle(place)
    add(place, 0)
    before = handle.newest()
    for number in range(1, 60):
        add(place, number)
    old(place)
    sweep(place)
    assert not before.has_newer()
    before._looked_at -= 2 * 3600
    assert handle.newest().version() == 60
    assert handle.newest().transaction_version("w") == 59


def test_an_error_while_writing_leaves_no_files(place: Place) -> None:
    """The error of the caller is raised."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": range(200_000), "text": [""] * 200_000})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_file(place, SCHEMA, rows())
    assert place.folder is not None
    assert [entry.name for entry in place.folder.iterdir()] == ["_delta_log"]


def test_small_files_are_merged(place: Place) -> None:
    """The rows are unchanged. Older versions can be read until the grace period of their files has passed."""
    for version in range(70):
        add(place, version)
    before = TableVersion(place, required(place))
    assert merge_small_files(place, "n") == 70
    assert merge_small_files(place, "n") == 0
    assert len(required(place).file_uris()) == 1
    assert numbers(place) == list(range(70))
    assert sweep(place) == []
    assert sorted(before.scan("n").read_all()["n"].to_pylist()) == list(range(70))
    assert len(sweep(place, NOW)) == 70
    assert numbers(place) == list(range(70))
    with pytest.raises(DamagedStoreError):
        before.scan("n")


def test_merging_during_concurrent_appends(place: Place) -> None:
    """No rows are lost or duplicated."""
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
        assert merge_small_files(place, "n") >= 64
    finally:
        stop.set()
        thread.join()
    merged = numbers(place)
    assert merged == list(range(len(merged)))


def test_columns_can_be_added_and_widened(place: Place) -> None:
    """New columns are null in old rows. Types without a common type are rejected."""
    open_or_create(place, pa.schema([("n", pa.int64()), ("k", pa.int32())]), "")
    append_once(place, "w", 1, lambda _: pa.table({"n": [1], "k": pa.array([5], pa.int32())}))
    open_or_create(place, pa.schema([("n", pa.int64()), ("k", pa.int64()), ("s", pa.struct([("x", pa.int32())]))]), "")
    append_once(place, "w", 2, lambda _: pa.table({"n": [2], "k": [2**40], "s": [{"x": 1}]}))
    rows = TableVersion(place, required(place)).scan("n").read_all().to_pylist()
    assert rows == [{"n": 1, "text": None, "k": 5, "s": None}, {"n": 2, "text": None, "k": 2**40, "s": {"x": 1}}]
    assert sorted(DeltaTable(place.uri).to_pyarrow_table()["k"].to_pylist()) == [5, 2**40]
    with pytest.raises(StoreError, match="no common type"):
        open_or_create(place, pa.schema([("k", pa.list_(pa.int64()))]), "")


@pytest.mark.parametrize("wrapped", [False, True])
def test_maps_may_have_times_without_a_zone(tmp_path: Path, wrapped: bool) -> None:
    """The library declares Delta's feature for them if they are in a struct or a list, and not in a map."""
    local = Place(str(tmp_path / "table"))
    kind: pa.DataType = pa.map_(pa.string(), pa.timestamp("us"))
    kind = pa.struct([("at", kind)]) if wrapped else kind
    schema = pa.schema([("n", pa.int64()), ("m", kind)])
    noon = [("a", datetime(2026, 1, 1, 12))]  # noqa: DTZ001
    rows = pa.table({"n": [1], "m": pa.array([{"at": noon} if wrapped else noon], kind)})
    for version in (1, 2):
        open_or_create(local, schema, "")
        append_once(local, "w", version, lambda _: rows)
    assert TableVersion(local, required(local)).scan("n").read_all() == pa.concat_tables([rows, rows])


def removes(place: Place) -> int:
    """The files that left the table, in its newest log checkpoint."""
    assert place.folder is not None
    newest = max((place.folder / "_delta_log").glob("*.checkpoint.parquet"))
    return int(pq.read_table(newest)["remove"].combine_chunks().is_valid().to_numpy(zero_copy_only=False).sum())


def leave(place: Place, hours_ago: int) -> str:
    """Let the first file leave the table as if that had been some hours ago; returns its name."""
    table = required(place)
    at = int((time.time() - hours_ago * 3600) * 1000)
    file = TableVersion(place, table).files("n")[0]
    table.create_write_transaction([RemoveAction(file.path, False, at, file.size, {})], "append", table.schema())
    required(place).create_checkpoint()
    return file.path


def test_the_log_forgets_files_that_left_long_ago(place: Place) -> None:
    """Otherwise opening the table would take longer with every file that was merged; a longer grace is respected."""
    for version in range(5):
        add(place, version)
    leave(place, 3)
    assert removes(place) == 0
    leave(place, 1)
    assert removes(place) == 1
    remember_removed(place, timedelta(hours=30))
    leave(place, 29)
    assert removes(place) == 2
    remember_removed(place, timedelta(hours=1))
    required(place).create_checkpoint()
    assert removes(place) == 2


def test_a_sweep_keeps_what_a_longer_grace_promised(place: Place) -> None:
    """Also one by a capture, which knows nothing of the grace that retention was given."""
    for version in range(5):
        add(place, version)
    remember_removed(place, timedelta(hours=30))
    kept = [leave(place, 3), leave(place, 29)]
    gone = leave(place, 40)
    assert sweep(place) == [gone]
    assert place.folder is not None
    assert all((place.folder / path).exists() for path in kept)
