"""Epochs that retention dropped while somebody held on to them: their files stay for the grace period."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streamstate.snapshots.delta import Place
from streamstate.snapshots.delta.commits import required
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.errors import DamagedStoreError, EpochDroppedError
from streamstate.snapshots.layout import RETENTION
from streamstate.snapshots.manifest import Entry


@contextlib.contextmanager
def held_version(place: Place, entry: Entry, query: str) -> Iterator[TableVersion]:
    """A log as it was before the runs of retention that the entry knows nothing of.

    Raises:
        EpochDroppedError: where its files are gone, also from within the block.
    """
    try:
        yield _version(place, entry.generation)
    except (DamagedStoreError, DeltaError) as error:
        raise EpochDroppedError(
            f"Epoch {entry.epoch} of {query} was dropped by retention, and its files were deleted after their grace"
            " period.\nA snapshot that is read from at once, or epochs that retention keeps, do not go like this."
        ) from error


def _version(place: Place, generation: int) -> TableVersion:
    table = required(place)
    later = [one["version"] for one in table.history() if int(one.get(RETENTION, 0)) > generation]
    if not later:
        return TableVersion(place, table)
    return TableVersion(place, DeltaTable(place.uri, version=min(later) - 1, storage_options=place.storage_options))
