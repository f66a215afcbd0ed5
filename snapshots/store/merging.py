"""Merging of a change log's files.

A capture adds a file for each epoch, and now and then a keyframe. Merging joins the files of consecutive epochs and
sorts their rows by key. So a reader of one key reads a row group of each file, and a reader of one epoch the files
between its keyframe and itself. Files grow to a bounded size, so that a row is rewritten a bounded number of times and
an epoch is never read from a file that is much larger than its state. Keyframes stay as they are, unless they are tiny.
"""

from __future__ import annotations

import itertools
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from streamstate.snapshots.checkpoint.state_tables import EPOCH
from streamstate.snapshots.store.changelog import KEYFRAME, key_columns
from streamstate.snapshots.store.delta import Place, open_table
from streamstate.snapshots.store.delta.data_files import verified
from streamstate.snapshots.store.delta.maintenance import Merging, merge_small_files
from streamstate.snapshots.store.delta.reading import Committed, TableVersion
from streamstate.snapshots.store.key_scan import leaves

# A larger keyframe stays a file of its own, which readers of other epochs leave alone.
_SMALL_KEYFRAME = 10_000


def merge_log(place: Place) -> int:
    """Merge the newest small files of a change log, sorted by key, if there are many; returns how many there were.

    Raises:
        StoreError: the merged file could not be committed; the change log is unchanged.
    """
    return merge_small_files(place, EPOCH, _MERGING)


def sort_log(place: Place) -> int:
    """Sort the large files of a change log that are not sorted by key; returns how many there were.

    Retention writes files without sorting them.

    Raises:
        DamagedStoreError: a file is missing or its bytes have changed.
        StoreError: a file could not be committed; the others are sorted.
    """
    table = open_table(place)
    if table is None:
        return 0
    version = TableVersion(place, table)
    mixed = [file for file in version.files(EPOCH) if not _stays_apart(file) and _is_mixed(version, file)]
    return sum(merge_small_files(place, EPOCH, _MERGING, partial(_if_there, file.path)) for file in mixed)


def _if_there(path: str, version: TableVersion, by: str, _merging: Merging) -> list[Committed]:
    return [file for file in version.files(by) if file.path == path]


def _is_mixed(version: TableVersion, file: Committed) -> bool:
    """Return whether a file's row groups overlap in the first key column that has an order."""
    keys = version.schema.empty_table().select(key_columns(version.schema))
    path = next(iter(leaves(keys)), None)
    metadata = pq.read_metadata(verified(version.place, file.path, file.size))
    places = [at for at in range(metadata.num_columns) if metadata.schema.column(at).path == path]
    groups = [
        metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups) for at in places
    ]
    known = [group for group in groups if group is not None and group.has_min_max]
    return any(before.max > after.min for before, after in itertools.pairwise(known))


def _by_key(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Return the columns to sort by: those of the key that have an order, then the epoch."""
    found = leaves(rows.select(key_columns(schema)))
    return pa.table([*found.values(), rows[EPOCH]], names=[*(f"k{at}" for at in range(len(found))), EPOCH])


def _stays_apart(file: Committed) -> bool:
    return file.only_change == KEYFRAME and (file.rows or 0) > _SMALL_KEYFRAME


_MERGING = Merging(_by_key, _stays_apart)
