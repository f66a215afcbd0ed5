"""The manifest has the processing time of each epoch; older manifests get the column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from synthetic import START

from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.entries import Entry, as_rows
from streamstate.snapshots.store.layout import CAPTURED, MANIFEST, Layout
from streamstate.snapshots.store.manifest import Manifest


def test_a_manifest_without_the_processing_time(tmp_path: Path) -> None:
    """The column is added with the next epoch, and is null for earlier epochs."""
    layout = Layout.at(tmp_path)
    older = pa.schema([field for field in MANIFEST if field.name not in {"began_at", "time_source"}])
    open_or_create(layout.manifest("q"), older, "older manifest")
    manifest = Manifest(layout, "q")
    manifest.refresh()
    earlier = as_rows([Entry(0, CAPTURED, committed_at=START)]).select(older.names)
    append_once(layout.manifest("q"), "q/_epochs", 0, lambda _stands: earlier)
    manifest.refresh()
    manifest.append([Entry(1, CAPTURED, committed_at=START, began_at=START, time_source="commit")], "q/_epochs")
    manifest.refresh()
    assert [entry.began_at for entry in manifest.entries] == [None, START]
    assert [entry.time_source for entry in manifest.entries] == [None, "commit"]
    assert [entry.committed_at for entry in manifest.entries] == [START, START]


def test_a_new_manifest_keeps_the_processing_time(tmp_path: Path) -> None:
    """Causes of timers and expired TTLs are derived from it."""
    manifest = Manifest(Layout.at(tmp_path), "q")
    manifest.append([Entry(0, CAPTURED, began_at=START)], "q/_epochs")
    manifest.refresh()
    assert manifest.entries[0].began_at == START
