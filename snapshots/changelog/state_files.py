"""Which files hold the whole state of a store at an epoch: its newest snapshot, and the changelogs after it.

Epoch N is version N+1. A snapshot is ``<version>.zip`` (RocksDB) or ``<version>.snapshot`` (HDFS). Spark writes one now
and then, or at every version if changelog checkpointing is off. Without one, changelogs lead back to version 0, which
is empty. In checkpoint format 2 a version can have files of several attempts, each with a unique id. The commit log
names the one of the epoch, and its changelog has a lineage: the ids of the versions before, back to a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from streamstate.snapshots.changelog.epoch_files import CHANGE_FILES, committed_names, in_store
from streamstate.snapshots.changelog.failures import (
    DamagedChangelogError,
    MissingChangelogError,
    UnsupportedChangelogError,
)
from streamstate.snapshots.changelog.records import Records
from streamstate.snapshots.changelog.table_format import TableFormat
from streamstate.snapshots.checkpoint import Checkpoint

_SNAPSHOTS = {"RocksDB": "zip", "HDFS": "snapshot"}


@dataclass(frozen=True)
class StateFiles:
    """What makes up the state of one partition of a store at an epoch."""

    snapshot: str | None
    """The path of the newest snapshot; None if the state was empty in the beginning."""
    changelogs: tuple[Records, ...]
    """The records of all later versions, oldest first."""


class StateHistory:
    """Finds the files of a table's store, in all partitions and at any epoch.

    Args:
        checkpoint: the query's checkpoint.
        table: a table of the store.
    """

    def __init__(self, checkpoint: Checkpoint, table: TableFormat) -> None:
        if table.provider not in _SNAPSHOTS:
            raise UnsupportedChangelogError(f"The state store provider {table.provider} writes no known snapshots.")
        self._checkpoint = checkpoint
        self._table = table
        self._committed = cache(self._names)
        self._repartitioned = cache(checkpoint.repartitioned)

    def partitions(self, epoch: int) -> int:
        """The number of partitions at an epoch.

        Raises:
            MissingChangelogError: the epoch is not committed, or Spark has purged it.
        """
        return len(committed_names(self._checkpoint, self._table, epoch))

    def files(self, epoch: int, partition: int, read: Callable[[str], Records]) -> StateFiles:
        """The files that make up a partition's state at a committed epoch; ``read`` reads a changelog by its path.

        Raises:
            MissingChangelogError: a file is missing, because Spark has purged it.
            UnsupportedChangelogError: the state was repartitioned and has no snapshot since.
        """
        folder = in_store(self._checkpoint, self._table, partition, "x").rpartition("/")[0]
        present = {*self._checkpoint.files.names(folder)}
        later: list[Records] = []
        lineage: dict[int, str] = {}
        for version in range(epoch + 1, 0, -1):
            name = self._name(version, partition, lineage)
            snapshot = f"{name}.{_SNAPSHOTS[self._table.provider]}"
            if snapshot in present:
                return StateFiles(in_store(self._checkpoint, self._table, partition, snapshot), (*reversed(later),))
            if self._repartitioned(version - 1):
                raise UnsupportedChangelogError(f"Epoch {version - 1} repartitioned the state, and has no snapshot.")
            changelog = f"{name}.{CHANGE_FILES[self._table.provider]}"
            if changelog not in present:
                raise MissingChangelogError(
                    f"{folder} has neither {snapshot} nor {changelog}: Spark has purged the state of epoch {epoch}."
                )
            records = read(in_store(self._checkpoint, self._table, partition, changelog))
            lineage |= _lineage(records)
            later.append(records)
        return StateFiles(None, (*reversed(later),))

    def _name(self, version: int, partition: int, lineage: dict[int, str]) -> str:
        """The name of a version's files, without their suffix."""
        if version in lineage:
            return f"{version}_{lineage[version]}"
        names = self._committed(version)
        return names[partition] if partition < len(names) else f"{version}"

    def _names(self, version: int) -> list[str]:
        """The names of a version's files in each partition, as far as the commit log has ids of them."""
        if not self._checkpoint.unique_ids(version - 1):
            return []
        return committed_names(self._checkpoint, self._table, version - 1)


def _lineage(records: Records) -> dict[int, str]:
    """The unique ids of the versions before a changelog's."""
    try:
        return {int(item["version"]): str(item["checkpointUniqueId"]) for item in records.lineage or ()}
    except (LookupError, TypeError, ValueError) as error:
        raise DamagedChangelogError(f"{records.path} has a lineage that Spark did not write: {error!r}.") from error
