"""A state table's change log as it stands, with the manifest that says how to read it."""

from __future__ import annotations

from dataclasses import dataclass

from streamstate.snapshots.change_log import beginnings, check_generation, key_columns, value_columns
from streamstate.snapshots.delta.commits import required
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.errors import OvertakenError, UnknownEpochError
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.manifest import Entry, Manifest
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION


@dataclass(frozen=True)
class ChangeLog:
    """One version of a change log; what is captured later is not in it."""

    table: str
    version: TableVersion
    entries: tuple[Entry, ...]
    """The manifest, ascending by epoch."""

    @property
    def keys(self) -> list[str]:
        """Key columns, in the order on disk."""
        return key_columns(self.version.schema)

    @property
    def columns(self) -> list[str]:
        """Key columns, then value columns."""
        return [*self.keys, *value_columns(self.version.schema)]

    def columns_at(self, epoch: int) -> list[str]:
        """The columns that there were at an epoch."""
        begins = beginnings(self.version.schema)
        return [name for name in self.columns if begins.get(name, epoch) <= epoch]

    @property
    def all_columns(self) -> list[str]:
        """All columns of the log, those of its own first."""
        return [EPOCH, CHANGE, PARTITION, *self.columns]

    def keyframe(self, epoch: int) -> int | None:
        """The keyframe that reading an epoch starts from; None: the table's beginning.

        Raises:
            UnknownEpochError: where retention has dropped the epoch since it was looked up.
        """
        found = next((one for one in self.entries if one.epoch == epoch and self.table in one.tables), None)
        if found is None:
            raise UnknownEpochError(f"Epoch {epoch} was dropped by retention while it was being read.\nDo it again.")
        return found.tables[self.table].keyframe


def change_log(layout: Layout, manifest: Manifest, table: str) -> ChangeLog:
    """The change log of a state table.

    Args:
        layout: the store.
        manifest: of the query; read again where retention has overtaken it.
        table: the state table.

    Raises:
        DamagedStoreError, StoreError: where it cannot be read.
    """
    place = layout.change_log(manifest.query, table)
    while True:
        generation = manifest.generation
        version = TableVersion(place, required(place))
        try:
            check_generation(version, generation)
            return ChangeLog(table, version, tuple(manifest.entries))
        except OvertakenError:
            manifest.refresh()
            if manifest.generation == generation:
                raise
