"""Merging the small files of all of a query's tables, and removing those that nobody reads any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamstate.snapshots.delta import Place, open_table
from streamstate.snapshots.delta.compaction import compact
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.delta.sweep import sweep
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.manifest import Manifest
from streamstate.snapshots.operators import EPOCH
from streamstate.snapshots.registry import required_query


@dataclass(frozen=True)
class Tidied:
    """What was done to one Delta table."""

    table: str
    """Its folder in the query's."""
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    deleted: int
    """Files deleted from disk: of commits that failed, or past their grace period."""


def tidy_query(
    store: str | Path,
    name: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Tidied]:
    """Merge and sweep the manifest and the change logs of a query; every epoch reads as before.

    Args:
        store: the store's path.
        name: the query.
        storage_options: deltalake's, for stores on object stores.
        progress: called with a few words before each table.

    Raises:
        NotAStoreError, UnknownQueryError: where there is no such store or query.
        StoreError: where a table cannot be written; it is as it was then.
    """
    layout = Layout.at(store, storage_options)
    required_query(layout, name)
    manifest = Manifest(layout, name)
    manifest.refresh()
    tables = dict.fromkeys(table for entry in manifest.entries for table in entry.tables)
    done = [_tidied(layout.manifest(name), "_epochs", "epoch", progress)]
    return done + [_tidied(layout.change_log(name, table), table, EPOCH, progress) for table in tables]


def _tidied(place: Place, table: str, by: str, progress: Callable[[str], None]) -> Tidied:
    progress(f"merging the files of {table}")
    before = _sizes(place, by)
    compact(place, by)
    after = _sizes(place, by)
    return Tidied(table, len(before), len(after), sum(before), sum(after), len(sweep(place)))


def _sizes(place: Place, by: str) -> list[int]:
    """Bytes of each file of the newest version."""
    table = open_table(place)
    return [] if table is None else [file.size for file in TableVersion(place, table).files(by)]
