"""A query that no recording has, written to a store without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from synthetic import START

from streamstate.reports import History, Store
from streamstate.snapshots.store.changelog import PUT, log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register


def write_query(
    store: Store,
    name: str,
    row: Mapping[str, Any],
    *,
    keys: Sequence[str],
    offsets: Any = ({"logOffset": 0},),
    sources: Any = None,
) -> History:
    """Write a query with one epoch and one row of state; return its history.

    Args:
        store: the store.
        name: the query's name.
        row: the row.
        keys: the names of its key columns.
        offsets: the end offset of each source, as Spark writes them: a list, or a dict by name.
        sources: further facts of each source, in the same form.
    """
    layout = store.layout
    register(layout, name, f"id of {name}", f"checkpoints/{name}")
    log = pa.Table.from_pylist([{"_epoch": 0, "_change": PUT, "_partition": 0, **row}])
    log = log.set_column(2, "_partition", log["_partition"].cast(pa.int32()))
    open_or_create(layout.changelog(name, "op0"), log_schema(log.schema, keys), "log")
    append_once(layout.changelog(name, "op0"), f"{name}/op0", 0, lambda _: log)
    epoch = Entry(
        0,
        CAPTURED,
        committed_at=START,
        offsets=json.dumps(offsets),
        sources=None if sources is None else json.dumps(sources),
        tables={"op0": TableEntry(1, 1, None)},
    )
    Manifest(layout, name).append([epoch], f"{name}/_epochs")
    return store[name]
