"""A store of a long history, written without Spark, with the files that a follower would have left."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from benchmarks.large_stores import QUERY, TABLE, LargeState
from streamstate.snapshots.store.delta import Place
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.log_checks import seal_missing, shorten
from streamstate.snapshots.store.delta.maintenance import merge_small_files
from streamstate.snapshots.store.delta.place import LOG
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.merging import merge_log

_TIDIED = 10
# From one epoch to the next.
_SECONDS = 10


def write_long_store(path: Path, epochs: int, keys: int, changes: int) -> None:
    """Write a store in which each epoch changes some keys, chosen at random; nothing if it exists."""
    if path.exists():
        return
    layout = Layout.at(path)
    load = LargeState(path, keys, changes, columns=3)
    for epoch in range(epochs):
        load.add()
        if epoch % _TIDIED == 0:
            merge_log(layout.changelog(QUERY, TABLE))
            merge_small_files(layout.manifest(QUERY), "epoch")
    _written(path).write_text(json.dumps(_added(path)), encoding="utf-8")
    for place in (layout.changelog(QUERY, TABLE), layout.manifest(QUERY)):
        _age(place, epochs)


def bytes_written(path: Path) -> Mapping[str, int]:
    """Return the bytes of all files written to the changelog, and of those that were captured."""
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
    """Set back the times of the log's files and remove what a sweep would have removed after two hours."""
    required(place).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    required(place).create_checkpoint()
    seal_missing(place)
    newest = required(place).version()
    seconds = _SECONDS * epochs / newest
    for entry in [entry for entry in (Path(place.uri) / LOG).iterdir() if entry.name.strip(".")[:20].isdigit()]:
        written = time.time() - (newest - int(entry.name.strip(".")[:20])) * seconds
        os.utime(entry, (written, written))
    shorten(place, timedelta(hours=2), newest)
