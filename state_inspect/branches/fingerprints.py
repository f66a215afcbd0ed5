"""A number for a whole state: the same wherever the same rows are, whoever computed it.

It is a multiset hash (Clarke et al., "Incremental Multiset Hash Functions and Their Application to Memory Integrity
Checking", 2003): the sum of the rows' hashes modulo 2¹²⁸, which depends neither on the order of the rows nor on how
they lie in partitions. Where a row begins or ends, its hash is added or taken away, so all epochs of a state table are
told by one look at its versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.state_inspect.branches.encoding import row_hash

if TYPE_CHECKING:
    import pyarrow as pa

    from streamstate.state_inspect.recorded import Recorded
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

__all__ = ["Fingerprint", "fingerprint_frame", "fingerprints_of", "sums_by_epoch", "told_at", "versions_between"]

_MODULUS = 2**128
_LOW = 2**64 - 1


@dataclass(frozen=True)
class Fingerprint:
    """What a state table held at an epoch, in two numbers."""

    rows: int
    digest: int

    def __str__(self) -> str:
        """The digest as 32 hexadecimal digits."""
        return f"{self.digest:032x}"


def fingerprints_of(history: Recorded, table: str, epochs: Sequence[int]) -> dict[int, Fingerprint]:
    """A state table's fingerprints at epochs of one query.

    Args:
        history: the query.
        table: its state table.
        epochs: captured epochs of its own, ascending.
    """
    intervals = history.interval_table(table, epochs[0])
    types = {name: intervals.schema.field(name).type for name in intervals.columns}
    versions = versions_between(intervals, epochs[0], epochs[-1], types)
    return told_at(epochs, history.index.query(sums_by_epoch(versions)).to_pylist())


def versions_between(
    table: IntervalTable, first: int, last: int, types: Mapping[str, pa.DataType], columns: Iterable[str] = ()
) -> str:
    """SQL for the versions that held at some epoch from one to another.

    Columns: ``_hash128`` of the row, ``_begins`` and ``_ends``, the epochs from and to which it held, cut to the two.

    Args:
        table: the interval table.
        first: the first epoch that counts.
        last: the last.
        types: the columns whose values count, with their types.
        columns: further columns, as SQL.
    """
    return (
        f"SELECT {''.join(f'{one}, ' for one in columns)}{row_hash(types)} AS _hash128,"
        f" greatest(_valid_from, {first}) AS _begins, least(_valid_to, {last + 1}) AS _ends"
        f" FROM {table.relation} WHERE _valid_from <= {last} AND _valid_to > {first}"
    )


def sums_by_epoch(versions: str) -> str:
    """SQL for what begins less what ends at each epoch: ``epoch``, ``rows``, and the two halves of the hashes' sum.

    Args:
        versions: SQL that gives ``_hash128``, ``_begins`` and ``_ends``.
    """
    # Summed for each pair of beginning and end first, so that every row is hashed once.
    return (
        "WITH spans AS MATERIALIZED (SELECT _begins, _ends, count(*)::HUGEINT AS n,"
        f" sum((_hash128 >> 64)::UBIGINT) AS high, sum((_hash128 & {_LOW}::UHUGEINT)::UBIGINT) AS low"
        f" FROM ({versions}) GROUP BY ALL)"
        " SELECT epoch, sum(n)::BIGINT AS rows, sum(high)::VARCHAR AS high, sum(low)::VARCHAR AS low FROM"
        " (SELECT _begins AS epoch, n, high, low FROM spans UNION ALL SELECT _ends, -n, -high, -low FROM spans)"
        " GROUP BY epoch ORDER BY epoch"
    )


def told_at(epochs: Sequence[int], sums: Sequence[Mapping[str, Any]]) -> dict[int, Fingerprint]:
    """The fingerprints at some epochs, ascending, from what begins and ends at each."""
    found, rows, digest, at = {}, 0, 0, 0
    for epoch in epochs:
        while at < len(sums) and sums[at]["epoch"] <= epoch:
            rows += sums[at]["rows"]
            digest += (int(sums[at]["high"]) << 64) + int(sums[at]["low"])
            at += 1
        found[epoch] = Fingerprint(rows, digest % _MODULUS)
    return found


def fingerprint_frame(found: Iterator[tuple[int, str, Fingerprint]]) -> pd.DataFrame:
    """One row per epoch and state table, ascending by epoch; see :meth:`History.fingerprints`."""
    rows = sorted(((epoch, table, one.rows, str(one)) for epoch, table, one in found), key=lambda row: row[0])
    frame = pd.DataFrame(rows, columns=["epoch", "table", "rows", "fingerprint"])
    return frame.astype({"epoch": "int64", "rows": "int64"})
