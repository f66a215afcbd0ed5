"""Dropping recorded input that neither a query nor its forks nor its kept epochs can still need.

An epoch's input is what lies between the offsets of the epoch before and its own. So input up to the end of the epoch
before the oldest kept one is not needed for any kept epoch. Forks and other readers are not asked where they are: each
pins the recording where it begins to read. Where any of this is not known, everything is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from streamstate.errors import CheckpointError
from streamstate.snapshots.capture.recording.recording import Recording, pin
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.store.delta import open_table
from streamstate.snapshots.store.delta.commits import remember_removed
from streamstate.snapshots.store.entries import Entry
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.registry import required_query


def trim_inputs(layout: Layout, name: str, before: Sequence[Entry], kept: Sequence[Entry], grace: timedelta) -> None:
    """Drop recorded input of a query that its kept epochs do not need.

    Args:
        layout: the store.
        name: the query.
        before: the rows of its manifest before epochs were dropped.
        kept: the rows afterwards.
        grace: how long dropped files stay on disk.
    """
    oldest = min((entry.epoch for entry in kept if entry.captured), default=0)
    if not oldest:
        return
    held = _offsets(layout, name, before, oldest - 1)
    ends: dict[str, int] = {}
    for offset in _recording_offsets(held):  # a stream that is read twice has two offsets
        identity, batch = str(offset["id"]), int(offset["batch"])
        ends[identity] = min(batch, ends.get(identity, batch))
    for source in range(len(held) if ends else 0):
        place = layout.recording(name, source)
        table = open_table(place)
        if table is not None and (end := ends.get(str(table.metadata().id))) is not None:
            remember_removed(place, grace)
            Recording(place).drop(end, grace)


def pin_inputs(offsets: Iterable[str | None]) -> None:
    """Keep the recorded input after some offsets for good, for a fork that will read on from there."""
    for offset in _recording_offsets(offsets):
        pin(str(offset["recording"]), int(offset["batch"]))


def _offsets(layout: Layout, name: str, entries: Sequence[Entry], epoch: int) -> list[Any]:
    """Return an epoch's end offsets of the sources, from the manifest or the checkpoint; empty if neither has them."""
    entry = next((entry for entry in entries if entry.epoch == epoch), None)
    if entry is not None and entry.offsets is not None:
        held = json.loads(entry.offsets)
        return list(held.values() if isinstance(held, dict) else held)
    try:
        planned = CheckpointFiles(required_query(layout, name).checkpoint).planned(epoch)
    except (CheckpointError, OSError):
        return []
    return [] if planned is None else list(planned.offsets)


def _recording_offsets(offsets: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the offsets of recordings among some offsets."""
    found = []
    for offset in offsets:
        try:
            value = json.loads(offset) if isinstance(offset, str) else offset
        except ValueError:  # some sources' offsets are no JSON
            continue
        if isinstance(value, dict) and {"recording", "id", "batch"} <= value.keys():
            found.append(value)
    return found
