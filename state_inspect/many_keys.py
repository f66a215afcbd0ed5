"""Many keys of one state table, looked up together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.change_log import listed, quoted, same
from streamstate.snapshots.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.operators import HASH
from streamstate.state_inspect.temporal_index.few_rows import FEW_KEYS, hashed_as
from streamstate.state_inspect.temporal_index.interval_table import held_at

if TYPE_CHECKING:
    from streamstate.state_inspect.temporal_index.index import Index
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

Keys: TypeAlias = "pd.DataFrame | pa.Table | Sequence[Mapping[str, Any]]"
"""Key columns as a frame or an Arrow table, or a dict for each key."""

_ORDER = "_asked"


def rows_of(keys: Keys, index: Index, table: IntervalTable, epoch: int) -> pa.Table:
    """The rows of some keys at an epoch, in the order of the keys, without those that are not there.

    Raises:
        UnknownColumnError: where the keys have a column that is no key column.
        InvalidArgumentError: where they lack one, or a value does not fit its type.
    """
    given = _as_table(keys, table)
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
        f"SELECT {named} FROM ({hashes}) AS asked JOIN ({versions}) AS held"
        f" ON {same('held', 'asked', [HASH, *table.key_columns])} ORDER BY asked.{_ORDER}",
        frames={"given": given},
    )


def _in_order(found: pa.Table, hashes: pa.ChunkedArray, keys: pa.Table) -> pa.Table | None:
    """What the keys' hashes led to, in the order of the keys; None where it takes a join to say which is whose.

    Joins are what the rows of few keys are found without: see ``few_rows`` for what each leaves in DuckDB.
    """
    places = pc.index_in(found[HASH], value_set=hashes)
    order = pc.sort_indices(places)
    rows = found.take(order).drop_columns(HASH)
    twice = len(hashes.unique()) < len(hashes)
    alike = rows.select(keys.column_names).cast(keys.schema).equals(keys.take(places.take(order)))
    return rows if alike and not twice else None


def _as_table(keys: Keys, table: IntervalTable) -> pa.Table:
    """The keys with the columns and types of the table's key, and their order."""
    given = _arrow(keys)
    names = given.column_names if given.num_rows or given.column_names else table.key_columns
    for name in names:
        if name not in table.key_columns:
            raise UnknownColumnError.among("key column", name, table.key_columns)
    missing = [name for name in table.key_columns if name not in names]
    if missing:
        raise InvalidArgumentError(
            f"The keys lack: {', '.join(missing)}.\nThe key columns are: {', '.join(table.key_columns)}."
        )
    fields = [table.schema.field(name).remove_metadata() for name in table.key_columns]
    if not given.column_names:
        return pa.schema([*fields, pa.field(_ORDER, pa.int64())]).empty_table()
    try:
        typed = given.select(table.key_columns).cast(pa.schema(fields))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        types = ", ".join(f"{one.name} {one.type}" for one in fields)
        raise InvalidArgumentError(f"The keys do not fit the key's types: {error}\nKey columns: {types}.") from error
    return typed.append_column(_ORDER, pa.array(range(typed.num_rows), pa.int64()))


def _arrow(keys: Any) -> pa.Table:
    if isinstance(keys, pa.Table):
        return keys
    try:
        if isinstance(keys, pd.DataFrame):
            return pa.Table.from_pandas(keys, preserve_index=False)
        return pa.Table.from_pylist([dict(key) for key in keys])
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"These keys cannot be meant: {error}\nGive a frame of the key columns, or a list of dicts, one a key."
        ) from error
