"""The versions of a variable as rows of the store: a state table ``value`` whose epochs are the versions.

So whatever reads a query's state at an epoch reads a variable at a version: SQL, differences, histories, retention,
exports. The versions are written here from the transport's log, in order and each once, some time after they came
about; only then may the transport forget them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.checkpoint.bindings import relation_of
from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, NO_KEY, PARTITION
from streamstate.snapshots.store.changelog import DELETE, KEYFRAME, PUT, Operator, log_schema, state_at
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.entries import Entry as ManifestEntry
from streamstate.snapshots.store.entries import TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.variables.declaration import Declaration
from streamstate.variables.version_bytes import VersionEntry
from streamstate.variables.version_log import VersionLog

VALUE = "value"
"""The state table, and its column."""
KEY = "key"
_STATE = "state_"
"""The prefix of columns with a merge's state, where that is not the value itself."""

# How many versions stay in the transport after they were recorded: more than epochs are under way.
_STAY = 128
# So many versions are written at once.
_AT_ONCE = 500
_KEYFRAME_EVERY = 64


class VersionRecorder:
    """Writes a variable's versions to the store."""

    def __init__(self, layout: Layout, log: VersionLog) -> None:
        self._layout = layout
        self._log = log
        self._declaration = log.declaration
        self._query = relation_of(log.name)
        self._manifest = Manifest(layout, self._query)
        self._place = layout.changelog(self._query, VALUE)
        self._schema = table_schema(self._declaration)
        self._made = False
        self._dropped = -1

    def recorded(self) -> int:
        """Return the newest version in the store; −1 if it has none."""
        self._manifest.refresh()
        newest = self._manifest.newest
        return -1 if newest is None else newest.epoch

    def record(self) -> int:
        """Write the versions that the store lacks, and return the newest.

        Raises:
            StoreError: they cannot be written; the transport keeps them.
            VariableError: the transport lost versions that the store lacks.
        """
        newest, head = self.recorded(), self._log.head()
        while newest < head:
            upto = min(head, newest + _AT_ONCE)
            self._write([self._log.entry(number) for number in range(newest + 1, upto + 1)])
            newest = upto
        if head - _STAY > self._dropped + _STAY:
            self._dropped = head - _STAY
            self._log.drop(self._dropped)
        return newest

    def _write(self, entries: Sequence[VersionEntry]) -> None:
        if not self._made:
            open_or_create(self._place, self._schema, f"streamstate: versions of {self._log.name}")
            self._made = True
        newest = self._manifest.newest
        before = None if newest is None else newest.tables.get(VALUE)
        keyframe = None if before is None else before.keyframe
        since = 0 if before is None or newest is None else newest.epoch - (keyframe if keyframe is not None else 0)
        rows: list[dict[str, Any]] = []
        manifest = []
        for entry in entries:
            own = self._rows(entry, before)
            rows += own
            live = 1
            if self._declaration.type.is_map:
                live = len(self._log.state(entry.number) or {})
            since += 1
            if self._due(since, live, len(own)):
                rows += self._keyframe(entry)
                keyframe, since = entry.number, 0
            before = TableEntry(live, len(own), keyframe)
            manifest.append(_manifest_entry(entry, before))
        table = pa.Table.from_pylist(rows, schema=self._schema)
        last, application = entries[-1].number, f"variable/{self._log.name}"
        append_once(
            self._place,
            f"{application}/{VALUE}",
            last,
            lambda written: table.filter(pc.greater(table[EPOCH], written)),
        )
        self._manifest.append(manifest, f"{application}/_epochs")

    def _due(self, since: int, live: int, changes: int) -> bool:
        """Return whether to write a version whole, so that reading others need not go back far."""
        return since >= _KEYFRAME_EVERY if not self._declaration.type.is_map else since * max(changes, 1) > 2 * live

    def _rows(self, entry: VersionEntry, before: TableEntry | None) -> list[dict[str, Any]]:
        """Return the rows of a version: of a map, only of the entries that changed."""
        marks = {EPOCH: entry.number, PARTITION: 0}
        if not self._declaration.type.is_map:
            return [marks | {CHANGE: PUT} | self._columns(self._log.state(entry.number))]
        changed = entry.change
        if changed is None or before is None:
            changed = entry.state if entry.whole else {}
        put = [marks | {CHANGE: PUT, KEY: key, VALUE: value} for key, value in (changed or {}).items()]
        return put + [marks | {CHANGE: DELETE, KEY: key} for key in entry.removed]

    def _keyframe(self, entry: VersionEntry) -> list[dict[str, Any]]:
        marks = {EPOCH: entry.number, PARTITION: 0, CHANGE: KEYFRAME}
        state = self._log.state(entry.number)
        if not self._declaration.type.is_map:
            return [marks | self._columns(state)]
        return [marks | {KEY: key, VALUE: value} for key, value in (state or {}).items()]

    def _columns(self, state: Any) -> dict[str, Any]:
        return {NO_KEY: 0} | value_row(self._declaration, state)


def value_row(declaration: Declaration, state: Any) -> dict[str, Any]:
    """Return the columns of a variable that is no map: its value, and its merge's state if that is not the value."""
    merging = declaration.merging
    value = merging.value(state)
    row = {VALUE: list(value) if declaration.type.is_set and value is not None else value}
    return row if merging.state == declaration.type.arrow else row | {f"{_STATE}{VALUE}": state}


def table_schema(declaration: Declaration) -> pa.Schema:
    """Return the columns of a variable's table."""
    marks = [(EPOCH, pa.int64()), (CHANGE, pa.string()), (PARTITION, pa.int32())]
    arrow = declaration.type.arrow
    if declaration.type.is_map:
        columns, keys = [(KEY, arrow.key_type), (VALUE, arrow.item_type)], [KEY]
    else:
        columns, keys = [(NO_KEY, pa.int64()), (VALUE, arrow)], [NO_KEY]
        if declaration.merging.state != arrow:
            columns.append((f"{_STATE}{VALUE}", declaration.merging.state))
    return log_schema(pa.schema([*marks, *columns]), keys, Operator("sharedVariable"))


def recorded_state(declaration: Declaration, number: int) -> Any:
    """Return the state of a version, from the store.

    Raises:
        VariableError: the store does not have it.
    """
    from streamstate.errors import VariableError

    layout = Layout.at(declaration.store)
    query = relation_of(declaration.name)
    manifest = Manifest(layout, query)
    manifest.refresh()
    entry = manifest.entries.of(number)
    if entry is None:
        raise VariableError(
            f"Version {number} of {declaration.name} is gone: neither its transport nor {declaration.store} has it.\n"
            "Was the transport emptied, or did retention drop the version? Nothing was read in its place."
        )
    schema = table_schema(declaration)
    names = [name for name in schema.names if name not in (EPOCH, CHANGE, PARTITION)]
    keys = [KEY if declaration.type.is_map else NO_KEY]
    rows = state_at(layout.changelog(query, VALUE), keys, number, entry.tables[VALUE].keyframe, names).to_pylist()
    if declaration.type.is_map:
        return {row[KEY]: row[VALUE] for row in rows}
    return rows[0].get(f"{_STATE}{VALUE}", rows[0][VALUE]) if rows else None


def _manifest_entry(entry: VersionEntry, table: TableEntry) -> ManifestEntry:
    return ManifestEntry(
        entry.number,
        CAPTURED,
        run_id=f"{entry.kind} {entry.by}".strip(),
        committed_at=entry.at,
        offsets=json.dumps({"merged": dict(entry.merged), "epoch": entry.epoch}),
        input_rows=entry.contributions,
        tables={VALUE: table},
    )
