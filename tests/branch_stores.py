"""Stores with queries and their forks, written without Spark from the rows that each epoch is to have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamstate.snapshots.change_log import DELETE, KEYFRAME, PUT, Operator, log_schema
from streamstate.snapshots.delta import append_once, open_or_create
from streamstate.snapshots.layout import CAPTURED, FORMAT, QUERIES, Layout
from streamstate.snapshots.manifest import Entry, Manifest, TableFacts

START = datetime(2026, 1, 1, tzinfo=UTC)
LOG = [("_epoch", pa.int64()), ("_change", pa.string()), ("_partition", pa.int32())]

Row = dict[str, Any]
Rows = Sequence[Row]


class Branch:
    """One query of a store, written epoch by epoch.

    Args:
        path: the store.
        name: the query.
        tables: for each state table its columns with their types, and how many of them are the key.
        parent: the query that it is forked from, with the last epoch that both share.
        operator: what Spark calls the operator behind the tables.
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
            open_or_create(self._layout.change_log(name, table), marked, "change log")

    def add(self, epoch: int, states: Mapping[str, Rows] | None, *, partitions: int = 1) -> None:
        """An epoch's whole state by table; ``None`` is a gap. The first of a fork is written as a keyframe."""
        if states is None:
            Manifest(self._layout, self.name).append([Entry.gap(epoch)], self.name)
            self._before = None
            return
        now = {
            table: {repr([row[k] for k in self._keys[table]]): row for row in rows} for table, rows in states.items()
        }
        anew = self._before is None and epoch > 0
        facts = {}
        for table, rows in now.items():
            before = {} if self._before is None else self._before.get(table, {})
            changes = list(_changes(before, rows, self._keys[table], anew=anew))
            self._append(table, epoch, [
                {"_epoch": epoch, "_change": change, "_partition": at % partitions, **row}
                for at, (change, row) in enumerate(changes)
            ])  # fmt: skip
            facts[table] = TableFacts(len(rows), 0 if anew else len(changes), self._keyframe(table, epoch, anew=anew))
        moment = START + timedelta(minutes=epoch)
        entry = Entry(epoch, CAPTURED, committed_at=moment, tables=facts)
        Manifest(self._layout, self.name).append([entry], self.name)
        self._before = now

    def _keyframe(self, table: str, epoch: int, *, anew: bool) -> int | None:
        if anew:
            return epoch
        manifest = Manifest(self._layout, self.name)
        manifest.refresh()
        newest = manifest.newest
        return newest.tables[table].keyframe if newest and table in newest.tables else None

    def _append(self, table: str, epoch: int, rows: list[Row]) -> None:
        uri = self._layout.change_log(self.name, table)
        schema = pa.schema(open_or_create(uri, pa.schema([]), "").schema().to_arrow())
        append_once(uri, f"{self.name}/{table}", epoch, lambda _: pa.Table.from_pylist(rows, schema=schema))


def _changes(before: Mapping[str, Row], now: Mapping[str, Row], keys: Sequence[str], *, anew: bool) -> Iterator[Any]:
    if anew:
        yield from ((KEYFRAME, row) for row in now.values())
        return
    yield from ((PUT, row) for key, row in now.items() if repr(before.get(key)) != repr(row))
    yield from ((DELETE, {key: row[key] for key in keys}) for name, row in before.items() if name not in now)


def register(path: Path, name: str, parent: tuple[str, int] | None = None) -> None:
    """Put a query into the store's table of queries, as the capture of a fork does."""
    layout = Layout.at(path)
    open_or_create(layout.queries, QUERIES, "queries")
    row = {"name": name, "query_id": f"id of {name}", "checkpoint": f"checkpoint of {name}", "format": FORMAT}
    if parent is not None:
        row |= {"parent": f"id of {parent[0]}", "parent_epoch": parent[1]}
    append_once(layout.queries, f"name/{name}", 1, lambda _: pa.Table.from_pylist([row], schema=QUERIES))


COUNTS = {"op0": ({"key": pa.string(), "count": pa.int64()}, 1)}
"""The tables of a query that counts by key."""


def counted(states: Mapping[str, int]) -> dict[str, Rows]:
    """The rows of such a query."""
    return {"op0": [{"key": key, "count": count} for key, count in states.items()]}


def counting(
    path: Path, name: str, epochs: Mapping[int, Mapping[str, int] | None], parent: tuple[str, int] | None = None
) -> Branch:
    """A query that counts by key, with the whole state at each epoch."""
    branch = Branch(path, name, COUNTS, parent)
    for epoch, state in epochs.items():
        branch.add(epoch, None if state is None else counted(state))
    return branch
