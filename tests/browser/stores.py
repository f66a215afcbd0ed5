"""Stores for the views, written with the store's own writer from plain dicts, without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamstate.snapshots.store.changelog import DELETE, KEYFRAME, PUT, log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LOG = [("_epoch", pa.int64()), ("_change", pa.string()), ("_partition", pa.int32())]

Key = tuple[Any, ...]
State = dict[Key, tuple[Any, ...]]


class Written:
    """A query of a store, written epoch by epoch.

    Args:
        path: path of the store.
        name: name of the query.
        tables: for each state table, its columns with their types and the number of key columns.
    """

    def __init__(self, path: Path, name: str, tables: Mapping[str, tuple[Mapping[str, pa.DataType], int]]) -> None:
        self.name = name
        self.tables = tables
        self._layout = Layout.at(path)
        self._tables = {table: ([*columns], keys) for table, (columns, keys) in tables.items()}
        self._states: list[dict[str, State] | None] = []
        self._manifest = Manifest(self._layout, name)
        self._logs: dict[str, tuple[Handle, pa.Schema]] = {}
        register(self._layout, name, f"id of {name}", f"checkpoint of {name}")
        for table, (columns, keys) in tables.items():
            schema = log_schema(pa.schema([*LOG, *columns.items()]), [*columns][:keys])
            log = self._layout.changelog(name, table)
            whole = pa.schema(open_or_create(log, schema, "change log").schema().to_arrow())
            self._logs[table] = (Handle(log), whole)

    def add(self, states: Mapping[str, State] | None) -> None:
        """Write the next epoch, given its whole state by table; ``None`` is a gap."""
        epoch = len(self._states)
        before = self._states[-1] if epoch else {table: {} for table in self._tables}
        self._states.append(None if states is None else {table: dict(state) for table, state in states.items()})
        if states is None:
            self._show(Entry.gap(epoch))
            return
        facts = {table: self._log(table, epoch, before, state) for table, state in states.items()}
        moment = START + dt.timedelta(minutes=epoch)
        entry = Entry(epoch, CAPTURED, committed_at=moment, watermark=moment - dt.timedelta(hours=1), tables=facts)
        self._show(entry)

    def newest(self) -> dict[str, State]:
        """The newest epoch's state by table."""
        newest = self._states[-1]
        assert newest is not None
        return newest

    def _show(self, entry: Entry) -> None:
        self._manifest.append([entry], self.name)
        if not self._manifest.entries:
            self._manifest.refresh()  # caches the table, so that it is not opened again at every epoch

    def _log(self, table: str, epoch: int, before: Mapping[str, State] | None, state: State) -> TableEntry:
        columns, keys = self._tables[table]
        names = [name for name, _ in LOG] + columns
        changes = list(_changes(None if before is None else before[table], state, len(columns) - keys))
        rows = [dict(zip(names, (epoch, change, 0, *key, *values), strict=True)) for change, key, values in changes]
        log, schema = self._logs[table]
        append_once(log, f"{self.name}/{table}", epoch, lambda _: pa.Table.from_pylist(rows, schema=schema))
        return TableEntry(len(state), 0 if before is None else len(rows), epoch if before is None else None)


def _changes(before: State | None, state: State, values: int) -> Iterator[tuple[str, Key, Sequence[Any]]]:
    if before is None:
        yield from ((KEYFRAME, key, row) for key, row in state.items())
        return
    yield from ((PUT, key, row) for key, row in state.items() if before.get(key) != row)
    yield from ((DELETE, key, [None] * values) for key in before if key not in state)


def flights(path: Path, epochs: int = 7, gap: int = 4) -> Written:
    """Delays by carrier and origin, 33 keys at the end: each epoch changes some keys, adds one and removes one."""
    columns = {"carrier": pa.string(), "origin": pa.string(), "flights": pa.int64(), "mean": pa.float64()}
    written = Written(path, "delays", {"op0": (columns, 2)})
    state: State = {(f"C{n:02}", origin): (n, n / 3) for n in range(9) for origin in ("EWR", "JFK", "LGA")}
    for epoch in range(epochs):
        more_flights(state, epoch)
        written.add(None if epoch == gap else {"op0": state})
    return written


def more_flights(state: State, epoch: int) -> None:
    """Apply the changes of one more epoch to the state of :func:`flights`."""
    for number, (key, (count, mean)) in enumerate(list(state.items())):
        if number % 7 == epoch % 7:
            state[key] = (count + 10, (mean or 0.0) + 0.5)
    state["N", f"X{epoch:02}"] = (epoch, None)
    state.pop((f"C{epoch:02}", "LGA"), None)


HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"


def hostile(path: Path) -> Written:
    """Two tables whose names and values are untrusted text."""
    values = {
        "text": pa.string(),
        HOSTILE: pa.string(),
        "long": pa.string(),
        "raw": pa.binary(),
        "nested": pa.struct([("legs", pa.list_(pa.string())), ("at", pa.timestamp("us", "UTC"))]),
        "visits": pa.map_(pa.string(), pa.int64()),
        "window": pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))]),
    }
    written = Written(
        path,
        "hostile",
        {"op0": ({"key": pa.string(), **values}, 1), "op1_left": ({"k": pa.int64(), "v": pa.string()}, 1)},
    )
    window = {"start": START, "end": START + dt.timedelta(hours=1)}
    odd = {"legs": [HOSTILE, "JFK"], "at": START}
    rows: State = {
        (HOSTILE,): (HOSTILE, HOSTILE, "x" * 5_000, b"\x00\xff", odd, [("EWR", 2)], window),
        ("nothing",): (None,) * 7,
        ("",): ("", "two\nlines\t\u202e", "", b"", {"legs": [], "at": None}, [], None),
    }
    numbers: State = {(n,): (f"v{n}",) for n in range(30)}
    written.add({"op0": rows, "op1_left": numbers})
    written.add(
        {"op0": rows | {("new",): rows[HOSTILE,]}, "op1_left": {key: numbers[key] for key in numbers if key[0] % 2}}
    )
    return written
