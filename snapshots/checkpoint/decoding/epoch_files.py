"""Which files hold an epoch's changes of a state table.

Epoch N is version N+1 of each store. In checkpoint format 2 the commit log names the files that the committed tasks
wrote: ``<N+1>_<id>.changelog``. In format 1 the names are ``<N+1>.changelog`` (RocksDB) and ``<N+1>.delta`` (HDFS),
whoever wrote them. Only files of committed epochs are read, so a task of an attempt that was never committed is not
seen. In format 1 a task that outlives its attempt can still replace a file of a committed epoch; Spark then reads that
file too, and only format 2 rules it out. Files are replaced at once, so a reader never sees half of one.

Spark writes a file for each partition at each epoch, even without a change. RocksDB writes only snapshots if changelog
checkpointing is off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.failures import (
    MissingChangelogError,
    OnlySnapshotError,
    UnsupportedChangelogError,
)
from streamstate.snapshots.checkpoint.decoding.schema_files import has_columns
from streamstate.snapshots.checkpoint.decoding.table_format import TableFormat
from streamstate.snapshots.checkpoint.filesystem import inside
from streamstate.snapshots.store.names import is_number

CHANGE_FILES = {"RocksDB": "changelog", "HDFS": "delta"}
"""The suffix of the files with changes, by provider."""
_CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


class StorePlace(Protocol):
    """The place of a state store; a table's format has it."""

    @property
    def operator(self) -> int:
        """Spark's id of the operator."""

    @property
    def store(self) -> str:
        """The store's folder in a partition's; empty for the operator's only store."""

    @property
    def store_index(self) -> int:
        """The store's place in the commit log's ``stateUniqueIds[operator][partition]``."""

    @property
    def provider(self) -> str:
        """``RocksDB`` or ``HDFS``."""


@dataclass(frozen=True)
class EpochFile:
    """A file with the changes of one epoch in one partition."""

    epoch: int
    partition: int
    path: str


def epoch_files(checkpoint: CheckpointFiles, table: TableFormat, first: int, last: int) -> list[EpochFile]:
    """The files of epochs ``first`` to ``last``, partition by partition, and by epoch within a partition.

    Raises:
        MissingChangelogError: an epoch is not committed, or Spark has purged it.
        UnsupportedChangelogError: the provider writes no changelog, or an epoch repartitioned the state.
    """
    if table.provider not in CHANGE_FILES:
        raise UnsupportedChangelogError(f"The state store provider {table.provider} writes no known changelog.")
    files = [file for epoch in range(first, last + 1) for file in _files_of(checkpoint, table, epoch)]
    return sorted(files, key=lambda file: (file.partition, file.epoch))


def _files_of(checkpoint: CheckpointFiles, table: TableFormat, epoch: int) -> Iterator[EpochFile]:
    suffix = CHANGE_FILES[table.provider]
    if checkpoint.repartitioned(epoch):
        raise UnsupportedChangelogError(f"Epoch {epoch} repartitioned the state, so its files are not its changes.")
    for partition, name in enumerate(committed_names(checkpoint, table, epoch)):
        yield EpochFile(epoch, partition, in_store(checkpoint, table, partition, f"{name}.{suffix}"))


def in_store(checkpoint: CheckpointFiles, place: StorePlace, partition: int, name: str) -> str:
    """The path of a file of a store in a partition."""
    store = f"{place.store}/" if place.store else ""
    return inside(checkpoint.path, f"state/{place.operator}/{partition}/{store}{name}")


def committed_names(checkpoint: CheckpointFiles, table: TableFormat, epoch: int) -> list[str]:
    """The names, without their suffix, of the files of a committed epoch: one for each partition.

    Raises:
        MissingChangelogError: the epoch is not committed, or Spark has purged it.
        UnsupportedChangelogError: the commit log names no files of the table.
    """
    if names := names_by_id(checkpoint, table, epoch):
        return names
    if checkpoint.committed_at(epoch) is None:
        raise MissingChangelogError(f"Epoch {epoch} of {checkpoint.path} is not committed, or Spark has purged it.")
    return [f"{epoch + 1}"] * _partitions(checkpoint, table, epoch)


def names_by_id(checkpoint: CheckpointFiles, place: StorePlace, epoch: int) -> list[str]:
    """In format 2, the names of a committed epoch's files, one for each partition; empty in format 1.

    Raises:
        UnsupportedChangelogError: the commit log names no files of the store.
    """
    ids = checkpoint.unique_ids(epoch)
    try:
        return [f"{epoch + 1}_{stores[place.store_index]}" for stores in ids[str(place.operator)]] if ids else []
    except (LookupError, TypeError) as error:
        raise UnsupportedChangelogError(
            f"The commit log of epoch {epoch} names no files of operator {place.operator}, store {place.store!r}."
        ) from error


def _partitions(checkpoint: CheckpointFiles, table: TableFormat, epoch: int) -> int:
    """The number of partitions that an operator uses: all that the query has, or one if its rows have no key."""
    folders = {name for name in checkpoint.files.names(f"{checkpoint.path}/state/{table.operator}") if is_number(name)}
    planned = checkpoint.partitions(epoch)
    if folders == {"0"} and not has_columns(table.key):
        return 1
    expected = len(folders) if planned is None else planned
    if not folders >= {str(partition) for partition in range(expected or 1)}:
        raise MissingChangelogError(
            f"state/{table.operator} of {checkpoint.path} has {len(folders)} folders for {expected} partitions."
        )
    return expected


def content(checkpoint: CheckpointFiles, file: EpochFile) -> bytes:
    """A file's bytes.

    Raises:
        MissingChangelogError: the file is gone or was never written.
    """
    found = checkpoint.files.content(file.path)
    if found is None:
        raise _missing(checkpoint, file)
    return found


def _missing(checkpoint: CheckpointFiles, file: EpochFile) -> MissingChangelogError:
    """The error for a missing file; looking for its siblings tells why."""
    folder, _, name = file.path.rpartition("/")
    version = name.rpartition(".")[0]
    if {f"{version}.zip", f"{version}.snapshot"} & {*checkpoint.files.names(folder)}:
        return OnlySnapshotError(
            f"{file.path} does not exist: Spark wrote only a snapshot of the state at epoch {file.epoch}. Restart the"
            f" query with {_CHANGELOGS}=true (Spark 3.5 or later)."
        )
    return MissingChangelogError(f"{file.path} does not exist: Spark has purged it, or never wrote it.")
