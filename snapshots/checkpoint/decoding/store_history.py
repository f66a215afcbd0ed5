"""The files of a state store by epoch and partition: those with an epoch's changes, and those that make up its state.

Epoch N is version N + 1 of each store. In checkpoint format 2 the commit log names the files that the committed tasks
wrote: ``<N+1>_<id>.changelog``. A changelog there has a lineage: the ids of the versions before, back to a snapshot. In
format 1 the names are ``<N+1>.changelog`` (RocksDB) and ``<N+1>.delta`` (HDFS) for every attempt.

Only files of committed epochs are read, so a task of an attempt that was never committed is not seen. In format 1 a
task that outlives its attempt can still replace a file of a committed epoch. Spark then reads that file too; only
format 2 rules it out. Files are replaced at once, so a reader never sees half of one.

Spark writes a file for each partition at each epoch, even without a change. RocksDB writes only snapshots if changelog
checkpointing is off.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.changelog_records import Records
from streamstate.snapshots.checkpoint.decoding.failures import (
    DamagedChangelogError,
    MissingChangelogError,
    OnlySnapshotError,
    UnsupportedChangelogError,
)
from streamstate.snapshots.checkpoint.decoding.schema_files import has_columns
from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.filesystem import inside
from streamstate.snapshots.checkpoint.state_files import CHANGES, SNAPSHOTS, StateFile, StoreFiles

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


@dataclass(frozen=True)
class StateFiles:
    """The files that make up the state of one partition of a store at an epoch."""

    snapshot: str | None
    """The path of the newest snapshot; None if the state was empty in the beginning."""
    changelogs: tuple[Records, ...]
    """The records of all later versions, oldest first."""


class StoreHistory:
    """The files of a store, in all partitions and at any epoch.

    Args:
        checkpoint: the query's checkpoint.
        place: the store, or a table of it.

    Raises:
        UnsupportedChangelogError: the files of the provider are not known.
    """

    def __init__(self, checkpoint: CheckpointFiles, place: StorePlace) -> None:
        if place.provider not in CHANGES:
            raise UnsupportedChangelogError(f"The files of the state store provider {place.provider} are not known.")
        self._checkpoint = checkpoint
        self._place = place
        self._by_id = cache(self._names_by_id)
        self._repartitioned = cache(checkpoint.repartitioned)
        self._listed = cache(lambda folder: StoreFiles(frozenset(checkpoint.files.names(folder))))

    def state(
        self, epoch: int, partition: int, read: Callable[[str], Records], skipped: Container[str] = ()
    ) -> StateFiles:
        """Return the files that make up a partition's state at a committed epoch.

        Args:
            epoch: the epoch.
            partition: the partition.
            read: reads a changelog by its path.
            skipped: the names of snapshots that are passed over.

        Raises:
            MissingChangelogError: a file is missing, because Spark has purged it.
            UnsupportedChangelogError: the state was repartitioned and has no snapshot since.
        """
        records: dict[str, Records] = {}

        def lineage(file: StateFile) -> dict[int, str]:
            self._check_continuous(file.version)
            records[file.name] = read(self._path(partition, file.name))
            return _lineage(records[file.name])

        files = self._listed(self._path(partition, "x").rpartition("/")[0])
        chain = files.chain(epoch + 1, lambda at: self._id_of(at, partition), lineage=lineage, skipped=skipped)
        if chain.missing is not None:
            self._check_continuous(chain.missing)
            raise self._missing_state(files, epoch, chain.missing, partition, records)
        changelogs = tuple(records[file.name] for file in chain.changes)
        return StateFiles(None if chain.snapshot is None else self._path(partition, chain.snapshot.name), changelogs)

    def lost_snapshot(self, partition: int, files: StateFiles) -> str | None:
        """Return the path of a snapshot that Spark needs although earlier files have the same state; None: none.

        In format 2, Spark looks for a snapshot only among the versions that the newest changelog lists, or starts from
        version 0 if that lists them all.
        """
        lineage = _lineage(files.changelogs[-1]) if files.changelogs else {}
        first = min(lineage, default=1)
        found = max(lineage, default=0) + 1 - len(files.changelogs)
        return self.paths(partition, first)[1] if found < first and first > 1 else None

    def paths(self, partition: int, version: int) -> tuple[str, str]:
        """Return the paths of a version's changes and of its snapshot, whether they exist or not."""
        name, provider = self._name(version, partition), self._place.provider
        changes, snapshot = (self._path(partition, f"{name}.{suffix[provider]}") for suffix in (CHANGES, SNAPSHOTS))
        return changes, snapshot

    def committed_names(self, table: TableFormat, epoch: int) -> list[str]:
        """Return the names, without their suffix, of the files of a committed epoch: one for each partition.

        Raises:
            MissingChangelogError: the epoch is not committed, or Spark has purged it.
            UnsupportedChangelogError: the commit log names no files of the table.
        """
        if names := self._by_id(epoch + 1):
            return names
        path = self._checkpoint.path
        if self._checkpoint.committed_at(epoch) is None:
            raise MissingChangelogError(f"Epoch {epoch} of {path} is not committed, or Spark has purged it.")
        return [f"{epoch + 1}"] * _partitions(self._checkpoint, table, epoch)

    def changes(self, table: TableFormat, epoch: int) -> Iterator[EpochFile]:
        """Return the files with the changes of one epoch."""
        if self._repartitioned(epoch):
            raise UnsupportedChangelogError(f"Epoch {epoch} repartitioned the state, so its files are not its changes.")
        suffix = CHANGES[self._place.provider]
        for partition, name in enumerate(self.committed_names(table, epoch)):
            yield EpochFile(epoch, partition, self._path(partition, f"{name}.{suffix}"))

    def _path(self, partition: int, name: str) -> str:
        """Return the path of a file of the store."""
        store = f"{self._place.store}/" if self._place.store else ""
        return inside(self._checkpoint.path, f"state/{self._place.operator}/{partition}/{store}{name}")

    def _check_continuous(self, version: int) -> None:
        if self._repartitioned(version - 1):
            raise UnsupportedChangelogError(f"Epoch {version - 1} repartitioned the state, and has no snapshot.")

    def _missing_state(
        self, files: StoreFiles, epoch: int, version: int, partition: int, records: Mapping[str, Records]
    ) -> MissingChangelogError:
        """Return the error for a version that has neither changes nor a snapshot."""
        ids = {at: unique_id for found in records.values() for at, unique_id in _lineage(found).items()}
        name = f"{version}_{ids[version]}" if version in ids else self._name(version, partition)
        changelog, snapshot = (f"{name}.{suffix[self._place.provider]}" for suffix in (CHANGES, SNAPSHOTS))
        folder = self._path(partition, changelog).rpartition("/")[0]
        # Without changelog checkpointing, RocksDB writes only snapshots.
        kinds = {file.kind for file in files.files}
        only = "zip" in kinds and "changelog" not in kinds
        return MissingChangelogError(
            f"{folder} has neither {snapshot} nor {changelog}: Spark has purged the state of epoch {epoch}.",
            f"{folder}/{snapshot if only else changelog}",
        )

    def _name(self, version: int, partition: int) -> str:
        """Return the name of a version's files, without their suffix."""
        names = self._by_id(version)
        return names[partition] if partition < len(names) else f"{version}"

    def _id_of(self, version: int, partition: int) -> list[str]:
        """Return the unique id that the commit log has of a version's files, in a list; empty if it has none."""
        return [unique_id] if (unique_id := self._name(version, partition).partition("_")[2]) else []

    def _names_by_id(self, version: int) -> list[str]:
        """Return the names of a version's files in each partition, in format 2; empty in format 1.

        Raises:
            UnsupportedChangelogError: the commit log names no files of the store.
        """
        ids, place = self._checkpoint.unique_ids(version - 1), self._place
        try:
            return [f"{version}_{stores[place.store_index]}" for stores in ids[str(place.operator)]] if ids else []
        except (LookupError, TypeError) as error:
            raise UnsupportedChangelogError(
                f"The commit log of epoch {version - 1} names no files of operator {place.operator}, store"
                f" {place.store!r}."
            ) from error


def epoch_files(checkpoint: CheckpointFiles, table: TableFormat, first: int, last: int) -> list[EpochFile]:
    """Return the files of epochs ``first`` to ``last``, partition by partition, and by epoch within a partition.

    Raises:
        MissingChangelogError: an epoch is not committed, or Spark has purged it.
        UnsupportedChangelogError: the provider writes no changelog, or an epoch repartitioned the state.
    """
    history = StoreHistory(checkpoint, table)
    files = [file for epoch in range(first, last + 1) for file in history.changes(table, epoch)]
    return sorted(files, key=lambda file: (file.partition, file.epoch))


def paths_of_changes(checkpoint: CheckpointFiles, table: TableFormat, first: int, last: int) -> Iterator[str]:
    """Return the paths of the files of epochs ``first`` to ``last``, and of the checksum files that may be beside them.

    Raises:
        MissingChangelogError, UnsupportedChangelogError: as :func:`epoch_files`.
    """
    for file in epoch_files(checkpoint, table, first, last):
        folder, _, name = file.path.rpartition("/")
        yield from (file.path, f"{file.path}.crc")
        if checkpoint.format_version(file.epoch) == "1":  # since Spark 4.2, only format 2 has Spark's own
            yield f"{folder}/.{name}.crc"


def content(checkpoint: CheckpointFiles, file: EpochFile) -> bytes:
    """Return a file's bytes.

    Raises:
        MissingChangelogError: the file is gone or was never written.
    """
    found = checkpoint.files.content(file.path)
    if found is None:
        raise _missing_changes(checkpoint, file)
    return found


def _missing_changes(checkpoint: CheckpointFiles, file: EpochFile) -> MissingChangelogError:
    """Return the error for a missing file; its siblings show the cause."""
    folder, _, name = file.path.rpartition("/")
    version = name.rpartition(".")[0]
    if {f"{version}.{suffix}" for suffix in SNAPSHOTS.values()} & {*checkpoint.files.names(folder)}:
        return OnlySnapshotError(
            f"{file.path} does not exist: Spark wrote only a snapshot of the state at epoch {file.epoch}. Restart the"
            f" query with {_CHANGELOGS}=true (Spark 3.5 or later)."
        )
    return MissingChangelogError(f"{file.path} does not exist: Spark has purged it, or never wrote it.")


def _partitions(checkpoint: CheckpointFiles, table: TableFormat, epoch: int) -> int:
    """Return the number of partitions that an operator uses: all of the query's, or one if its rows have no key."""
    folders = checkpoint.partition_folders(table.operator)
    planned = checkpoint.partitions(epoch)
    if folders == {"0"} and not has_columns(table.key):
        return 1
    expected = len(folders) if planned is None else planned
    if not folders >= {str(partition) for partition in range(expected or 1)}:
        raise MissingChangelogError(
            f"state/{table.operator} of {checkpoint.path} has {len(folders)} folders for {expected} partitions."
        )
    return expected


def _lineage(records: Records) -> dict[int, str]:
    """Return the unique ids of the versions before a changelog's."""
    try:
        return {int(item["version"]): str(item["checkpointUniqueId"]) for item in records.lineage or ()}
    except (LookupError, TypeError, ValueError) as error:
        raise DamagedChangelogError(f"{records.path} has a lineage that Spark did not write: {error!r}.") from error
