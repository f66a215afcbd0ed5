"""The manifest: which epochs exist. An epoch is visible once, and only once, its row is committed here."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from streamstate.snapshots.delta import commit_once, open_or_create, open_table
from streamstate.snapshots.delta.commits import Handle, update, version_of
from streamstate.snapshots.delta.data_files import DataFile, write_file
from streamstate.snapshots.delta.place import Place
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.layout import CAPTURED, GAP, MANIFEST, RETENTION, Layout


# A long history keeps many of both: slots, and one copy of each name, make an epoch smaller.
@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the manifest says of one state table at one epoch."""

    rows: int
    """Live rows at the epoch."""
    changes: int
    """Rows of the change log that the epoch itself added, keyframe rows not counted."""
    keyframe: int | None
    """The keyframe that reading the epoch starts from; None: the table's first epoch, from nothing."""
    generation: int | None = field(default=None, compare=False)
    """How many runs of retention the manifest that says so had been through: a log that is further has other
    keyframes. None for what no manifest has said yet."""


@dataclass(frozen=True, slots=True)
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
    sources: str | None = None
    """What is known of each source beside its offset, as JSON (see ``sources``); None in stores made before there was
    such a column, and where Spark had purged it."""
    began_at: datetime | None = None
    """When Spark planned the epoch's batch, which is the processing time in it; None as for ``sources``."""
    generation: int = field(default=0, compare=False)
    """How many runs of retention the manifest had been through when it was read."""

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
        self.query = query
        """The query's name in the store."""
        self.entries: list[Entry] = []
        self.generation = 0
        """How many runs of retention the entries have been through."""
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
        generation = generation_of(self._table)
        # Retention rewrites the rows that stay, so what was read before it counts no more.
        known = self.entries if generation == self.generation else []
        added = read_entries(TableVersion(self._place, self._table), known[-1].epoch + 1 if known else 0)
        self.entries, self.generation = known + added, generation
        self._version = self._table.version()

    @property
    def newest(self) -> Entry | None:
        """The newest captured epoch's row."""
        return next((entry for entry in reversed(self.entries) if entry.captured), None)

    def append(self, entries: list[Entry], application: str) -> None:
        """Make epochs visible; those that another capture made visible meanwhile are left out."""
        if self._table is None or lacks_columns(self._table):
            make_manifest(self._place)

        def write(table: DeltaTable, stands: int) -> list[DataFile]:
            if generation_of(table) != self.generation:
                self.refresh()
            rows = [one for one in entries if one.epoch > stands]
            return write_file(self._place, MANIFEST, as_rows(with_kept_keyframes(rows, self.entries)))

        commit_once(self._writing, application, entries[-1].epoch, write)


def make_manifest(place: Place) -> None:
    """Make a query's manifest where there is none, and give one of an earlier streamstate the columns that it lacks."""
    open_or_create(place, MANIFEST, "streamstate: the epochs of one query")


def lacks_columns(table: DeltaTable) -> bool:
    """Whether a manifest was made by an earlier streamstate, which had fewer columns."""
    return not {*MANIFEST.names} <= {field.name for field in table.schema().fields}


def generation_of(table: DeltaTable) -> int:
    """How many runs of retention a manifest or a log has been through."""
    return max(version_of(table, RETENTION), 0)


def with_kept_keyframes(entries: Sequence[Entry], before: Sequence[Entry]) -> list[Entry]:
    """Entries that are to follow others, none of them reading from a keyframe that retention has dropped.

    Whoever captured them may have looked at the log before retention did.

    Args:
        entries: the new ones, ascending.
        before: those that they follow.
    """
    captured = {entry.epoch for entry in before if entry.captured}
    newest = max((entry.epoch for entry in before), default=-1)
    last = next((entry for entry in reversed(before) if entry.captured), None)

    def kept(table: str, facts: TableFacts) -> TableFacts:
        known = last.tables.get(table) if last else None
        if known is None or facts.keyframe in captured or (facts.keyframe is not None and facts.keyframe > newest):
            return facts
        return replace(facts, keyframe=known.keyframe)

    return [replace(one, tables={name: kept(name, facts) for name, facts in one.tables.items()}) for one in entries]


def read_entries(version: TableVersion, first: int = 0) -> list[Entry]:
    """The entries of a version of the manifest from an epoch on, ascending."""
    generation = generation_of(version.table)
    found = version.read("epoch", first).to_pylist()
    return sorted((_entry(row, generation) for row in found), key=lambda one: one.epoch)


def as_rows(entries: Sequence[Entry]) -> pa.Table:
    """Entries as rows of the manifest."""
    return pa.Table.from_pylist([_row(one) for one in entries], schema=MANIFEST)


def _row(entry: Entry) -> dict[str, Any]:
    facts = entry.tables.items()
    row = {name: getattr(entry, name) for name in MANIFEST.names[:8]}
    return row | {
        "rows": [(table, one.rows) for table, one in facts],
        "changes": [(table, one.changes) for table, one in facts],
        "keyframes": [(table, one.keyframe) for table, one in facts],
        "sources": entry.sources,
        "began_at": entry.began_at,
    }


def _entry(row: dict[str, Any], generation: int) -> Entry:
    rows, changes, keyframes = (dict(row[name] or []) for name in MANIFEST.names[8:11])
    facts = {sys.intern(table): TableFacts(rows[table], changes[table], keyframes[table], generation) for table in rows}
    named = {name: sys.intern(row[name]) for name in ("status", "run_id") if row[name] is not None}
    return Entry(
        **{name: row[name] for name in MANIFEST.names[:8]} | named,
        tables=facts,
        sources=row.get("sources"),
        began_at=row.get("began_at"),
        generation=generation,
    )
