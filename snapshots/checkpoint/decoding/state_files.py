"""Which files hold the whole state of a store at an epoch: its newest snapshot, and the changelogs after it.

Epoch N is version N+1. A snapshot is ``<version>.zip`` (RocksDB) or ``<version>.snapshot`` (HDFS). Spark writes one now
and then, or at every version if changelog checkpointing is off. Without one, changelogs lead back to version 0, which
is empty. In checkpoint format 2 a version can have files of several attempts, each with a unique id. The commit log
names the one of the epoch, and its changelog has a lineage: the ids of the versions before, back to a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cache

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.epoch_files import CHANGE_FILES, StorePlace, in_store, names_by_id
from streamstate.snapshots.checkpoint.decoding.failures import (
    DamagedChangelogError,
    MissingChangelogError,
    UnsupportedChangelogError,
)
from streamstate.snapshots.checkpoint.decoding.records import Records

_SNAPSHOTS = {"RocksDB": "zip", "HDFS": "snapshot"}


@dataclass(frozen=True)
class StateFiles:
    """What makes up the state of one partition of a store at an epoch."""

    snapshot: str | None
    """The path of the newest snapshot; None if the state was empty in the beginning."""
    changelogs: tuple[Records, ...]
    """The records of all later versions, oldest first."""


class StateHistory:
    """Finds the files of a store, in all partitions and at any epoch.

    Args:
        checkpoint: the query's checkpoint.
        place: the store, or a table of it.
    """

    def __init__(self, checkpoint: CheckpointFiles, place: StorePlace) -> None:
        if place.provider not in _SNAPSHOTS:
            raise UnsupportedChangelogError(f"The state store provider {place.provider} writes no known snapshots.")
        self._checkpoint = checkpoint
        self._place = place
        self._committed = cache(self._names)
        self._repartitioned = cache(checkpoint.repartitioned)
        self._present = cache(lambda folder: frozenset(checkpoint.files.names(folder)))

    def files(
        self, epoch: int, partition: int, read: Callable[[str], Records], skipped: Container[str] = ()
    ) -> StateFiles:
        """The files that make up a partition's state at a committed epoch.

        Args:
            epoch: the epoch.
            partition: the partition.
            read: reads a changelog by its path.
            skipped: the paths of snapshots that are passed over.

        Raises:
            MissingChangelogError: a file is missing, because Spark has purged it.
            UnsupportedChangelogError: the state was repartitioned and has no snapshot since.
        """
        folder = in_store(self._checkpoint, self._place, partition, "x").rpartition("/")[0]
        present = self._present(folder)
        later: list[Records] = []
        lineage: dict[int, str] = {}
        for version in range(epoch + 1, 0, -1):
            name = self._name(version, partition, lineage)
            snapshot = f"{name}.{_SNAPSHOTS[self._place.provider]}"
            if snapshot in present and f"{folder}/{snapshot}" not in skipped:
                path = in_store(self._checkpoint, self._place, partition, snapshot)
                return StateFiles(path, (*reversed(later),))
            if self._repartitioned(version - 1):
                raise UnsupportedChangelogError(f"Epoch {version - 1} repartitioned the state, and has no snapshot.")
            changelog = f"{name}.{CHANGE_FILES[self._place.provider]}"
            if changelog not in present:
                # Without changelog checkpointing, RocksDB writes only snapshots.
                only = any(file.endswith(".zip") for file in present) and not any(map(_is_changelog, present))
                raise MissingChangelogError(
                    f"{folder} has neither {snapshot} nor {changelog}: Spark has purged the state of epoch {epoch}.",
                    f"{folder}/{snapshot if only else changelog}",
                )
            records = read(in_store(self._checkpoint, self._place, partition, changelog))
            lineage |= _lineage(records)
            later.append(records)
        return StateFiles(None, (*reversed(later),))

    def lost_snapshot(self, partition: int, files: StateFiles) -> str | None:
        """In format 2, the path of a snapshot that Spark needs although earlier files have the same state; None: none.

        Spark looks for a snapshot only among the versions that the newest changelog lists, or starts from version 0 if
        that lists them all.
        """
        lineage = _lineage(files.changelogs[-1]) if files.changelogs else {}
        first = min(lineage, default=1)
        found = max(lineage, default=0) + 1 - len(files.changelogs)
        return self.names(partition, first)[1] if found < first and first > 1 else None

    def names(self, partition: int, version: int) -> tuple[str, str]:
        """The paths of the file with a version's changes, and of its snapshot, whether they exist or not."""
        name, provider = self._name(version, partition, {}), self._place.provider
        changes, snapshot = (
            in_store(self._checkpoint, self._place, partition, f"{name}.{kind[provider]}")
            for kind in (CHANGE_FILES, _SNAPSHOTS)
        )
        return changes, snapshot

    def _name(self, version: int, partition: int, lineage: dict[int, str]) -> str:
        """The name of a version's files, without their suffix."""
        if version in lineage:
            return f"{version}_{lineage[version]}"
        names = self._committed(version)
        return names[partition] if partition < len(names) else f"{version}"

    def _names(self, version: int) -> list[str]:
        """The names of a version's files in each partition, as far as the commit log has ids of them."""
        return names_by_id(self._checkpoint, self._place, version - 1)


def _is_changelog(name: str) -> bool:
    return name.endswith(".changelog")


def _lineage(records: Records) -> dict[int, str]:
    """The unique ids of the versions before a changelog's."""
    try:
        return {int(item["version"]): str(item["checkpointUniqueId"]) for item in records.lineage or ()}
    except (LookupError, TypeError, ValueError) as error:
        raise DamagedChangelogError(f"{records.path} has a lineage that Spark did not write: {error!r}.") from error
