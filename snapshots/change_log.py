"""A state table's change log: what goes in, and how an epoch's state comes out again.

``_epoch, _change, _partition``, then the key columns, then the value columns: one row per key and epoch in which
it changed (``put`` or ``delete``), and ``keyframe`` rows that write all live keys again.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.delta.place import Place
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.errors import OvertakenError
from streamstate.snapshots.layout import RETENTION
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION

PUT, DELETE, KEYFRAME = "put", "delete", "keyframe"

_FOLD_MEMORY, _FOLD_BATCH = "512MB", 100_000

# The field metadata under which the log's schema says which columns are the key, and, at `_change`, who writes it.
KEY_MARK = {b"streamstate.key": b"true"}
# And the one that says from which epoch on a column is there that a restarted query brought.
_BEGINS = b"streamstate.begins"
_OPERATOR, _TIME_MODE = b"streamstate.operator", b"streamstate.time_mode"


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """SQL identifiers, separated by commas."""
    return ", ".join(map(quoted, names))


def same(left: str, right: str, names: Sequence[str]) -> str:
    """The SQL condition that two relations agree in some columns, NULL being equal to NULL."""
    return " AND ".join(f"{left}.{quoted(one)} IS NOT DISTINCT FROM {right}.{quoted(one)}" for one in names)


@dataclass(frozen=True)
class Operator:
    """Who writes a state table."""

    name: str
    """Spark's name of the operator, such as ``stateStoreSave``."""
    time_mode: str = ""
    """``NoTime``, ``EventTime`` or ``ProcessingTime`` for ``transformWithState``; empty for the others."""


def log_schema(rows: pa.Schema, keys: Sequence[str], operator: Operator | None = None) -> pa.Schema:
    """The schema with its key columns and its operator marked, so that a reader of the log alone knows them."""
    marked = [one.with_metadata(KEY_MARK) if one.name in keys else one for one in rows]
    if operator is not None:
        at = rows.get_field_index(CHANGE)
        marked[at] = marked[at].with_metadata({_OPERATOR: operator.name, _TIME_MODE: operator.time_mode})
    return pa.schema(marked)


def operator_of(schema: pa.Schema) -> Operator | None:
    """The operator of a log's schema; None for a log from before it was written down."""
    marks = schema.field(CHANGE).metadata or {}
    if _OPERATOR not in marks:
        return None
    return Operator(marks[_OPERATOR].decode(), marks.get(_TIME_MODE, b"").decode())


def key_columns(schema: pa.Schema) -> list[str]:
    """The key columns of a log's schema."""
    return [one.name for one in schema if (one.metadata or {}).get(b"streamstate.key")]


def value_columns(schema: pa.Schema) -> list[str]:
    """The value columns of a log's schema."""
    keys = {*key_columns(schema), EPOCH, CHANGE, PARTITION}
    return [name for name in schema.names if name not in keys]


def with_beginning(wanted: pa.Schema, there: pa.Schema, epoch: int) -> pa.Schema:
    """The schema with those of its value columns marked that a log begins to have at an epoch."""
    new = {*value_columns(wanted)} - {*there.names}
    return pa.schema([one.with_metadata({_BEGINS: str(epoch)}) if one.name in new else one for one in wanted])


def beginnings(schema: pa.Schema) -> dict[str, int]:
    """For each column that a log did not have from its start, the epoch from which on it is there."""
    marked = {one.name: (one.metadata or {}).get(_BEGINS) for one in schema}
    return {name: int(epoch) for name, epoch in marked.items() if epoch is not None}


def state_at(
    place: Place,
    keys: Sequence[str],
    epoch: int,
    keyframe: int | None,
    columns: Sequence[str],
    *,
    generation: int | None = None,
) -> pa.Table:
    """Some columns of a state table at an epoch, rebuilt from its log alone.

    This is the rule that every reader of the log follows: the newest row of each key since the keyframe counts,
    unless it is a delete. Columns that the log does not have (yet) are left out.

    Raises:
        OvertakenError: where retention has rewritten the log since the manifest, read at ``generation``, named the
            keyframe.
    """
    from streamstate.snapshots.delta import open_table  # Spark's executors use this module and open no table

    table = open_table(place)
    if table is None:
        return pa.table({})
    version = TableVersion(place, table)
    check_generation(version, generation)
    schema = version.schema
    columns = [name for name in columns if name in schema.names]
    with folded(version, keys, epoch, keyframe, columns) as rows:
        found = rows.read_all()
    return found.cast(pa.schema([schema.field(name).remove_metadata() for name in columns]))


def check_generation(version: TableVersion, generation: int | None) -> None:
    """Raise where retention has rewritten a log after the manifest was read, which names keyframes that are gone.

    The other way round is fine: retention changes the manifest first, and what it names is in the log by then.

    Args:
        version: the log.
        generation: how many runs of retention the manifest has been through; None where no manifest says so.

    Raises:
        OvertakenError: as said.
    """
    stands = version.table.transaction_version(RETENTION)
    if stands is not None and generation is not None and stands > generation:
        raise OvertakenError.by_retention(str(version.place))


@contextlib.contextmanager
def folded(
    version: TableVersion, keys: Sequence[str], epoch: int, keyframe: int | None, columns: Sequence[str]
) -> Iterator[pa.RecordBatchReader]:
    """The same as :func:`state_at`, as a stream: what does not fit into memory is sorted on disk."""
    with tempfile.TemporaryDirectory(prefix="streamstate-fold-") as folder:
        database = embedded(temp_directory=folder, memory_limit=_FOLD_MEMORY)
        wanted = list(dict.fromkeys([EPOCH, CHANGE, *keys, *columns]))
        database.register("log", rows_since(version, keyframe, epoch, wanted))
        yield database.sql(_newest(keys, columns)).to_arrow_reader(_FOLD_BATCH)
        database.close()


def rows_since(
    version: TableVersion, keyframe: int | None, last: int, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """The rows of the log that make the state at ``last``: a keyframe's (None: none), and the changes after it."""
    epoch, change = pc.field(EPOCH), pc.field(CHANGE)
    where = change != KEYFRAME
    if keyframe is not None:
        where = (where & (epoch > keyframe)) | ((change == KEYFRAME) & (epoch == keyframe))
    return version.scan(EPOCH, keyframe, last, columns=columns, where=where)


def _newest(keys: Sequence[str], columns: Sequence[str]) -> str:
    return (
        f"SELECT {listed(columns)} FROM log"
        f" QUALIFY row_number() OVER (PARTITION BY {listed(keys)} ORDER BY _epoch DESC) = 1 AND _change <> '{DELETE}'"
    )


def embedded(**settings: Any) -> duckdb.DuckDBPyConnection:
    """A DuckDB of its own that reaches neither files, nor the network, nor the caller's variables."""
    connection = duckdb.connect(config={"python_enable_replacements": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    for name, value in settings.items():
        connection.execute(f"SET {name} = ?", [value])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
