"""Adding the few rows of a new epoch to an interval table, without joining, sorting or grouping.

Each of these makes DuckDB allocate blocks for its partitions, and the handles of freed blocks stay in the queues of its
buffer pool until tens of thousands have accumulated. With an epoch every 200 ms, the memory of the process would grow
for many minutes, although nothing is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.checkpoint.state_tables import EPOCH, HASH, PARTITION
from streamstate.snapshots.store.changelog import DELETE
from streamstate.snapshots.store.duckdb_sql import listed, quoted

NEVER = 2**63 - 1
"""``_valid_to`` of versions that are still valid."""

FEW_ROWS = 500
"""Up to this many rows, listing their keys is faster than a join."""

FEW_KEYS = 100
"""Up to this many keys, listing their hashes avoids a scan of all versions."""

_FEW_EPOCHS = 10
# DuckDB compares lists of up to this many numbers one by one; longer lists become a join.
_COMPARED = 3
# This many comparisons, hashes times versions, take about ten milliseconds; beyond that a join is faster.
_FEW_COMPARISONS = 10_000_000


def few(rows: pa.Table) -> bool:
    """Return whether rows of the changelog are better added epoch by epoch than all at once."""
    return rows.num_rows <= FEW_ROWS and len(rows[EPOCH].unique()) <= _FEW_EPOCHS


def patch(
    database: duckdb.DuckDBPyConnection,
    relation: str,
    rows: pa.Table,
    keys: Sequence[str],
    columns: Sequence[str],
    *,
    versions: int,
) -> int:
    """Add the rows of new epochs to the versions: end those that they replace or remove, and begin those that they put.

    The rows are of epochs after all loaded ones, and none is of a keyframe. Returns the number of versions added.
    """
    hashed = f"hash({listed(keys)})"
    fields = ", ".join(f"k{at} := {quoted(name)}" for at, name in enumerate(keys))
    added = 0
    for epoch in sorted(rows[EPOCH].unique().to_pylist()):
        database.register("few", rows.filter(pc.field(EPOCH) == epoch))
        try:
            hashes = [key_hash for (key_hash,) in database.execute(f"SELECT {hashed} FROM few").fetchall()]
            _end_replaced(database, relation, epoch, hashed_as(hashes, versions), f"struct_pack({fields})")
            [(begun,)] = database.execute(
                f"INSERT INTO {relation} SELECT {hashed} AS {HASH}, {epoch}, {NEVER}, {listed([PARTITION, *columns])}"
                f" FROM few WHERE _change <> '{DELETE}'"
            ).fetchall()
        finally:
            # After an error the transaction is over, and the name with it; the error is what matters.
            with contextlib.suppress(duckdb.Error):
                database.unregister("few")
        added += begun
    return added


def hashed_as(hashes: Iterable[int], versions: int) -> str:
    """Return the SQL condition that a version's key has one of some hashes; pays off for up to ``FEW_KEYS``.

    ``versions`` is the approximate number of versions to scan.
    """
    numbers = [str(number) for number in hashes] or ["NULL"]
    size = _COMPARED if len(numbers) * versions <= _FEW_COMPARISONS else len(numbers)
    lists = [", ".join(numbers[at : at + size]) for at in range(0, len(numbers), size)]
    return f"({' OR '.join(f'{HASH} IN ({part})' for part in lists)})"


def _end_replaced(database: duckdb.DuckDBPyConnection, relation: str, epoch: int, hashed: str, key: str) -> None:
    """End the versions that an epoch replaces: found by hash, decided by key (in a list, NULL equals NULL)."""
    database.execute(
        f"UPDATE {relation} SET _valid_to = {epoch} WHERE _valid_to = {NEVER} AND {hashed}"
        f" AND list_contains((SELECT list({key}) FROM few), {key})"
    )
