"""A manifest from before its newest column goes on as it is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from synthetic import START

from streamstate.snapshots.delta import open_or_create, open_table
from streamstate.snapshots.layout import CAPTURED, MANIFEST, Layout
from streamstate.snapshots.manifest import Entry, Manifest


def test_a_manifest_without_the_processing_time(tmp_path: Path) -> None:
    """Epochs are added with the columns that it has; what they lack is not known."""
    layout = Layout.at(tmp_path)
    older = pa.schema([one for one in MANIFEST if one.name != "began_at"])
    open_or_create(layout.manifest("q"), older, "from before")
    manifest = Manifest(layout, "q")
    manifest.refresh()
    manifest.append([Entry(0, CAPTURED, committed_at=START, began_at=START)], "q/_epochs")
    manifest.refresh()
    [entry] = manifest.entries
    assert (entry.committed_at, entry.began_at) == (START, None)
    table = open_table(layout.manifest("q"))
    assert table is not None
    assert [one.name for one in table.schema().fields] == older.names


def test_a_new_manifest_keeps_the_processing_time(tmp_path: Path) -> None:
    """Causes of timers and times to live rest on it."""
    manifest = Manifest(Layout.at(tmp_path), "q")
    manifest.append([Entry(0, CAPTURED, began_at=START)], "q/_epochs")
    manifest.refresh()
    assert manifest.entries[0].began_at == START
