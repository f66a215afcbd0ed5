"""A store of a long history, written without Spark: what a follower would have written, at the speed of the disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamstate.snapshots.store.changelog import KEYFRAME, PUT, log_schema
from streamstate.snapshots.store.delta import Place, append_once, open_or_create
from streamstate.snapshots.store.delta.commits import Handle, required
from streamstate.snapshots.store.delta.log_checks import seal_missing, shorten
from streamstate.snapshots.store.delta.maintenance import merge_small_files
from streamstate.snapshots.store.delta.place import LOG
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.merging import merge_log
from streamstate.snapshots.store.registry import register

QUERY, TABLE = "q", "op0"
_SCHEMA = pa.schema(
    [
        ("_epoch", pa.int64()),
        ("_change", pa.string()),
        ("_partition", pa.int32()),
        ("key", pa.string()),
        ("count", pa.int64()),
        ("sum", pa.float64()),
    ]
)
_START = datetime(2026, 1, 1, tzinfo=UTC)
_TIDIED = 10
# From one epoch to the next.
_SECONDS = 10


def write_long_store(path: Path, epochs: int, keys: int, changes: int, keyframe_every: int) -> None:
    """Write a store in which each epoch changes some keys, chosen at random; nothing if it exists.

    The count of a key is the number of its changes; its sum is its count times the number of the epoch.
    """
    if path.exists():
        return
    layout = Layout.at(path)
    register(layout, QUERY, "id", "checkpoint")
    open_or_create(layout.changelog(QUERY, TABLE), log_schema(_SCHEMA, ["key"]), "log")
    log, manifest = Handle(layout.changelog(QUERY, TABLE)), Manifest(layout, QUERY)
    keyframe = None
    for epoch, put, state in _epochs(epochs, keys, changes, keyframe_every):
        append_once(log, f"{QUERY}/{TABLE}", epoch, partial(_all_of, put))
        facts = {TABLE: TableEntry(None, put.num_rows, keyframe)}
        times = _START + timedelta(seconds=_SECONDS * epoch)
        manifest.append([Entry(epoch, CAPTURED, committed_at=times, offsets="[0]", tables=facts)], f"{QUERY}/_epochs")
        if not manifest.entries:
            manifest.refresh()
        if state is not None:
            append_once(log, f"{QUERY}/{TABLE}/keyframes", epoch, partial(_all_of, state))
            keyframe = epoch
        if epoch % _TIDIED == 0:
            merge_log(layout.changelog(QUERY, TABLE))
            merge_small_files(layout.manifest(QUERY), "epoch")
    _written(path).write_text(json.dumps(_added(path)), encoding="utf-8")
    for place in (layout.changelog(QUERY, TABLE), layout.manifest(QUERY)):
        _age(place, epochs)


def bytes_written(path: Path) -> Mapping[str, int]:
    """The bytes of all files that were written to the changelog, and of those among them that were captured."""
    found: Mapping[str, int] = json.loads(_written(path).read_text(encoding="utf-8"))
    return found


def _written(path: Path) -> Path:
    return path.with_name(f"{path.name}.written.json")


def _added(path: Path) -> Mapping[str, int]:
    written = captured = 0
    for entry in (path / QUERY / TABLE / LOG).glob("*.json"):
        for line in entry.read_text(encoding="utf-8").splitlines():
            added = json.loads(line).get("add")
            if added is not None:
                written += added["size"]
                captured += added["size"] if added["dataChange"] else 0
    return {"all": written, "captured": captured}


def _age(place: Place, epochs: int) -> None:
    """As if the last two hours had lasted two hours: the log no longer has what a sweep would have removed."""
    required(place).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    required(place).create_checkpoint()
    seal_missing(place)
    newest = required(place).version()
    seconds = _SECONDS * epochs / newest
    for entry in [entry for entry in (Path(place.uri) / LOG).iterdir() if entry.name.strip(".")[:20].isdigit()]:
        written = time.time() - (newest - int(entry.name.strip(".")[:20])) * seconds
        os.utime(entry, (written, written))
    shorten(place, timedelta(hours=2), newest)


def key_name(number: int) -> str:
    """The key with a number."""
    return f"key{number:08}"


def _all_of(rows: pa.Table, _stands: int) -> pa.Table:
    return rows


def _epochs(
    epochs: int, keys: int, changes: int, keyframe_every: int
) -> Iterator[tuple[int, pa.Table, pa.Table | None]]:
    """Each epoch's changes, and the keyframe after it if one is due."""
    random = np.random.default_rng(0)
    names = pa.array([key_name(number) for number in range(keys)])
    counts, sums = np.zeros(keys, np.int64), np.zeros(keys, np.float64)
    for epoch in range(epochs):
        chosen = random.permutation(keys)[:changes] if epoch else np.arange(keys)
        counts[chosen] += 1
        sums[chosen] = counts[chosen] * float(epoch)
        put = _rows(epoch, PUT, names.take(pa.array(chosen)), counts[chosen], sums[chosen])
        due = epoch and epoch % keyframe_every == 0
        yield epoch, put, _rows(epoch, KEYFRAME, names, counts, sums) if due else None


def _rows(epoch: int, change: str, names: pa.Array, counts: np.ndarray, sums: np.ndarray) -> pa.Table:
    size = len(names)
    fixed = [
        pa.repeat(pa.scalar(epoch, pa.int64()), size),
        pa.repeat(change, size),
        pa.array(np.arange(size) % 2, pa.int32()),
    ]
    return pa.table([*fixed, names, pa.array(counts), pa.array(sums)], schema=_SCHEMA)
