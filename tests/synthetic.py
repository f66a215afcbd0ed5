"""Stores written without Spark from dicts, with which tests compare what they read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamstate.snapshots.store.changelog import DELETE, KEYFRAME, PUT, Operator, log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.delta.maintenance import merge_small_files
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.merging import merge_log
from streamstate.snapshots.store.registry import register

LOG = pa.schema(
    [
        ("_epoch", pa.int64()),
        ("_change", pa.string()),
        ("_partition", pa.int32()),
        ("key", pa.string()),
        ("value", pa.int64()),
    ]
)
START = datetime(2026, 1, 1, tzinfo=UTC)

State = dict[str, int]


def write(
    path: Path,
    states: list[State | None],
    *,
    keyframe_every: int = 0,
    commit_every: int = 1,
    tidy_every: int | None = None,
    query: str = "q",
    facts: Sequence[dict[str, Any]] = (),
    operator: str | None = None,
    value: str = "value",
) -> None:
    """Write a store with one query, from its state at each epoch.

    Args:
        path: the store.
        states: the full state at each epoch, starting with 0; None is a gap.
        keyframe_every: the interval of keyframes, in epochs; gaps need further keyframes.
        commit_every: the number of epochs per commit.
        tidy_every: the interval, in epochs, at which small files are merged, as by a live capture.
        query: the query's name.
        facts: further manifest fields of each epoch, such as ``{"offsets": …, "sources": …, "watermark": …}``.
        operator: Spark's name of the operator.
        value: the name of the value column.
    """
    layout = Layout.at(path)
    register(layout, query, query if query != "q" else "id", "checkpoint")
    schema = LOG.set(4, LOG.field(4).with_name(value))
    written_by = None if operator is None else Operator(operator)
    open_or_create(layout.changelog(query, "op0"), log_schema(schema, ["key"], written_by), "log")
    manifest = Manifest(layout, query)
    log = Handle(layout.changelog(query, "op0"))
    for start in range(0, len(states), commit_every):
        epochs = range(start, min(start + commit_every, len(states)))
        rows, entries = [], []
        for epoch in epochs:
            added, entry = _epoch(states, epoch, keyframe_every)
            rows += added
            entries.append(replace(entry, **facts[epoch]) if facts and entry.captured else entry)
        table = pa.Table.from_pylist(rows, schema=LOG).rename_columns(schema.names)
        append_once(log, f"{query}/op0", epochs[-1], partial(_all_of, table))
        manifest.append(entries, f"{query}/_epochs")
        if not manifest.entries:
            manifest.refresh()  # otherwise every epoch would open the table again
        if tidy_every and epochs[-1] % tidy_every == 0:
            merge_log(layout.changelog(query, "op0"))
            merge_small_files(layout.manifest(query), "epoch")


_WRITTEN: dict[str, tempfile.TemporaryDirectory[str]] = {}


def copy_of(path: Path, states: list[State | None], **options: Any) -> None:
    """As :func:`write`, for a fixture: in each process the store is written once, and then copied."""
    key = repr((states, options))
    if key not in _WRITTEN:
        _WRITTEN[key] = tempfile.TemporaryDirectory()
        write(Path(_WRITTEN[key].name), states, **options)
    shutil.copytree(_WRITTEN[key].name, path, dirs_exist_ok=True)


def _all_of(table: pa.Table, _stands: int) -> pa.Table:
    return table


def _epoch(states: list[State | None], epoch: int, keyframe_every: int) -> tuple[list[dict[str, Any]], Entry]:
    state, before = states[epoch], states[epoch - 1] if epoch else {}
    if state is None:
        return [], Entry.gap(epoch)
    changes = [] if before is None else _changes(before, state, epoch)
    after_gap = before is None
    keyframe = after_gap or bool(keyframe_every and epoch and epoch % keyframe_every == 0)
    rows = changes + ([_row(epoch, KEYFRAME, key, value) for key, value in state.items()] if keyframe else [])
    newest = (
        epoch if keyframe else next((e for e in range(epoch, -1, -1) if _is_keyframe(states, e, keyframe_every)), None)
    )
    # As after a capture, which counts only what it has read as a whole.
    facts = {"op0": TableEntry(len(state) if keyframe or not epoch else None, len(changes), newest)}
    return rows, Entry(epoch, CAPTURED, committed_at=START + timedelta(minutes=epoch), offsets="[0]", tables=facts)


def _is_keyframe(states: list[State | None], epoch: int, every: int) -> bool:
    after_gap = epoch > 0 and states[epoch - 1] is None
    return states[epoch] is not None and (after_gap or bool(every and epoch and epoch % every == 0))


def _changes(before: State, state: State, epoch: int) -> list[dict[str, Any]]:
    puts = [_row(epoch, PUT, key, value) for key, value in state.items() if before.get(key) != value]
    return puts + [_row(epoch, DELETE, key, None) for key in before if key not in state]


def _row(epoch: int, change: str, key: str, value: int | None) -> dict[str, Any]:
    return {"_epoch": epoch, "_change": change, "_partition": 0, "key": key, "value": value}
