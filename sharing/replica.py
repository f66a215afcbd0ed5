"""A copy of a share as a store of one's own: its epochs, written as a capture would write them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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
from streamstate.snapshots.store.changelog import PUT, log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register
from streamstate.state_inspect.store import Store

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


class Replica:
    """The copy of one share's query.

    Args:
        layout: the store that has the copy.
        name: the query's name there.
        source: where it comes from, as its identity.
    """

    def __init__(self, layout: Layout, name: str, source: str) -> None:
        self.layout, self.name, self.source = layout, name, source
        register(layout, name, source, source)
        self._manifest = Manifest(layout, name)

    @property
    def newest(self) -> int | None:
        """The newest epoch of the copy; None: it has none."""
        self._manifest.refresh()
        found = self._manifest.newest
        return None if found is None else found.epoch

    def append(self, changes: Sequence[EpochChanges], schemas: dict[str, pa.Schema], keys: dict[str, Any]) -> None:
        """Append epochs: the changes of all tables, and then the rows of the manifest that make them visible.

        Args:
            changes: the epochs, ascending.
            schemas: the columns of each table.
            keys: the key columns of each table; None: equal rows are told apart by a number.
        """
        counts: dict[str, list[int]] = {}
        for table, schema in schemas.items():
            rows = [
                (one.epoch, one.tables.get(table, schema.append(pa.field(CHANGE_TYPE, pa.string())).empty_table()))
                for one in changes
            ]
            logs = _keyed(rows, keys[table]) if keys[table] else self._numbered(table, rows, schema.names)
            self._log(table, schema, keys[table], logs, changes[-1].epoch)
            counts[table] = [log.num_rows for log in logs]
        entries = [
            Entry(
                one.epoch,
                CAPTURED,
                committed_at=one.at,
                offsets="[]",
                tables={table: TableEntry(None, counts[table][at], None) for table in schemas},
            )
            for at, one in enumerate(changes)
        ]
        self._manifest.append(entries, f"{self.name}/_epochs")

    def _log(self, table: str, schema: pa.Schema, keys: list[str] | None, logs: list[pa.Table], last: int) -> None:
        place = self.layout.changelog(self.name, table)
        own = [pa.field(EPOCH, pa.int64()), pa.field(CHANGE, pa.string()), pa.field(PARTITION, pa.int32())]
        columns = [*schema] if keys else [*schema, pa.field(COPY, pa.int64())]
        key_columns = keys or [field.name for field in columns]
        ordered = sorted(columns, key=lambda field: field.name not in key_columns)
        whole = log_schema(pa.schema([*own, *ordered]), key_columns)
        known = open_or_create(place, whole, f"streamstate: {table} of {self.source}")
        names = [field.name for field in known.schema().fields]
        if {*names} != {*whole.names}:
            raise ShareError(f"{self.source} has other columns of {table} now. Open it with another cache.")
        rows = pa.concat_tables([log.select(names) for log in logs])
        append_once(place, f"{self.name}/{table}", last, partial(_after, rows))

    def _numbered(self, table: str, changes: list[tuple[int, pa.Table]], names: list[str]) -> list[pa.Table]:
        """Return the log of a table without a granted key: of equal rows, each has a number."""
        counts: Counter[tuple[Any, ...]] = Counter()
        if (newest := self.newest) is not None:
            state = Store(self.layout.root, self.layout.options)[self.name].at(newest).table(table).to_arrow()
            counts.update(_rows(state, names))
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
