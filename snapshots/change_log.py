"""A state table's change log: what goes in, and how an epoch's state comes out again.

``_epoch, _change, _partition``, then the key columns, then the value columns: one row per key and epoch in which
it changed (``put`` or ``delete``), and ``keyframe`` rows that write all live keys again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

from streamstate.snapshots.delta import open_table
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION

PUT, DELETE, KEYFRAME = "put", "delete", "keyframe"

# The field metadata under which the log's schema says which columns are the key.
KEY_MARK = {b"streamstate.key": b"true"}


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """SQL identifiers, separated by commas."""
    return ", ".join(map(quoted, names))


def same(left: str, right: str, names: Sequence[str]) -> str:
    """The SQL condition that two relations agree in some columns, NULL being equal to NULL."""
    return " AND ".join(f"{left}.{quoted(one)} IS NOT DISTINCT FROM {right}.{quoted(one)}" for one in names)


def log_schema(rows: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    """The schema with its key columns marked, so that a reader of the log alone knows them."""
    return pa.schema([one.with_metadata(KEY_MARK) if one.name in keys else one for one in rows])


def key_columns(schema: pa.Schema) -> list[str]:
    """The key columns of a log's schema."""
    return [one.name for one in schema if (one.metadata or {}).get(b"streamstate.key")]


def value_columns(schema: pa.Schema) -> list[str]:
    """The value columns of a log's schema."""
    keys = {*key_columns(schema), EPOCH, CHANGE, PARTITION}
    return [name for name in schema.names if name not in keys]


def state_at(uri: str, keys: Sequence[str], epoch: int, keyframe: int | None, columns: Sequence[str]) -> pa.Table:
    """Some columns of a state table at an epoch, rebuilt from its log alone.

    This is the rule that every reader of the log follows: the newest row of each key since the keyframe counts,
    unless it is a delete. Columns that the log does not have (yet) are left out.
    """
    table = open_table(uri)
    if table is None:
        return pa.table({})
    logged = pa.schema(table.schema().to_arrow()).names
    columns = [name for name in columns if name in logged]
    wanted = [EPOCH, CHANGE, *columns]
    since = -1 if keyframe is None else keyframe
    scan = table.scan(
        columns=wanted,
        predicate=f"(_epoch > {since} AND _epoch <= {epoch} AND _change <> '{KEYFRAME}')"
        f" OR (_epoch = {since} AND _change = '{KEYFRAME}')",
    )
    stream = pa.RecordBatchReader.from_stream(scan)
    database = embedded()
    database.register("log", stream)
    found = database.sql(_newest(keys, columns)).to_arrow_table()
    kept = pa.schema(table.schema().to_arrow())
    return found.cast(pa.schema([kept.field(name).remove_metadata() for name in columns]))


def _newest(keys: Sequence[str], columns: Sequence[str]) -> str:
    return (
        f"SELECT {listed(columns)} FROM log"
        f" QUALIFY row_number() OVER (PARTITION BY {listed(keys)} ORDER BY _epoch DESC) = 1 AND _change <> '{DELETE}'"
    )


def embedded(**settings: Any) -> duckdb.DuckDBPyConnection:
    """A DuckDB of its own that reaches neither files, nor the network, nor the caller's variables."""
    connection = duckdb.connect(config={"enable_external_access": "false", "python_enable_replacements": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    for name, value in settings.items():
        connection.execute(f"SET {name} = ?", [value])
    connection.execute("SET lock_configuration = true")
    return connection
