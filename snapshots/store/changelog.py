"""A state table's change log: its schema, and how to rebuild an epoch's state from it.

The columns are ``_epoch, _change, _partition``, then the key columns, then the value columns. There is one row per key
and epoch in which the key changed (``put`` or ``delete``); ``keyframe`` rows repeat all live keys at one epoch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import OvertakenError, UnknownEpochError
from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, PARTITION
from streamstate.snapshots.store.delta.place import Place
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.duckdb_sql import listed, spilling
from streamstate.snapshots.store.entries import Entries, TableFacts
from streamstate.snapshots.store.layout import RETENTION

PUT, DELETE, KEYFRAME = "put", "delete", "keyframe"

_FOLD_BATCH = 100_000

# Field metadata that marks the key columns.
KEY_MARK = {b"streamstate.key": b"true"}
# Field metadata of a column that a restarted query added: the first epoch that has it.
_BEGINS = b"streamstate.begins"
# Field metadata of `_change`: the operator that writes the table.
_OPERATOR, _TIME_MODE = b"streamstate.operator", b"streamstate.time_mode"


@dataclass(frozen=True)
class Operator:
    """The operator that writes a state table."""

    name: str
    """Spark's name of the operator, such as ``stateStoreSave``."""
    time_mode: str = ""
    """``NoTime``, ``EventTime`` or ``ProcessingTime`` for ``transformWithState``; empty for the others."""


def log_schema(rows: pa.Schema, keys: Sequence[str], operator: Operator | None = None) -> pa.Schema:
    """Return the schema with its key columns and its operator marked, so that the log describes itself."""
    marked = [field.with_metadata(KEY_MARK) if field.name in keys else field for field in rows]
    if operator is not None:
        at = rows.get_field_index(CHANGE)
        marked[at] = marked[at].with_metadata({_OPERATOR: operator.name, _TIME_MODE: operator.time_mode})
    return pa.schema(marked)


def operator_of(schema: pa.Schema) -> Operator | None:
    """Return the operator of a log's schema; None if it names none."""
    marks = schema.field(CHANGE).metadata or {}
    if _OPERATOR not in marks:
        return None
    return Operator(marks[_OPERATOR].decode(), marks.get(_TIME_MODE, b"").decode())


def key_columns(schema: pa.Schema) -> list[str]:
    """Return the key columns of a log's schema."""
    return [field.name for field in schema if (field.metadata or {}).get(b"streamstate.key")]


def value_columns(schema: pa.Schema) -> list[str]:
    """Return the value columns of a log's schema."""
    keys = {*key_columns(schema), EPOCH, CHANGE, PARTITION}
    return [name for name in schema.names if name not in keys]


def with_beginning(schema: pa.Schema, existing: pa.Schema, epoch: int) -> pa.Schema:
    """Return the schema, with the value columns that the existing log lacks marked as starting at an epoch."""
    added = {*value_columns(schema)} - {*existing.names}
    return pa.schema([field.with_metadata({_BEGINS: str(epoch)}) if field.name in added else field for field in schema])


def beginnings(schema: pa.Schema) -> dict[str, int]:
    """For each column that was added to a log later, the first epoch that has it."""
    marked = {field.name: (field.metadata or {}).get(_BEGINS) for field in schema}
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
    """Return some columns of a state table at an epoch, rebuilt from its log alone.

    Every reader of the log follows this rule: the newest row of each key since the keyframe counts, unless it is a
    delete. Columns that the log does not have (yet) are left out.
    """
    from streamstate.snapshots.store.delta import open_table  # Spark's executors import this module and open no table

    table = open_table(place)
    if table is None:
        return pa.table({})
    version = TableVersion(place, table)
    check_generation(version, generation)
    schema = version.schema
    columns = [name for name in columns if name in schema.names]
    with folded(version, keys, epoch, keyframe, columns) as rows:
        state = rows.read_all()
    return state.cast(pa.schema([schema.field(name).remove_metadata() for name in columns]))


def check_generation(version: TableVersion, generation: int | None) -> None:
    """Raise if retention has rewritten a log since the manifest was read: that manifest names keyframes that are gone.

    A manifest that is newer than the log is fine: retention commits to the manifest first, and the log already holds
    everything the manifest names. ``generation`` is how many runs of retention the manifest has been through; None if
    no manifest was read.
    """
    log_generation = version.table.transaction_version(RETENTION)
    if log_generation is not None and generation is not None and log_generation > generation:
        raise OvertakenError.by_retention(str(version.place))


@contextlib.contextmanager
def folded(
    version: TableVersion, keys: Sequence[str], epoch: int, keyframe: int | None, columns: Sequence[str]
) -> Iterator[pa.RecordBatchReader]:
    """The same as :func:`state_at`, as a stream; what exceeds memory is sorted on disk."""
    with spilling() as database:
        needed = list(dict.fromkeys([EPOCH, CHANGE, *keys, *columns]))
        database.register("log", rows_since(version, keyframe, epoch, needed))
        yield database.sql(
            f"SELECT {listed(columns)} FROM log QUALIFY"
            f" row_number() OVER (PARTITION BY {listed(keys)} ORDER BY _epoch DESC) = 1 AND _change <> '{DELETE}'"
        ).to_arrow_reader(_FOLD_BATCH)


def rows_since(
    version: TableVersion,
    keyframe: int | None,
    last: int,
    columns: Sequence[str] | None = None,
    *,
    after: int | None = None,
) -> pa.RecordBatchReader:
    """Return the rows that make up the state at ``last``: the keyframe's, if there is one, and the changes after it.

    With ``after``, the changes after that epoch.
    """
    epoch, change = pc.field(EPOCH), pc.field(CHANGE)
    where = change != KEYFRAME
    if keyframe is not None:
        where = (where & (epoch > keyframe)) | ((change == KEYFRAME) & (epoch == keyframe))
    first = keyframe if after is None else after + 1
    return version.scan(EPOCH, first, last, columns=columns, where=where)


@dataclass(frozen=True)
class ChangeLog:
    """One version of a changelog; epochs captured later are not in it."""

    table: str
    version: TableVersion
    entries: Entries
    """The manifest, ascending by epoch."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The types of all columns."""
        return self.version.schema

    @property
    def facts(self) -> TableFacts:
        """The manifest's facts on the table."""
        return self.entries.facts(self.table)

    @property
    def key_columns(self) -> list[str]:
        """In the order on disk."""
        return key_columns(self.schema)

    @property
    def value_columns(self) -> list[str]:
        """In the order on disk."""
        return value_columns(self.schema)

    @property
    def columns(self) -> list[str]:
        """Key columns, then value columns."""
        return [*self.key_columns, *self.value_columns]

    def columns_at(self, epoch: int) -> list[str]:
        """Return the columns that existed at an epoch."""
        begins = beginnings(self.schema)
        return [name for name in self.columns if begins.get(name, epoch) <= epoch]

    @property
    def all_columns(self) -> list[str]:
        """All columns of the changelog, starting with its own."""
        return [EPOCH, CHANGE, PARTITION, *self.columns]

    def keyframe(self, epoch: int) -> int | None:
        """Return the keyframe that reading an epoch starts from; None for the table's beginning."""
        if not self.facts.has(epoch):
            raise UnknownEpochError(
                f"Epoch {epoch} was dropped by retention while it was being read.\nRetry with an epoch that is kept."
            )
        return self.facts.keyframe_of(epoch)
