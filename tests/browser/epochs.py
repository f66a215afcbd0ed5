"""Manifests without state, which is all that a timeline and an overview read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from browser.stores import LOG, START
from streamstate.snapshots.store.changelog import log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, FORMAT, QUERIES, Layout
from streamstate.snapshots.store.manifest import Manifest, make_manifest

SECOND = dt.timedelta(seconds=1)


def entry(epoch: int, run: str = "a" * 36) -> Entry:
    """An epoch whose values are derived from its number."""
    committed = START + epoch * 10 * SECOND
    return Entry(
        epoch,
        CAPTURED,
        run,
        committed_at=committed,
        captured_at=committed + SECOND / 2,
        watermark=committed - (60 + epoch % 7) * SECOND,
        input_rows=100 + epoch,
        tables={"op0_left": TableEntry(1_000 + epoch, epoch % 10, None), "op0_right": TableEntry(10, 1, None)},
        began_at=committed - (1 + epoch % 3) * SECOND,
    )


def record(path: Path, name: str, entries: Sequence[Entry], fork_of: tuple[str, int] | None = None) -> None:
    """Register a query if it does not exist, and add epochs to its manifest."""
    layout = Layout.at(path)
    parent, parent_epoch = fork_of or (None, None)
    row = {"name": name, "query_id": f"id of {name}", "checkpoint": f"checkpoints/{name}", "format": FORMAT}
    row |= {"parent": parent, "parent_epoch": parent_epoch, "created_at": START}
    open_or_create(layout.queries, QUERIES, "queries")
    append_once(layout.queries, f"name/{name}", 1, lambda _: pa.Table.from_pylist([row], schema=QUERIES))
    make_manifest(layout.manifest(name))
    for table in {table for entry in entries for table in entry.tables}:
        open_or_create(layout.changelog(name, table), log_schema(pa.schema([*LOG, ("k", pa.int64())]), ["k"]), "log")
    manifest = Manifest(layout, name)
    manifest.refresh()
    if entries:
        manifest.append([*entries], name)


def eventful(path: Path) -> None:
    """``trips``: 60 epochs with a gap of three and a restart; and ``trial``, forked from it after epoch 40."""
    second = "b" * 36
    epochs = [Entry.gap(n) if n in (20, 21, 22) else entry(n, "a" * 36 if n < 33 else second) for n in range(60)]
    record(path, "trips", epochs)
    record(path, "trial", [entry(n, "c" * 36) for n in range(41, 50)], fork_of=("trips", 40))


def long(path: Path, epochs: int = 2_345) -> None:
    """``long``: more epochs than a plot can show one by one, some of them gaps."""
    record(path, "long", [Entry.gap(n) if n % 100 == 50 else entry(n) for n in range(epochs)])
