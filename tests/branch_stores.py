"""Stores with queries and forks, written without Spark from the rows of each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamstate.snapshots.store.changelog import DELETE, KEYFRAME, PUT, Operator, log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, FORMAT, QUERIES, Layout
from streamstate.snapshots.store.manifest import Manifest

START = datetime(2026, 1, 1, tzinfo=UTC)
LOG = [("_epoch", pa.int64()), ("_change", pa.string()), ("_partition", pa.int32())]

Row = dict[str, Any]
Rows = Sequence[Row]


class Branch:
    """One query of a store, written epoch by epoch.

    Args:
        path: the store.
        name: the query's name.
        tables: each state table's columns and types, and the number of leading key columns.
        parent: the name of the query it was forked from, and the last shared epoch.
        operator: Spark's name for the operator that owns the tables.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        tables: Mapping[str, tuple[Mapping[str, pa.DataType], int]],
        parent: tuple[str, int] | None = None,
        operator: str = "stateStoreSave",
    ) -> None:
        self.name, self._layout = name, Layout.at(path)
        self._keys = {table: [*columns][:keys] for table, (columns, keys) in tables.items()}
        self._before: dict[str, dict[str, Row]] | None = None
        register(path, name, parent)
        for table, (columns, keys) in tables.items():
            schema = pa.schema([*LOG, *columns.items()])
            marked = log_schema(schema, [*columns][:keys], Operator(operator))
            open_or_create(self._layout.changelog(name, table), marked, "change log")

    def add(self, epoch: int, states: Mapping[str, Rows] | None, *, partitions: int = 1) -> None:
        """Add an epoch with its full state by table; ``None`` is a gap. A fork's first epoch is a keyframe."""
        if states is None:
            Manifest(self._layout, self.name).append([Entry.gap(epoch)], self.name)
            self._before = None
            return
        state = {
            table: {repr([row[k] for k in self._keys[table]]): row for row in rows} for table, rows in states.items()
        }
        is_keyframe = self._before is None and epoch > 0
        facts = {}
        for table, rows in state.items():
            before = {} if self._before is None else self._before.get(table, {})
            changes = list(_changes(before, rows, self._keys[table], is_keyframe=is_keyframe))
            self._append(table, epoch, [
                {"_epoch": epoch, "_change": change, "_partition": index % partitions, **row}
                for index, (change, row) in enumerate(changes)
            ])  # fmt: skip
            keyframe = epoch if is_keyframe else self._newest_keyframe(table)
            facts[table] = TableEntry(len(rows), 0 if is_keyframe else len(changes), keyframe)
        moment = START + timedelta(minutes=epoch)
        entry = Entry(epoch, CAPTURED, committed_at=moment, tables=facts)
        Manifest(self._layout, self.name).append([entry], self.name)
        self._before = state

    def _newest_keyframe(self, table: str) -> int | None:
        manifest = Manifest(self._layout, self.name)
        manifest.refresh()
        newest = manifest.newest
        return newest.tables[table].keyframe if newest and table in newest.tables else None

    def _append(self, table: str, epoch: int, rows: list[Row]) -> None:
        uri = self._layout.changelog(self.name, table)
        schema = pa.schema(open_or_create(uri, pa.schema([]), "").schema().to_arrow())
        append_once(uri, f"{self.name}/{table}", epoch, lambda _: pa.Table.from_pylist(rows, schema=schema))


def _changes(
    before: Mapping[str, Row], after: Mapping[str, Row], keys: Sequence[str], *, is_keyframe: bool
) -> Iterator[Any]:
    if is_keyframe:
        yield from ((KEYFRAME, row) for row in after.values())
        return
    yield from ((PUT, row) for key, row in after.items() if repr(before.get(key)) != repr(row))
    yield from ((DELETE, {key: row[key] for key in keys}) for name, row in before.items() if name not in after)


def register(path: Path, name: str, parent: tuple[str, int] | None = None) -> None:
    """Register a query in the store's table of queries, as capturing a fork does."""
    layout = Layout.at(path)
    open_or_create(layout.queries, QUERIES, "queries")
    row = {"name": name, "query_id": f"id of {name}", "checkpoint": f"checkpoint of {name}", "format": FORMAT}
    if parent is not None:
        row |= {"parent": f"id of {parent[0]}", "parent_epoch": parent[1]}
    append_once(layout.queries, f"name/{name}", 1, lambda _: pa.Table.from_pylist([row], schema=QUERIES))


COUNTS = {"op0": ({"key": pa.string(), "count": pa.int64()}, 1)}
"""The state table of a query that counts by key."""


def counted(states: Mapping[str, int]) -> dict[str, Rows]:
    """The state of a query that counts by key."""
    return {"op0": [{"key": key, "count": count} for key, count in states.items()]}


def counting(
    path: Path, name: str, epochs: Mapping[int, Mapping[str, int] | None], parent: tuple[str, int] | None = None
) -> Branch:
    """Write a query that counts by key, with the given state at each epoch; None is a gap."""
    branch = Branch(path, name, COUNTS, parent)
    for epoch, state in epochs.items():
        branch.add(epoch, None if state is None else counted(state))
    return branch
