"""The rows in a snapshot of Spark's RocksDB state store.

A snapshot is a zip with a RocksDB database but for its data: the data is in ``SSTs/`` beside it, in files that several
snapshots can share. The zip's ``metadata`` says which, and under which names RocksDB knows them. RocksDB itself reads
them, through the package ``rocksdict``; it verifies the checksum of every block, and that the files are those that the
database lists. Nothing is written but a temporary folder with links to the data.

The ``metadata`` also numbers the virtual column families, whose numbers precede each key in a changelog. Each partition
of a store numbers its families itself, in the order in which the operator creates them; a number is never used again.
Spark writes a snapshot with every commit that creates or removes a family, so the newest snapshot up to a version has
the numbers that hold at it.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from streamstate.extras import install_command
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.changelog_records import PADDING, PUT, Records
from streamstate.snapshots.checkpoint.decoding.failures import (
    DamagedChangelogError,
    MissingChangelogError,
    UnsupportedChangelogError,
)
from streamstate.snapshots.checkpoint.decoding.integrity import verified
from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.filesystem import inside, local_path
from streamstate.snapshots.checkpoint.state_files import StoreFiles, data_files

if TYPE_CHECKING:
    from rocksdict import Rdict

# Rows are handed out in pieces of so many bytes, and taken from RocksDB so many at a time.
_PIECE = 8 << 20
_STEP = 1000
_LARGEST, _LARGEST_METADATA = 256 << 20, 64 << 20
"""Bytes that are read at most of a file in a zip: its metadata has a few hundred for each of RocksDB's files."""
_DATABASE = re.compile(r"CURRENT|MANIFEST-\d+|\d+\.log", re.ASCII)
_DATA = re.compile(r"\d+\.(?:sst|log)", re.ASCII)

# Spark's own options file could make RocksDB open other files; only how it merges lists matters for reading.
_OPTIONS = """\
[Version]
  rocksdb_version=9.8.4
  options_file_version=1.1
[DBOptions]
  max_open_files=-1
[CFOptions "default"]
  merge_operator={{id=StringAppendOperator;delimiter={delimiter};}}
[TableOptions/BlockBasedTable "default"]
"""


@contextmanager
def snapshot_archive(file: IO[bytes], path: str) -> Iterator[tuple[zipfile.ZipFile, dict[str, Any]]]:
    """Open a snapshot's zip; returns it and its metadata.

    Raises:
        DamagedChangelogError: it is not a zip that Spark wrote; also if that shows while it is open.
        UnsupportedChangelogError: it has an unknown version.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            version, _, text = _entry(archive, "metadata", _LARGEST_METADATA).partition(b"\n")
            if version not in {b"v1", b"v2"}:
                raise UnsupportedChangelogError(f"The snapshot {path} has the unknown version {version[:20]!r}.")
            if not isinstance(metadata := json.loads(text), dict):
                raise TypeError("its metadata is no object")
            yield archive, metadata
    except (
        *(zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError),
        *(ValueError, LookupError, TypeError, AttributeError),
    ) as error:
        raise DamagedChangelogError(f"The snapshot {path} is damaged: {error!r}.") from error


def snapshot_records(checkpoint: CheckpointFiles, path: str, table: TableFormat) -> Iterator[Records]:
    """Return the rows of a table in a snapshot, as puts, each key once, piece by piece; at least one piece.

    In a store with column families, a piece may also have rows of the next family.

    Raises:
        DamagedChangelogError: a file is not what Spark wrote.
        MissingChangelogError: a file is missing.
        UnsupportedChangelogError: ``rocksdict`` is not installed, or the snapshot has an unknown version.
    """
    with TemporaryDirectory(prefix="streamstate-") as folder:
        _lay_out(checkpoint, path, Path(folder), "," if table.delimited else "")
        with _opened(folder, path) as database:
            family = b"" if table.family_id is None else table.family_id.to_bytes(2, "little")
            yield from _pieces(database, family, path)


def _entry(archive: zipfile.ZipFile, name: str, most: int = _LARGEST) -> bytes:
    if archive.getinfo(name).file_size > most:
        raise ValueError(f"{name} has more than {most:,} bytes")
    return archive.read(name)


def _lay_out(checkpoint: CheckpointFiles, path: str, folder: Path, delimiter: str) -> None:
    """Put together the database of a snapshot in a folder."""
    content = checkpoint.files.content(path)
    if content is None:
        raise MissingChangelogError(f"Spark has purged the snapshot {path}.")
    with snapshot_archive(BytesIO(verified(checkpoint.files.content, path, content)), path) as (archive, metadata):
        for name in archive.namelist():
            if _DATABASE.fullmatch(name):
                (folder / name).write_bytes(_entry(archive, name))
        files = data_files(metadata)
        if not all(_DATA.fullmatch(file.local_name) for file in files):
            raise ValueError("it lists a file that is none of RocksDB's")
    for file in files:
        source = inside(path.rpartition("/")[0], f"{file.folder}/{file.name}")
        _place(checkpoint, source, folder / file.local_name, file.size)
    (folder / "OPTIONS-000001").write_text(_OPTIONS.format(delimiter=delimiter), encoding="ascii")


def _place(checkpoint: CheckpointFiles, source: str, target: Path, size: int) -> None:
    """Link a file of the checkpoint, or copy it from another file system."""
    if (local := local_path(source)) is None:
        content = checkpoint.files.content(source)
        target.write_bytes(content or b"")
    else:
        target.symlink_to(local)
    try:
        found = target.stat().st_size
    except OSError as error:
        raise MissingChangelogError(f"{source} does not exist: Spark has purged it.") from error
    if found != size:
        raise DamagedChangelogError(f"{source} has {found} bytes; its snapshot says {size}.")


@contextmanager
def _opened(folder: str, path: str) -> Iterator[Rdict]:
    try:
        from rocksdict import AccessType, Rdict
    except ImportError as error:
        raise UnsupportedChangelogError(
            f"The snapshot {path} is a RocksDB database, and the package rocksdict, which reads it, is not installed"
            f" ({install_command('sidecar')})."
        ) from error
    with _damage(path):
        database = Rdict(folder, access_type=AccessType.read_only())
    try:
        yield database
    finally:
        database.close()


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Raise what RocksDB reports as damage of a snapshot."""
    try:
        yield
    except Exception as error:  # rocksdict raises nothing more specific
        raise DamagedChangelogError(f"The snapshot {path} cannot be read: {error}.") from error


def _pieces(database: Rdict, family: bytes, path: str) -> Iterator[Records]:
    """Return the rows from the first key of a family on, up to a key of another family."""
    rows = database.items(from_key=family or None)
    piece: list[bytes] = []
    size, last = 0, b""
    while not last or last.startswith(family):
        with _damage(path):
            step = [*chain.from_iterable(islice(rows, _STEP))]
        if not step:
            _check_end(database, last or family, path, after=bool(last))
            break
        piece += step
        last, size = step[-2], size + sum(map(len, step))
        if size > _PIECE:
            yield _records(piece, path)
            piece, size = [], 0
    yield _records(piece, path)


def _check_end(database: Rdict, key: bytes, path: str, *, after: bool) -> None:
    """Raise unless the rows end at a key, or right after it: at damage, rows end without an error."""
    with _damage(path):
        rest = database.iter()
        rest.seek(key)
        if after and rest.valid():
            rest.next()
        rest.status()
    if rest.valid():
        raise DamagedChangelogError(f"The snapshot {path} cannot be read to its end.")


def _records(piece: list[bytes], path: str) -> Records:
    """Return keys and values, in turn, as the records of a changelog."""
    sizes = np.fromiter(map(len, piece), np.int64, len(piece))
    ends = np.cumsum(sizes)
    starts = ends - sizes
    buffer = np.frombuffer(b"".join([*piece, bytes(PADDING)]), np.uint8)
    kinds = np.full(len(piece) // 2, PUT, np.uint8)
    return Records(
        kinds, starts[::2], sizes[::2], starts[1::2], sizes[1::2], buffer, version=1, lineage=None, path=path
    )


def family_numbers(checkpoint: CheckpointFiles, operator: int, epoch: int) -> dict[str, int]:
    """Return the number of each column family of an operator's only store, if all partitions agree on it.

    Raises:
        UnsupportedChangelogError: a partition has no snapshot up to the epoch.
        DamagedChangelogError: a snapshot is not one that Spark wrote.
    """
    partitions = checkpoint.partitions(epoch)
    if not partitions:
        raise UnsupportedChangelogError(f"The offset log does not tell the number of partitions at epoch {epoch}.")
    paths = [path for at in range(partitions) for path in _snapshots(checkpoint, operator, at, epoch)]
    return dict(set.intersection(*({*_read(checkpoint, path).items()} for path in paths)))


def _snapshots(checkpoint: CheckpointFiles, operator: int, partition: int, epoch: int) -> list[str]:
    """Return the newest snapshot of a partition up to an epoch; several if failed attempts cannot be told from it."""

    def ids(version: int) -> list[str]:
        stores = checkpoint.unique_ids(version - 1).get(str(operator), [])
        return stores[partition] if partition < len(stores) else []

    folder = f"{checkpoint.path}/state/{operator}/{partition}"
    found = StoreFiles(checkpoint.files.names(folder)).newest_snapshots(epoch + 1, ids)
    if not found:
        raise UnsupportedChangelogError(
            f"{folder} has no snapshot up to epoch {epoch}, so its keys cannot be told apart."
        )
    return [f"{folder}/{file.name}" for file in found]


def _read(checkpoint: CheckpointFiles, path: str) -> dict[str, int]:
    try:
        with checkpoint.files.open(path) as file, snapshot_archive(file, path) as (_, metadata):
            numbers = {str(name): int(number) for name, number in metadata["columnFamilyMapping"].items()}
    except FileNotFoundError as error:
        raise UnsupportedChangelogError(f"Spark has purged the snapshot {path}.") from error
    if len({*numbers.values()}) < len(numbers) or not all(0 <= number < 1 << 15 for number in numbers.values()):
        raise DamagedChangelogError(f"The snapshot {path} is damaged: two column families have one number.")
    return numbers
