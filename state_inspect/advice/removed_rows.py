"""The number of rows that were removed from a state, read from the files of its changelog."""

from __future__ import annotations

import pyarrow.compute as pc

from streamstate.snapshots.checkpoint.operators import CHANGE, EPOCH
from streamstate.snapshots.store.changelog import DELETE
from streamstate.state_inspect.captured_query import CapturedQuery


def removed_rows(query: CapturedQuery, table: str, first: int, last: int) -> int:
    """Return how many rows of a state table were removed from one epoch to another, both included."""
    version = query.change_log(table).version
    reader = version.scan(EPOCH, first, last, columns=[EPOCH], where=pc.field(CHANGE) == DELETE)
    return sum(batch.num_rows for batch in reader)
