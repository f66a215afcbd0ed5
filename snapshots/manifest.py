"""The manifest: which epochs exist. An epoch is visible once, and only once, its row is committed here."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from streamstate.snapshots.delta import append_once, open_or_create, open_table
from streamstate.snapshots.delta.commits import Handle, update
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.layout import CAPTURED, GAP, MANIFEST, Layout


@dataclass(frozen=True)
class TableFacts:
    """What the manifest says of one state table at one epoch."""

    rows: int
    """Live rows at the epoch."""
    changes: int
    """Rows of the change log that the epoch itself added, keyframe rows not counted."""
    keyframe: int | None
    """The keyframe that reading the epoch starts from; None: the table's first epoch, from nothing."""


@dataclass(frozen=True)
class Entry:
    """One row of the manifest."""

    epoch: int
    status: str
    run_id: str | None = None
    committed_at: datetime | None = None
    captured_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    offsets: str | None = None
    watermark: datetime | None = None
    input_rows: int | None = None
    tables: dict[str, TableFacts] = field(default_factory=dict)

    @property
    def captured(self) -> bool:
        """Whether the epoch's state is there."""
        return self.status == CAPTURED

    @classmethod
    def gap(cls, epoch: int) -> Entry:
        """The row of an epoch that Spark purged before it was captured."""
        return cls(epoch, GAP)


class Manifest:
    """A query's manifest as of its last refresh, ascending by epoch."""

    def __init__(self, layout: Layout, query: str) -> None:
        self.entries: list[Entry] = []
        self._place = layout.manifest(query)
        self._table: DeltaTable | None = None
        self._writing = Handle(self._place)
        self._version = -1
        self._reading = threading.Lock()

    def refresh(self) -> None:
        """Read what was added since; safe from several threads, such as a cell's and a view's."""
        with self._reading:
            self._refresh()

    def _refresh(self) -> None:
        if self._table is None:
            self._table = open_table(self._place)
        else:
            update(self._place, self._table)
        if self._table is None or self._table.version() == self._version:
            return
        newest = self.entries[-1].epoch if self.entries else -1
        found = TableVersion(self._place, self._table).scan("epoch", newest + 1).read_all().to_pylist()
        self.entries = self.entries + sorted(map(_entry, found), key=lambda one: one.epoch)
        self._version = self._table.version()

    @property
    def newest(self) -> Entry | None:
        """The newest captured epoch's row."""
        return next((entry for entry in reversed(self.entries) if entry.captured), None)

    def append(self, entries: list[Entry], application: str) -> None:
        """Make epochs visible; those that another capture made visible meanwhile are left out."""
        if self._table is None:
            open_or_create(self._place, MANIFEST, "streamstate: the epochs of one query")
        append_once(
            self._writing,
            application,
            entries[-1].epoch,
            lambda stands: pa.Table.from_pylist([_row(one) for one in entries if one.epoch > stands], schema=MANIFEST),
        )


def _row(entry: Entry) -> dict[str, Any]:
    facts = entry.tables.items()
    row = {name: getattr(entry, name) for name in MANIFEST.names[:8]}
    return row | {
        "rows": [(table, one.rows) for table, one in facts],
        "changes": [(table, one.changes) for table, one in facts],
        "keyframes": [(table, one.keyframe) for table, one in facts],
    }


def _entry(row: dict[str, Any]) -> Entry:
    rows, changes, keyframes = (dict(row[name] or []) for name in MANIFEST.names[8:])
    facts = {table: TableFacts(rows[table], changes[table], keyframes[table]) for table in rows}
    return Entry(**{name: row[name] for name in MANIFEST.names[:8]}, tables=facts)
