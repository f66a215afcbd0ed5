"""The keys of a state table, one or many, and the rows that they have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.state_tables import HASH, POSITION
from streamstate.snapshots.store.duckdb_sql import listed, quoted, same
from streamstate.state_inspect.keys.key_text import as_parameter, is_window
from streamstate.state_inspect.temporal_index.index import Index
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at
from streamstate.state_inspect.temporal_index.small_append import FEW_KEYS, hashed_as

if TYPE_CHECKING:
    import pandas as pd

Keys: TypeAlias = "pd.DataFrame | pa.Table | Sequence[Mapping[str, Any]]"
"""A frame or an Arrow table with the key columns, or a dict per key."""

SESSION_START = "sessionStartTime"
"""The last key column of a state of session windows, as Spark calls it."""

_ORDER = "_key_order"


def given_key(given: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """Return the key that a call's keyword arguments give: one argument per column, or all of it as ``key={…}``.

    If a key column is called ``key``, a mapping that names no key column is its value: a struct.
    """
    whole = given.get("key")
    if not isinstance(whole, Mapping) or ("key" in columns and not {*whole} & {*columns}):
        return dict(given)
    if len(given) > 1:
        others = ", ".join(name for name in given if name != "key")
        raise InvalidArgumentError(
            f"Invalid key: both key={{…}} and {others}.\nGive it as a mapping or as keyword arguments, not both."
        )
    return dict(whole)


def key_condition(table: IntervalTable, key: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the SQL condition that a version belongs to a key, or to any key with some values, and its parameters."""
    if {*key} == {*table.key_columns}:
        return table.key_is(key)
    values = [as_parameter(value, table.schema.field(name).type) for name, value in key.items()]
    return " AND ".join(f"{quoted(name)} IS NOT DISTINCT FROM ?" for name in key), values


def typed_key(key: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Return a key, or some of its columns, as a row with the columns' types."""
    return pa.table([pa.array([value], schema.field(name).type) for name, value in key.items()], names=list(key))


def row_number_column(table: str, key_columns: Sequence[str]) -> str | None:
    """Return the last key column of a side of a join, which numbers the rows of a key; None for other tables.

    Spark calls it ``index``; if that name is taken, it is ``index_2`` and so on.
    """
    named = [column for column in key_columns if column != POSITION]
    is_side = table.endswith(("_left", "_right")) and len(named) > 1 and named[-1].startswith("index")
    return named[-1] if is_side else None


def session_column(key_columns: Sequence[str], schema: pa.Schema) -> str | None:
    """Return the column with a session's window; None if the table has no sessions."""
    if SESSION_START not in key_columns[-1:]:
        return None
    return next((field.name for field in schema if is_window(field.type)), None)


def rows_of_keys(keys: pa.Table, index: Index, table: IntervalTable, epoch: int) -> pa.Table:
    """Return the rows of some keys at an epoch, in the order of the keys; missing keys are left out."""
    given = keys.append_column(_ORDER, pa.array(range(keys.num_rows), pa.int64()))
    hashes = f"SELECT *, hash({listed(table.key_columns)}) AS {HASH} FROM given"
    versions = f"SELECT * FROM {table.relation} WHERE {held_at(epoch)}"
    columns = table.columns_at(epoch)
    if given.num_rows <= FEW_KEYS:
        known = index.query(f"SELECT {HASH} FROM ({hashes})", frames={"given": given})[HASH]
        versions += f" AND {hashed_as(known.to_pylist(), table.versions)}"
        found = index.query(f"SELECT {listed([HASH, *columns])} FROM ({versions})")
        if (rows := _in_order(found, known, given.select(table.key_columns))) is not None:
            return rows
    named = ", ".join(f"held.{quoted(name)}" for name in columns)
    return index.query(
        f"SELECT {named} FROM ({hashes}) AS keys JOIN ({versions}) AS held"
        f" ON {same('held', 'keys', [HASH, *table.key_columns])} ORDER BY keys.{_ORDER}",
        frames={"given": given},
    )


def _in_order(found: pa.Table, hashes: pa.ChunkedArray, keys: pa.Table) -> pa.Table | None:
    """Return the rows found by hash, in the order of the keys; None if only a join can match them.

    Joins are avoided for few keys because of the memory that each leaves behind in DuckDB; see ``small_append``.
    """
    places = pc.index_in(found[HASH], value_set=hashes)
    order = pc.sort_indices(places)
    rows = found.take(order).drop_columns(HASH)
    repeated = len(hashes.unique()) < len(hashes)
    alike = rows.select(keys.column_names).cast(keys.schema).equals(keys.take(places.take(order)))
    return rows if alike and not repeated else None
