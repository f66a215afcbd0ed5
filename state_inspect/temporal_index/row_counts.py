"""Row counts of epochs, from the temporal index: the manifest often lacks them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from streamstate.state_inspect.temporal_index.index import Index
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at

# For more epochs than these, all are counted at once.
_FEW = 4


def rows_at(index: Index, table: IntervalTable, epoch: int) -> int:
    """Return the number of rows at an epoch that the index has."""
    return row_counts(index, table, [epoch])[epoch]


def row_counts(index: Index, table: IntervalTable, epochs: Iterable[int]) -> dict[int, int]:
    """Return the number of rows at each of some epochs that the index has; each epoch is counted once."""
    wanted = list(epochs)
    missing = [epoch for epoch in wanted if epoch not in table.counts]
    if len(missing) > _FEW:
        table.counts.update(_all_at_once(index, table, missing))
    else:
        for epoch in missing:
            found = index.query(f"SELECT count(*) AS n FROM {table.relation} WHERE {held_at(epoch)}")
            table.counts[epoch] = found["n"][0].as_py()
    return {epoch: table.counts[epoch] for epoch in wanted}


def _all_at_once(index: Index, table: IntervalTable, epochs: Iterable[int]) -> dict[int, int]:
    """Return a running sum of the versions that begin and end at each epoch; a replaced one does both."""
    found = index.query(
        "SELECT epoch, (sum(sum(n)) OVER (ORDER BY epoch))::BIGINT AS n FROM"
        f" (SELECT _valid_from AS epoch, count(*) AS n FROM {table.relation} GROUP BY ALL"
        f" UNION ALL SELECT _valid_to, -count(*) FROM {table.relation} GROUP BY ALL) GROUP BY epoch ORDER BY epoch"
    )
    changed, counts = found["epoch"].to_pylist(), found["n"].to_pylist()
    return {epoch: counts[at - 1] if (at := bisect_right(changed, epoch)) else 0 for epoch in epochs}
