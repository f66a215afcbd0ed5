"""The keys of a state table: how a call gives one or many, how one becomes text, and how text becomes a key again."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.duckdb_sql import listed, quoted, same
from streamstate.snapshots.operators import HASH, POSITION
from streamstate.state_inspect.temporal_index.index import Index
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at
from streamstate.state_inspect.temporal_index.small_append import FEW_KEYS, hashed_as

Keys: TypeAlias = "pd.DataFrame | pa.Table | Sequence[Mapping[str, Any]]"
"""A frame or an Arrow table with the key columns, or a dict per key."""

SESSION_START = "sessionStartTime"
"""The last key column of a state of session windows, as Spark calls it."""

_ORDER = "_key_order"


def key_of(given: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """The key that a call's keyword arguments give: one argument per column, or all of it as ``key={…}``.

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


def check_columns(key: Mapping[str, Any], columns: Sequence[str], table: str) -> None:
    """Raise if a key has a value for anything else than key columns."""
    for name in key:
        if name not in columns:
            raise UnknownColumnError.among("key column", name, columns, where=f"in {table}")


def check_key(key: Mapping[str, Any], columns: Sequence[str], table: str) -> None:
    """Raise unless a key has a value for each key column and for nothing else."""
    check_columns(key, columns, table)
    missing = [name for name in columns if name not in key]
    if missing:
        raise InvalidArgumentError(
            f"The key of {table} needs a value for: {', '.join(missing)}.\nIts key columns: {', '.join(columns)}."
        )


def invalid_key(key: Mapping[str, Any], table: IntervalTable, error: Exception) -> InvalidArgumentError:
    """The error for key values that do not fit the types of the key columns."""
    types = ", ".join(f"{name} {table.schema.field(name).type}" for name in table.key_columns)
    return InvalidArgumentError(
        f"Invalid key {key_text(key)}: {str(error).splitlines()[0]}\nExpected values of these types: {types}."
    )


def key_condition(table: IntervalTable, key: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The SQL condition that a version belongs to a key, or to any key with some values, and its parameters."""
    if {*key} == {*table.key_columns}:
        return table.key_is(key)
    return " AND ".join(f"{quoted(name)} IS NOT DISTINCT FROM ?" for name in key), list(key.values())


def typed_key(key: Mapping[str, Any], schema: pa.Schema) -> pa.Table | None:
    """A key, or some of its columns, as a row with the columns' types; None if its values are not exactly of them."""
    try:
        row = pa.table([pa.array([value], schema.field(name).type) for name, value in key.items()], names=list(key))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None
    [typed] = row.to_pylist()
    return (
        row if all(type(typed[name]) is type(value) and typed[name] == value for name, value in key.items()) else None
    )


def row_number_column(table: str, key_columns: Sequence[str]) -> str | None:
    """The last key column of a side of a join, which numbers the rows of a key; None for other tables.

    Spark calls it ``index``; if that name is taken, it is ``index_2`` and so on.
    """
    named = [column for column in key_columns if column != POSITION]
    is_side = table.endswith(("_left", "_right")) and len(named) > 1 and named[-1].startswith("index")
    return named[-1] if is_side else None


def session_column(key_columns: Sequence[str], schema: pa.Schema) -> str | None:
    """The column with a session's window, which begins at :data:`SESSION_START`; None if the table has no sessions."""
    if SESSION_START not in key_columns[-1:]:
        return None
    windows = [
        field.name
        for field in schema
        if pa.types.is_struct(field.type) and {part.name for part in field.type} == {"start", "end"}
    ]
    return windows[0] if windows else None


def key_text(key: Mapping[str, Any]) -> str:
    """A key for a message, such as ``carrier='UA', number=7``."""
    return ", ".join(f"{name}={value!r}" for name, value in key.items())


def value_text(value: Any) -> str:
    """A key column's value as the text that :func:`parse_value` reads; a missing one is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (Mapping, list)):
        return json.dumps(value, ensure_ascii=False, default=value_text)
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


def parse_value(text: str, column: pa.Field) -> Any:
    """The value of a key column that a text spells; nested types are written as JSON."""
    try:
        if pa.types.is_nested(column.type):
            return _with_times(json.loads(text), column.type)
        return pa.scalar(text).cast(column.type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, json.JSONDecodeError):
        raise InvalidArgumentError(f"Invalid {column.name}={text}: expected a value of type {column.type}.") from None


def _with_times(value: Any, kind: pa.DataType) -> Any:
    """A value that was read from JSON, with the dates and times of structs, such as windows, as such."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        kinds = {field.name: field.type for field in kind}
        return {name: _with_times(part, kinds[name]) if name in kinds else part for name, part in value.items()}
    if pa.types.is_temporal(kind) and isinstance(value, str):
        return pa.scalar(value).cast(kind).as_py()
    return value


def rows_of(keys: Keys, index: Index, table: IntervalTable, epoch: int) -> pa.Table:
    """The rows of some keys at an epoch, in the order of the keys. Keys that are not in the state are left out."""
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
        f"SELECT {named} FROM ({hashes}) AS keys JOIN ({versions}) AS held"
        f" ON {same('held', 'keys', [HASH, *table.key_columns])} ORDER BY keys.{_ORDER}",
        frames={"given": given},
    )


def _in_order(found: pa.Table, hashes: pa.ChunkedArray, keys: pa.Table) -> pa.Table | None:
    """The rows found by the keys' hashes, in the order of the keys; None if only a join can match them to the keys.

    Joins are avoided for few keys because of the memory that each leaves behind in DuckDB; see ``small_append``.
    """
    places = pc.index_in(found[HASH], value_set=hashes)
    order = pc.sort_indices(places)
    rows = found.take(order).drop_columns(HASH)
    repeated = len(hashes.unique()) < len(hashes)
    alike = rows.select(keys.column_names).cast(keys.schema).equals(keys.take(places.take(order)))
    return rows if alike and not repeated else None


def _as_table(keys: Keys, table: IntervalTable) -> pa.Table:
    """The keys with the types of the key columns, numbered."""
    given = _arrow(keys)
    names = given.column_names if given.num_rows or given.column_names else table.key_columns
    for name in names:
        if name not in table.key_columns:
            raise UnknownColumnError.among("key column", name, table.key_columns)
    missing = [name for name in table.key_columns if name not in names]
    if missing:
        raise InvalidArgumentError(
            f"The keys need a value for: {', '.join(missing)}.\nKey columns: {', '.join(table.key_columns)}."
        )
    fields = [table.schema.field(name).remove_metadata() for name in table.key_columns]
    if not given.column_names:
        return pa.schema([*fields, pa.field(_ORDER, pa.int64())]).empty_table()
    try:
        typed = given.select(table.key_columns).cast(pa.schema(fields))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        types = ", ".join(f"{field.name} {field.type}" for field in fields)
        raise InvalidArgumentError(f"Invalid keys: {error}\nExpected values of these types: {types}.") from error
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
            f"Invalid keys: {error}\nExpected a frame with the key columns, or a list of dicts, one per key."
        ) from error
