"""A copy of a share as a store of one's own: its epochs, written as a capture would write them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import ShareError
from streamstate.sharing.granted_view import AFTER, CHANGE_TYPE, DELETE, INSERT
from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, PARTITION
from streamstate.snapshots.store.changelog import DELETE as DELETED
from streamstate.snapshots.store.changelog import PUT, key_columns, log_schema, state_at, with_beginning
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.delta.commits import Handle, recent_metadata, version_of
from streamstate.snapshots.store.delta.place import Place
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register

_COPIED = "streamstate/copied"
"""The name under which a commit keeps the terms and the epochs that it copied."""
COPY = "_copy"
"""The column that tells equal rows apart, where the key is not granted."""


@dataclass(frozen=True)
class EpochChanges:
    """The changes of an epoch in each table of a share.

    Attributes:
        epoch: the epoch.
        at: its commit.
        tables: the changes of each table that has some.
    """

    epoch: int
    at: datetime
    tables: dict[str, pa.Table]


@dataclass(frozen=True)
class CopiedTable:
    """The columns of a table of a share.

    Attributes:
        schema: the columns.
        keys: the key columns; None: equal rows are told apart by a number.
    """

    schema: pa.Schema
    keys: list[str] | None

    def log_schema(self) -> pa.Schema:
        """Return the columns of the copy's log."""
        own = [pa.field(EPOCH, pa.int64()), pa.field(CHANGE, pa.string()), pa.field(PARTITION, pa.int32())]
        columns = [*self.schema] if self.keys else [*self.schema, pa.field(COPY, pa.int64())]
        keys = self.keys or [field.name for field in columns]
        return log_schema(pa.schema([*own, *sorted(columns, key=lambda field: field.name not in keys)]), keys)

    def without_changes(self) -> pa.Table:
        """Return the changes of an epoch that has none."""
        return self.schema.append(pa.field(CHANGE_TYPE, pa.string())).empty_table()


class Replica:
    """The copy of one share's query.

    The manifest has the terms of the contract that an epoch was copied under in place of Spark's run.

    Args:
        layout: the store that has the copy.
        name: the query's name there.
        source: where it comes from, as its identity.
    """

    def __init__(self, layout: Layout, name: str, source: str) -> None:
        self.layout, self.name, self.source = layout, name, source
        register(layout, name, source, source)
        self._manifest = Manifest(layout, name)
        self._handles: dict[str, Handle] = {}

    @property
    def newest(self) -> Entry | None:
        """The newest epoch of the copy; None: it has none."""
        self._manifest.refresh()
        return self._manifest.newest

    def append(
        self, changes: Sequence[EpochChanges], tables: Mapping[str, CopiedTable], terms: str, *, whole: bool
    ) -> None:
        """Append epochs: the changes of all tables, and then the rows of the manifest that make them visible.

        Args:
            changes: the epochs, ascending.
            tables: the tables.
            terms: a name of the contract's terms.
            whole: the first epoch has all rows as inserts, instead of its changes since the newest epoch of the copy.

        Raises:
            ShareError: a table has lost a column, or has another key; or a copying under other terms was interrupted.
        """
        newest, epochs = self.newest, [one.epoch for one in changes]
        for table, copied in tables.items():
            self._check(table, copied, terms, epochs, newest, whole=whole)
        counts: dict[str, list[int]] = {}
        for table, copied in tables.items():
            rows = [(one.epoch, one.tables.get(table, copied.without_changes())) for one in changes]
            state = self._state(table, copied, newest, epochs[0] - 1) if whole or not copied.keys else None
            if whole and state is not None:
                rows[0] = epochs[0], _replaced(state, rows[0][1], copied)
            logs = _keyed(rows, copied.keys) if copied.keys else _numbered(state, rows, copied.schema.names)
            self._log(table, copied, logs, terms, epochs)
            counts[table] = [log.num_rows for log in logs]
        entries = [
            Entry(
                one.epoch,
                CAPTURED,
                run_id=terms,
                committed_at=one.at,
                offsets="[]",
                tables={table: TableEntry(None, counts[table][at], None) for table in tables},
            )
            for at, one in enumerate(changes)
        ]
        self._manifest.append(entries, f"{self.name}/_epochs")

    def _check(
        self, table: str, copied: CopiedTable, terms: str, epochs: list[int], newest: Entry | None, *, whole: bool
    ) -> None:
        """Raise if changes do not fit the log of a table; nothing has been written then."""
        known, expected = self._handle(table).if_exists(), copied.log_schema()
        if known is None:
            return
        existing = TableVersion(self._place(table), known).schema
        if {*existing.names} - {*expected.names} or {*key_columns(existing)} != {*key_columns(expected)}:
            raise ShareError(f"{self.source} has other columns of {table} now. Open it with another cache.")
        written = version_of(known, self._application(table))
        if written <= (-1 if newest is None else newest.epoch) or (whole and epochs[0] > written):
            return
        # The log has epochs that are not in the manifest. They are right if the same is copied again.
        copies = [json.loads(text) for text in recent_metadata(self._place(table), _COPIED)[-1:]]
        if not any(of == terms and before == epochs[: len(before)] for of, before in copies):
            raise ShareError(
                f"Copying {self.source} was interrupted, and its terms have changed since. Open it with another cache."
            )

    def _log(self, table: str, copied: CopiedTable, logs: list[pa.Table], terms: str, epochs: list[int]) -> None:
        handle, schema = self._handle(table), copied.log_schema()
        if (existing := handle.if_exists()) is not None:
            schema = with_beginning(schema, TableVersion(self._place(table), existing).schema, epochs[0])
        known = open_or_create(handle, schema, f"streamstate: {table} of {self.source}")
        names = [field.name for field in known.schema().fields]
        rows = pa.concat_tables([log.select(names) for log in logs])
        metadata = {_COPIED: json.dumps([terms, epochs])}
        append_once(handle, self._application(table), epochs[-1], partial(_after, rows), metadata=metadata)

    def _handle(self, table: str) -> Handle:
        return self._handles.setdefault(table, Handle(self._place(table)))

    def _place(self, table: str) -> Place:
        return self.layout.changelog(self.name, table)

    def _application(self, table: str) -> str:
        return f"{self.name}/{table}"

    def _state(self, table: str, copied: CopiedTable, newest: Entry | None, epoch: int) -> pa.Table | None:
        """Return the rows that a log has at an epoch after the newest one, or before it; None: there is no log."""
        known = None if newest is None else newest.tables.get(table)
        keyframe = None if known is None else known.keyframe
        keys = copied.keys or [*copied.schema.names, COPY]
        found = state_at(self._place(table), keys, epoch, keyframe, copied.schema.names)
        return found if found.column_names else None


def _numbered(state: pa.Table | None, changes: list[tuple[int, pa.Table]], names: list[str]) -> list[pa.Table]:
    """Return the log of a table without a granted key: of equal rows, each has a number."""
    counts: Counter[tuple[Any, ...]] = Counter() if state is None else Counter(_rows(state, names))
    logs = []
    for epoch, rows in changes:
        moved: Counter[tuple[Any, ...]] = Counter()
        whole = dict[tuple[Any, ...], dict[str, Any]]()
        for row, values in zip(_rows(rows, names), rows.to_pylist(), strict=True):
            moved[row] += 1 if values.pop(CHANGE_TYPE) in (INSERT, AFTER) else -1
            whole[row] = values
        found: list[dict[str, Any]] = []
        for row, by in moved.items():
            before = counts[row]
            counts[row] += by
            change, copies = (PUT, range(before, before + by)) if by > 0 else (DELETED, range(before + by, before))
            found += [{**whole[row], COPY: copy, CHANGE: change} for copy in copies]
        schema = rows.schema.remove(rows.schema.get_field_index(CHANGE_TYPE))
        typed = schema.append(pa.field(COPY, pa.int64())).append(pa.field(CHANGE, pa.string()))
        logs.append(_placed(pa.Table.from_pylist(found, schema=typed), epoch))
    return logs


def _replaced(state: pa.Table, rows: pa.Table, copied: CopiedTable) -> pa.Table:
    """Return the changes that make other rows of a state: deletes and inserts.

    Args:
        state: the rows that the copy has.
        rows: all rows that it is to have, as inserts.
        copied: the columns.
    """
    names = copied.schema.names
    # A row that is already there is no change; if there is a new column, there is none.
    left = Counter(_rows(state, names) if {*names} <= {*state.column_names} else ())
    is_new = []
    for row in _rows(rows, names):
        is_new.append(left[row] <= 0)
        left[row] -= 1
    if copied.keys:
        there = {*_rows(rows, copied.keys)}
        is_gone = [key not in there for key in _rows(state, copied.keys)]
    else:
        is_gone = []
        for row in _rows(state, names):
            is_gone.append(left[row] > 0)
            left[row] -= 1
    gone = state.filter(pa.array(is_gone, pa.bool_()))
    columns = [
        gone[field.name].cast(field.type) if field.name in gone.column_names else pa.nulls(len(gone), field.type)
        for field in copied.schema
    ]
    deleted = pa.table([*columns, pa.array([DELETE] * len(gone), pa.string())], schema=rows.schema)
    return pa.concat_tables([deleted, rows.filter(pa.array(is_new, pa.bool_()))])


def _keyed(changes: Iterable[tuple[int, pa.Table]], keys: Sequence[str]) -> list[pa.Table]:
    """Return the log of a table whose key is granted: rows that are put, and keys that are deleted."""
    logs = []
    for epoch, rows in changes:
        kind = rows[CHANGE_TYPE]
        put = rows.filter(pc.is_in(kind, pa.array([INSERT, AFTER])))
        gone = rows.filter(pc.equal(kind, DELETE))
        put = put.set_column(put.schema.get_field_index(CHANGE_TYPE), CHANGE, pa.array([PUT] * len(put), pa.string()))
        empty = [
            gone[field.name] if field.name in keys else pa.nulls(len(gone), field.type)
            for field in put.schema
            if field.name != CHANGE
        ]
        deleted = pa.table([*empty, pa.array([DELETED] * len(gone), pa.string())], schema=put.schema)
        logs.append(_placed(pa.concat_tables([put, deleted]), epoch))
    return logs


def _placed(rows: pa.Table, epoch: int) -> pa.Table:
    rows = rows.append_column(EPOCH, pa.array([epoch] * len(rows), pa.int64()))
    return rows.append_column(PARTITION, pa.array([0] * len(rows), pa.int32()))


def _rows(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return [*zip(*(map(_hashable, table[name].to_pylist()) for name in names), strict=True)]


def _hashable(value: Any) -> Any:
    return value if value is None or value.__hash__ is not None else repr(value)


def _after(rows: pa.Table, committed: int) -> pa.Table:
    return rows.filter(pc.greater(rows[EPOCH], committed))
