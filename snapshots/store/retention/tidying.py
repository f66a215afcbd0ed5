"""Merging the small files of all tables of a query, and removing files that are no longer read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.state_tables import EPOCH
from streamstate.snapshots.store.delta import Place, open_table
from streamstate.snapshots.store.delta.maintenance import merge_small_files, sweep
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.merging import merge_log, sort_log
from streamstate.snapshots.store.registry import required_query


@dataclass(frozen=True)
class CompactedTable:
    """The result of tidying one Delta table."""

    table: str
    """Its folder in the query's folder."""
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    deleted: int
    """Files deleted from disk: those of failed commits, and those past their grace period."""


@long_call("The store is intact. Run it again to continue.")
def compact(
    store: str | Path,
    name: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> list[CompactedTable]:
    """Merge the small files of a query's tables, sort them by key, and delete those past their grace period.

    :meth:`streamstate.History.compact` describes the arguments and errors.
    """
    layout = Layout.at(store, storage_options)
    required_query(layout, name)
    manifest = Manifest(layout, name)
    manifest.refresh()
    tables = dict.fromkeys(table for entry in manifest.entries for table in entry.tables)
    report = progress or silent
    manifests = partial(merge_small_files, by="epoch")
    tidied = [_tidied(layout.manifest(name), "_epochs", "epoch", manifests, report)]
    return tidied + [_tidied(layout.changelog(name, table), table, EPOCH, _in_order, report) for table in tables]


def _in_order(log: Place) -> int:
    """Merge the small files of a change log, and sort the others."""
    return merge_log(log) + sort_log(log)


def _tidied(
    place: Place, table: str, by: str, merge: Callable[[Place], int], progress: ProgressCallback
) -> CompactedTable:
    progress(f"merging the files of {table}", None)
    before = _sizes(place, by)
    merge(place)
    after = _sizes(place, by)
    return CompactedTable(table, len(before), len(after), sum(before), sum(after), len(sweep(place)))


def _sizes(place: Place, by: str) -> list[int]:
    """Return the size in bytes of each file of the newest version."""
    table = open_table(place)
    return [] if table is None else [file.size for file in TableVersion(place, table).files(by)]
