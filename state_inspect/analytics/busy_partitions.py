"""How the writes of some epochs are spread over partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.snapshots.operators import PARTITION

if TYPE_CHECKING:
    from streamstate.state_inspect.temporal_index.index import Index
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

__all__ = ["busy_partitions"]


def busy_partitions(table: IntervalTable, index: Index, since: int) -> dict[int, int]:
    """Rows written after an epoch, by partition; removals do not count, nor does what a gap's keyframe says again.

    Args:
        table: the interval table of a state table.
        index: the index that it is in.
        since: count what came after this epoch.

    Example:
        >>> busy_partitions(history.interval_table("op0", 81), history.index, 80)  # doctest: +SKIP
        {0: 512, 1: 498}
    """
    anew = ", ".join(map(str, sorted(table.starts))) or "NULL"
    found = index.query(
        f"SELECT {PARTITION} AS partition, count(*)::BIGINT AS writes FROM {table.relation}"
        f" WHERE _valid_from > {since} AND _valid_from <= {table.high} AND (_valid_from IN ({anew})) IS NOT TRUE"
        f" AND {PARTITION} IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    return dict(zip(found["partition"].to_pylist(), found["writes"].to_pylist(), strict=True))
