"""A manifest that writes knows what it wrote, and reads what others did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import START

from streamstate.snapshots.store import manifest as module
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest


def entry(epoch: int) -> Entry:
    """An epoch with one table, whose rows have not been counted."""
    return Entry(epoch, CAPTURED, run_id="run", tables={"op0": TableEntry(None, epoch, None)})


def same(one: Sequence[Entry], other: Sequence[Entry]) -> bool:
    """Return whether entries are equal, including the fields that their comparison leaves out."""
    return [repr(entry) for entry in one] == [repr(entry) for entry in other]


def test_what_a_manifest_appends_is_what_others_read(tmp_path: Path) -> None:
    """In one commit of several epochs, and in one each."""
    writing, layout = Manifest(Layout.at(tmp_path), "q"), Layout.at(tmp_path)
    for epochs in ([0], [1, 2], [3]):
        writing.append([entry(epoch) for epoch in epochs], "app")
        reading = Manifest(layout, "q")
        reading.refresh()
        assert [entry.epoch for entry in writing.entries] == [*range(epochs[-1] + 1)]
        assert same(writing.entries, reading.entries)


def test_own_rows_are_not_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them would cost as much as writing them."""
    manifest = Manifest(Layout.at(tmp_path), "q")
    manifest.append([entry(0)], "app")

    def refuse(*_arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr(module, "read_entries", refuse)
    manifest.append([entry(1)], "app")
    manifest.refresh()
    assert [entry.epoch for entry in manifest.entries] == [0, 1]


def test_what_another_has_appended_first_counts(tmp_path: Path) -> None:
    """The same epochs are not appended again, and the other's rows are read."""
    one, other = Manifest(Layout.at(tmp_path), "q"), Manifest(Layout.at(tmp_path), "q")
    one.append([entry(0)], "app")
    other.append([entry(0), entry(1)], "app")
    assert same(other.entries[:1], one.entries)
    one.append([entry(1), entry(2)], "app")
    other.refresh()
    assert [entry.epoch for entry in one.entries] == [0, 1, 2]
    assert same(one.entries, other.entries)


def test_the_first_epoch_may_be_read_from_its_own_keyframe(tmp_path: Path) -> None:
    """As after a gap, which no earlier entry describes."""
    manifest = Manifest(Layout.at(tmp_path), "q")
    first = replace(entry(1), tables={"op0": TableEntry(0, 0, 1)})
    manifest.append([first], "app")
    assert manifest.entries[0].tables == {"op0": TableEntry(0, 0, 1)}


def test_a_new_manifest_keeps_the_processing_time(tmp_path: Path) -> None:
    """Causes of timers and expired TTLs are derived from it."""
    manifest = Manifest(Layout.at(tmp_path), "q")
    manifest.append([Entry(0, CAPTURED, began_at=START)], "q/_epochs")
    manifest.refresh()
    assert manifest.entries[0].began_at == START
