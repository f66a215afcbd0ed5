"""Large stores, written without Spark by the store's own writer."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamstate.snapshots.checkpoint.state_tables import EPOCH
from streamstate.snapshots.store.changelog import KEYFRAME, PUT, log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.delta.maintenance import merge_small_files
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register

QUERY, TABLE = "load", "op0"
_START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_SEED = 2013


@dataclass
class LargeState:
    """A query with one state table: the first epoch has every key, and each later one changes some.

    Args:
        path: the store.
        keys: how many keys the state has.
        changes: how many of them an epoch changes.
        columns: columns of the state, the key among them; the values are a count and then doubles.
    """

    path: Path
    keys: int
    changes: int
    columns: int = 4

    def __post_init__(self) -> None:
        """Register the query, without an epoch."""
        self._random = np.random.default_rng(_SEED)
        self._values = [f"value_{n:03}" for n in range(self.columns - 2)]
        self._layout = Layout.at(self.path)
        self._count = np.zeros(self.keys, np.int64)
        self._doubles = [np.zeros(self.keys) for _ in self._values]
        self._epoch, self._since = 0, 0
        self._keyframe: int | None = None
        doubles = [(name, pa.float64()) for name in self._values]
        names = [("_epoch", pa.int64()), ("_change", pa.string()), ("_partition", pa.int32())]
        rows = pa.schema([*names, ("key", pa.string()), ("count", pa.int64()), *doubles])
        self._schema = log_schema(rows, ["key"])
        register(self._layout, QUERY, "id of load", "checkpoint of load")
        open_or_create(self._layout.changelog(QUERY, TABLE), self._schema, "change log")
        self._manifest = Manifest(self._layout, QUERY)

    def add(self) -> None:
        """Write one more epoch, and a keyframe once the changes since the last outnumber the keys."""
        chosen = (
            np.sort(self._random.choice(self.keys, self.changes, replace=False))
            if self._epoch
            else np.arange(self.keys)
        )
        self._count[chosen] += 1
        for values in self._doubles:
            values[chosen] = self._random.random(len(chosen))
        parts = [self._rows(PUT, chosen)]
        self._since += len(chosen) if self._epoch else 0
        if self._since >= self.keys:
            self._keyframe, self._since = self._epoch, 0
            parts.append(self._rows(KEYFRAME, np.arange(self.keys)))
        rows = pa.concat_tables(parts)
        append_once(self._layout.changelog(QUERY, TABLE), f"{QUERY}/{TABLE}", self._epoch, partial(_all_of, rows))
        self._manifest.append([self._entry(len(chosen))], f"{QUERY}/_epochs")
        self._epoch += 1

    @property
    def epochs(self) -> int:
        """Number of epochs written."""
        return self._epoch

    def go_on(self, epochs: int) -> None:
        """Take over a store that another process began."""
        self._epoch = epochs
        self._count += 1
        self._manifest.refresh()

    def tidy(self) -> None:
        """Merge small files where that is due, as a follower does."""
        merge_small_files(self._layout.changelog(QUERY, TABLE), EPOCH)
        merge_small_files(self._layout.manifest(QUERY), "epoch")

    def _entry(self, changes: int) -> Entry:
        facts = {TABLE: TableEntry(self.keys, changes, self._keyframe)}
        moment = _START + dt.timedelta(seconds=self._epoch)
        return Entry(self._epoch, CAPTURED, "run", moment, watermark=moment, input_rows=changes, tables=facts)

    def _rows(self, change: str, chosen: np.ndarray) -> pa.Table:
        many = len(chosen)
        columns = [np.full(many, self._epoch), pa.array([change] * many), np.full(many, 0, np.int32)]
        columns += [np.char.add("key-", chosen.astype(str)), self._count[chosen]]
        columns += [values[chosen] for values in self._doubles]
        return pa.table([pa.array(column) for column in columns], schema=self._schema)


def made(path: Path, keys: int, changes: int, epochs: int, columns: int = 4) -> Path:
    """Write a store of some epochs, unless it exists, and return its path."""
    if not path.exists():
        load = LargeState(path, keys, changes, columns)
        for _ in range(epochs):
            load.add()
    return path


def _all_of(rows: pa.Table, _version: int) -> pa.Table:
    return rows
