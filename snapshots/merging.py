"""How the files of changelogs are merged.

A capture adds a file for each epoch, and now and then a keyframe. Merging joins the files of consecutive epochs and
sorts their rows by key. So a reader of one key reads a row group of each file, and a reader of one epoch the files
between its keyframe and itself. Files grow to a bounded size, so that a row is rewritten a bounded number of times and
an epoch is never read from a file that is much larger than its state. Keyframes stay as they are, unless they are tiny.
"""

from __future__ import annotations

import pyarrow as pa

from streamstate.snapshots.change_log import KEYFRAME, key_columns
from streamstate.snapshots.delta import Place
from streamstate.snapshots.delta.maintenance import Merging, compact
from streamstate.snapshots.delta.reading import Committed
from streamstate.snapshots.key_scan import leaves
from streamstate.snapshots.operators import EPOCH

# A larger keyframe stays a file of its own, which readers of other epochs leave alone.
_SMALL_KEYFRAME = 10_000


def merge_log(place: Place) -> int:
    """Merge the newest small files of a changelog, sorted by key, if there are many; returns how many there were.

    Raises:
        StoreError: the merged file could not be committed; the changelog is unchanged.
    """
    return compact(place, EPOCH, Merging(_by_key, _stays_apart))


def _by_key(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The columns to sort by: those of the key that have an order, then the epoch."""
    found = leaves(rows.select(key_columns(schema)))
    return pa.table([*found.values(), rows[EPOCH]], names=[*(f"k{at}" for at in range(len(found))), EPOCH])


def _stays_apart(file: Committed) -> bool:
    return file.only_change == KEYFRAME and (file.rows or 0) > _SMALL_KEYFRAME
