"""Adding the few rows of a new epoch to an interval table, without joining, sorting or grouping.

Each of these makes DuckDB allocate blocks for its partitions, and the handles of blocks that are long freed stay in
its buffer pool's queues until tens of thousands of them have gathered. Where an epoch comes every 200 ms that is
what makes the memory of the process grow for many minutes, although nothing is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.change_log import DELETE, listed, quoted
from streamstate.snapshots.operators import EPOCH, HASH, PARTITION

NEVER = 2**63 - 1
"""``_valid_to`` of what holds."""

FEW_ROWS = 500
"""Up to so many rows, naming their keys is quicker than a join."""

FEW_KEYS = 100
"""Up to so many keys, naming their hashes spares looking through all versions."""

_FEW_EPOCHS = 10
# So many numbers in a list DuckDB compares one by one; with more of them it joins.
_COMPARED = 3
# So many comparisons, hashes times versions, take some ten milliseconds; beyond, a join is quicker.
_FEW_COMPARISONS = 10_000_000


def few(rows: pa.Table) -> bool:
    """Whether rows of the log are better added epoch by epoch than all at once."""
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
    """Add the rows of new epochs to the versions: what they replace or remove ends, what they put begins.

    Args:
        database: a connection to the index, in a transaction.
        relation: the interval table, quoted.
        rows: rows of the log, none of them of a keyframe, of epochs after all that are there.
        keys: the key columns.
        columns: key and value columns.
        versions: about how many versions there are.

    Returns:
        How many versions were added.
    """
    hashed = f"hash({listed(keys)})"
    fields = ", ".join(f"k{at} := {quoted(name)}" for at, name in enumerate(keys))
    added = 0
    for epoch in sorted(rows[EPOCH].unique().to_pylist()):
        database.register("few", rows.filter(pc.field(EPOCH) == epoch))
        try:
            hashes = [one for (one,) in database.execute(f"SELECT {hashed} FROM few").fetchall()]
            _end_replaced(database, relation, epoch, hashed_as(hashes, versions), f"struct_pack({fields})")
            [(begun,)] = database.execute(
                f"INSERT INTO {relation} SELECT {hashed} AS {HASH}, {epoch}, {NEVER}, {listed([PARTITION, *columns])}"
                f" FROM few WHERE _change <> '{DELETE}'"
            ).fetchall()
        finally:
            # After an error the transaction is over, and with it the name: it is the error that counts.
            with contextlib.suppress(duckdb.Error):
                database.unregister("few")
        added += begun
    return added


def hashed_as(hashes: Iterable[int], versions: int) -> str:
    """The SQL condition that a version's key has one of some hashes; worth it for ``FEW_KEYS``.

    Args:
        hashes: numbers of 64 bits, without a sign.
        versions: about how many versions are looked through.
    """
    numbers = [str(one) for one in hashes] or ["NULL"]
    size = _COMPARED if len(numbers) * versions <= _FEW_COMPARISONS else len(numbers)
    lists = [", ".join(numbers[at : at + size]) for at in range(0, len(numbers), size)]
    return f"({' OR '.join(f'{HASH} IN ({one})' for one in lists)})"


def _end_replaced(database: duckdb.DuckDBPyConnection, relation: str, epoch: int, hashed: str, key: str) -> None:
    """End the versions that an epoch replaces: hashes lead to them, keys decide, NULL being equal to NULL in a list."""
    database.execute(
        f"UPDATE {relation} SET _valid_to = {epoch} WHERE _valid_to = {NEVER} AND {hashed}"
        f" AND list_contains((SELECT list({key}) FROM few), {key})"
    )
