"""The captured epochs of a query in a store, and findings on the store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamstate.operations.checkup.report import CheckupFinding, StoreState
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import check_store


def store_state(layout: Layout, query_id: str, committed: Sequence[int]) -> StoreState:
    """Return the captured epochs of a query in a store.

    Raises:
        StoreError: it cannot be reached or read, or is no place for a store.
    """
    known = check_store(layout)
    name = next((query.name for query in known.values() if query.query_id == query_id), None)
    if name is None:
        return StoreState(layout.root, None, behind=len(committed))
    manifest = Manifest(layout, name)
    manifest.refresh()
    newest = manifest.newest.epoch if manifest.newest else None
    last = manifest.entries[-1].epoch if manifest.entries else -1
    behind = sum(epoch > last for epoch in committed)
    # A query whose first epochs are purged before its first capture has that gap, too; it is in the past.
    lost = max(committed[0] - last - 1, 0) if committed and manifest.entries else 0
    return StoreState(layout.root, name, newest, behind, lost)


def store_findings(state: StoreState) -> Iterator[CheckupFinding]:
    """Yield findings on the store."""
    if state.lost:
        yield CheckupFinding(
            "warning", f"{state.lost} epochs were purged before they were captured: they will be a gap."
        )
    folder = local_path(state.path)
    if folder is None:
        yield CheckupFinding("note", "The store was read; whether it can be written was not tried.")
    elif not os.access(_existing(folder), os.W_OK | os.X_OK):
        yield CheckupFinding("problem", f"{_existing(folder)} cannot be written by this user.")


def _existing(folder: Path) -> Path:
    """Return the folder, or the closest folder above it that exists."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())
