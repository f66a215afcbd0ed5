"""Data files: Parquet, written once, synced, and named after their content.

A file's name ends in the XXH3 digest of its bytes, so that a reader can detect damage. Parquet's page checksums would
miss the footer, and few readers check them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from streamstate.errors import DamagedStoreError, UntrustedStoreError
from streamstate.snapshots.checkpoint.state_tables import CHANGE
from streamstate.snapshots.store.delta.place import Place, synced

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

_NAME = re.compile(r"^part-[0-9a-f]{32}-(?P<digest>[0-9a-f]{32})\.parquet$")
_UNFINISHED = ".unfinished-"
_CHUNK = 1 << 22
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# Hashes of path, size, time and inode of the files that were verified; hashes, because a long history has many.
_sound: set[int] = set()
_MOST_SOUND = 100_000
# Small enough for a reader of some epochs to skip the rest of a large file by its statistics.
_ROW_GROUP = 128 * 1024
# Most columns repeat a few values or hardly any. Arrow's default of 1 MiB fills a dictionary with values that it then
# writes without it: twice the time, and files that are a quarter larger.
_DICTIONARY = 64 << 10
# Compressing so few bytes takes longer than writing them, and saves none.
_TINY = 4 << 10


@dataclass(frozen=True)
class DataFile:
    """A complete file in a table's folder, to be committed."""

    path: str
    """Its path in the table."""
    size: int
    """Bytes."""
    rows: int
    modified: int
    """Milliseconds since 1970."""
    statistics: str
    """The file's statistics as in Delta's log (JSON)."""

    def as_entry(self, *, data_change: bool = True) -> dict[str, Any]:
        """Return the action that commits the file, as in Delta's log."""
        return {
            "path": self.path,
            "partitionValues": {},
            "size": self.size,
            "modificationTime": self.modified,
            "dataChange": data_change,
            "stats": self.statistics,
        }

    def as_action(self, *, data_change: bool = True) -> AddAction:
        """Return the action that commits the file."""
        from deltalake.transaction import AddAction  # not needed by Spark's executors, which write files too

        return AddAction(self.path, self.size, {}, self.modified, data_change, self.statistics)


class DataFileWriter:
    """A writer of one data file, piece by piece; a context manager, at whose end the file is complete.

    Args:
        place: the table.
        schema: the table's columns.
        row_group: the number of rows in a row group.
    """

    def __init__(self, place: Place, schema: pa.Schema, row_group: int = _ROW_GROUP) -> None:
        self.file: DataFile | None = None
        """The file, once complete; None if nothing was written."""
        self._place = place
        self._schema = schema.remove_metadata()
        self._row_group = row_group
        self._name = uuid.uuid4().hex
        self._path: Path | None = None
        self._writer: pq.ParquetWriter | None = None
        self._metadata: list[pq.FileMetaData] = []
        self._pending: list[pa.Table] = []

    def __enter__(self) -> DataFileWriter:
        """Begin; no file is created before the first rows."""
        return self

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows; columns of the table that they lack are null."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        if not table.num_rows:
            return
        self._pending.append(fitted(table, self._schema))
        if sum(piece.num_rows for piece in self._pending) >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        """Write the pending rows; each call of Arrow's writer begins a row group."""
        if not self._pending:
            return
        if self._writer is None:
            self._path = self._unfinished()
            self._path.touch(mode=0o600, exist_ok=False)  # it may be in the shared folder for temporary files
            self._writer = self._opened(self._path)
        self._write_pending(self._writer)

    def _opened(self, to: Path | pa.BufferOutputStream) -> pq.ParquetWriter:
        is_tiny = sum(piece.nbytes for piece in self._pending) < _TINY
        return pq.ParquetWriter(
            to,
            self._schema,
            compression="none" if is_tiny else "zstd",
            dictionary_pagesize_limit=_DICTIONARY,
            metadata_collector=self._metadata,
        )

    def _write_pending(self, writer: pq.ParquetWriter) -> None:
        writer.write_table(pa.concat_tables(self._pending), row_group_size=self._row_group)
        self._pending.clear()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Complete the file; after an error, leave nothing behind."""
        if error is None and self._writer is None and self._pending:
            self._write_at_once()
            return
        try:
            if error is None:
                self._flush()
            if self._writer is not None:
                self._writer.close()
            if error is None and self._path is not None:
                self.file = self._published(self._path)
        finally:
            if self._path is not None:
                self._path.unlink(missing_ok=True)

    def _write_at_once(self) -> None:
        """Make the whole file in memory, where its statistics and its digest cost no reading."""
        memory = pa.BufferOutputStream()
        with self._opened(memory) as writer:
            self._write_pending(writer)
        content = memory.getvalue()
        final = self._final(xxhash.xxh3_128(content).hexdigest())
        if self._place.folder is None:
            with self._place.filesystem().open_output_stream(final) as out:
                out.write(content)
            modified = time.time_ns()
        else:
            modified = _write_file(self._place.folder, str(self._unfinished()), content, final)
        self.file = self._described(final, content.size, modified)

    def _published(self, written: Path) -> DataFile:
        """Name the file after its digest, sync it and move it into the table."""
        synced(written)
        found = written.stat()
        final = self._final(_digest(written))
        if self._place.folder is not None:
            with contextlib.suppress(PermissionError):  # file systems without modes
                written.chmod(_mode(self._place.folder))
            written.rename(self._place.folder / final)
        else:
            with self._place.filesystem().open_output_stream(final) as out, written.open("rb") as file:
                shutil.copyfileobj(file, out, _CHUNK)
        return self._described(final, found.st_size, found.st_mtime_ns)

    def _final(self, digest: str) -> str:
        return f"part-{self._name}-{digest}.parquet"

    def _described(self, final: str, size: int, modified: int) -> DataFile:
        statistics, rows = _statistics(self._metadata[0])
        return DataFile(final, size, rows, modified // 1_000_000, statistics)

    def _unfinished(self) -> Path:
        folder = self._place.folder
        return (folder if folder is not None else Path(tempfile.gettempdir())) / f"{_UNFINISHED}{self._name}"


def write_file(place: Place, schema: pa.Schema, rows: pa.Table | Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Write rows as one data file; no file if there are no rows."""
    with DataFileWriter(place, schema) as writer:
        for piece in [rows] if isinstance(rows, pa.Table) else rows:
            writer.write(piece)
    return [writer.file] if writer.file is not None else []


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows in a table's columns, order and types; columns that they lack are null."""
    names, count = set(rows.schema.names), rows.num_rows
    columns = [
        rows[field.name].cast(field.type) if field.name in names else pa.nulls(count, field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def delete_files(place: Place, paths: Iterable[str]) -> None:
    """Remove files that no commit holds, if they exist."""
    folder = place.folder
    system = None if folder is not None else place.filesystem()
    for path in paths:
        if folder is not None:
            (folder / path).unlink(missing_ok=True)
        elif system is not None:
            system.delete_file(path)


def is_ours(name: str) -> bool:
    """Return whether this is the name of a data file that streamstate wrote, complete or not."""
    return name.startswith(_UNFINISHED) or _NAME.match(name) is not None


def is_complete(name: str) -> bool:
    """Return whether this is the name of a complete data file that streamstate wrote."""
    return _NAME.match(name) is not None


def refuse_links(place: Place, paths: Iterable[str]) -> None:
    """Raise if a data file on the local disk is a symbolic link.

    Raises:
        UntrustedStoreError: it is.
    """
    if (folder := place.folder) is None:
        return
    for path in paths:
        if (folder / path).is_symlink():
            raise UntrustedStoreError.link(folder / path)


def verified(place: Place, path: str, size: int | None = None) -> Path:
    """Return a data file on the local disk (fetched once from an object store), with its bytes verified.

    Files without a digest in their name, such as those of another tool's compaction, are not verified.

    Args:
        place: the table.
        path: the file's path in the table.
        size: its size in bytes according to the log, which saves a request to the object store.

    Raises:
        DamagedStoreError: the file is missing or its bytes have changed.
        UntrustedStoreError: it is a symbolic link.
        StoreError: it cannot be read.
    """
    folder = place.folder
    local = folder / path if folder is not None else _fetched(place, path, size)
    refuse_links(place, [path])
    named = _NAME.match(local.name)
    try:
        found = local.stat()
        if named is None:
            return local
        state = hash((str(local), found.st_size, found.st_mtime_ns, found.st_ino))
        if state in _sound:
            return local
        digest = _digest(local)
    except OSError as error:
        raise DamagedStoreError.unreadable(f"{place}/{path}", error) from error
    if named["digest"] != digest:
        raise DamagedStoreError.file(f"{place}/{path}", "its bytes have changed since it was written")
    if len(_sound) >= _MOST_SOUND:
        _sound.clear()
    _sound.add(state)
    return local


@contextlib.contextmanager
def new_file(path: str, content: bytes | pa.Buffer, mode: int = 0o666) -> Iterator[int]:
    """Write a new file, in as few calls as that takes, and yield its descriptor."""
    descriptor = os.open(path, _NEW, mode)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        yield descriptor
    finally:
        os.close(descriptor)


def _write_file(folder: Path, unfinished: str, content: pa.Buffer, final: str) -> int:
    """Write and sync a file of a table's folder, and return the time of that in nanoseconds since 1970.

    It gets its name before it is synced, which saves a commit of the file system's journal. Until a log entry names it,
    it does not matter if a power loss leaves it incomplete.
    """
    path = unfinished
    try:
        with new_file(path, content, 0o600) as file:
            with contextlib.suppress(PermissionError):  # file systems without modes
                os.chmod(path, _mode(folder))  # noqa: PTH101 (a Path for each call takes as long as the call)
            os.rename(path, f"{folder}/{final}")  # noqa: PTH104
            path = f"{folder}/{final}"
            os.fsync(file)
            return os.fstat(file).st_mtime_ns
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
        raise


def _mode(folder: Path) -> int:
    """Return the mode of a folder's data files: who can read the folder can read them."""
    return 0o600 | os.stat(folder).st_mode & 0o666  # noqa: PTH116


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        # In small pieces: a thread keeps the memory for large ones.
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def _statistics(metadata: pq.FileMetaData) -> tuple[str, int]:
    """Delta's statistics of the columns by which readers skip files, and the number of rows."""
    least: dict[str, int | str] = {}
    most: dict[str, int | str] = {}
    nulls: dict[str, int] = {}
    for at in range(metadata.num_columns):
        column = metadata.schema.column(at)
        whole_number = column.physical_type in ("INT32", "INT64") and column.logical_type.type in ("NONE", "INT")
        if not whole_number and column.path != CHANGE:
            continue
        groups = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
        # A dotted path is a field of a struct, a list or a map.
        nested = "." in column.path or column.path != column.name
        if nested or not all(group and group.has_min_max for group in groups):
            continue
        least[column.name] = min(group.min for group in groups)
        most[column.name] = max(group.max for group in groups)
        if all(group.has_null_count for group in groups):
            nulls[column.name] = sum(group.null_count for group in groups)
    found: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps(found), metadata.num_rows


@functools.cache
def _cache() -> tempfile.TemporaryDirectory[str]:
    """Return files fetched from object stores, deleted when the process ends."""
    return tempfile.TemporaryDirectory(prefix="streamstate-files-")


def _fetched(place: Place, path: str, size: int | None) -> Path:
    folder = Path(_cache().name) / xxhash.xxh3_128(place.uri.encode()).hexdigest()
    local = folder / Path(path).name
    if not local.exists():
        folder.mkdir(parents=True, exist_ok=True)
        arriving = local.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
        try:
            _fetch(place, path, size, arriving)
        except OSError as error:
            raise DamagedStoreError.unreadable(f"{place}/{path}", error) from error
        os.replace(arriving, local)  # noqa: PTH105 (atomic; another thread may have fetched it too)
    return local


def _fetch(place: Place, path: str, size: int | None, to: Path) -> None:
    try:
        sizes = None if size is None else {path: size}
        with place.filesystem(sizes).open_input_stream(path) as stream, to.open("wb") as file:
            shutil.copyfileobj(stream, file, _CHUNK)
    except OSError:
        if size is None:
            raise
        _fetch(place, path, None, to)  # an object of another size is damaged, which its digest shows
