"""Epochs as an ordinary Delta table: version i is exactly the state at the i-th of them.

The table has the state table's columns and no others, so any Delta reader can time travel through it by version. Each
version is one commit, whose metadata names the epoch; it is written as a stream and appears completely or not at all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import create_table_with_add_actions

from streamstate.errors import (
    InvalidArgumentError,
    NotAnExportError,
    OvertakenError,
    StoreError,
    UnknownEpochError,
    UnknownTableError,
    choices,
    worded,
)
from streamstate.snapshots.calls.epoch_range import epoch_items
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.checkpoint.outside_checkpoints import check_outside
from streamstate.snapshots.checkpoint.state_tables import EPOCH
from streamstate.snapshots.store.changelog import check_generation, folded, key_columns, value_columns
from streamstate.snapshots.store.delta import Place, commit_once, open_table
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.data_files import DataFile, delete_files, write_file
from streamstate.snapshots.store.delta.log_checks import seal_missing
from streamstate.snapshots.store.delta.maintenance import GRACE, removals
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.entries import Entry
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import required_query

_APPLICATION = "streamstate/export"
_EPOCH, _QUERY, _TABLE = "streamstate.epoch", "streamstate.query_id", "streamstate.table"
_ATTEMPTS = 5

# Keep every version, even if another tool vacuums the table or writes a log checkpoint.
_CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.deletedFileRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "50",
}

Epochs = Iterable[int | range] | str
"""Epochs and ranges of them, or text such as ``3,5,10..20``; a range means the captured epochs in it."""


@dataclass(frozen=True)
class ExportReport:
    """The result of an export."""

    path: str
    """The Delta table."""
    table: str
    """The exported state table."""
    epochs: tuple[int, ...]
    """The epochs; version i of the table is the i-th of them."""
    written: int
    """The number of versions written now; the others existed already."""
    rows: int
    """Rows written now."""

    def __str__(self) -> str:
        """Return a summary in one line."""
        existing = len(self.epochs) - self.written
        before = f", {existing:,} existed already" if existing else ""
        return f"{self.path}: {self.written:,} versions of {self.table} written ({self.rows:,} rows){before}"


@dataclass(frozen=True)
class _Source:
    """The state table to export."""

    manifest: Manifest
    place: Place
    query_id: str
    table: str

    def entry(self, epoch: int) -> Entry:
        """Return the manifest's row of a captured epoch."""
        captured = {entry.epoch: entry for entry in self.captured}
        if epoch in captured:
            return captured[epoch]
        near = sorted(captured, key=lambda number: abs(number - epoch))[:2]
        raise UnknownEpochError(
            f"Epoch {epoch} of {self.manifest.query} is not captured, or was dropped by retention.\n"
            f"The nearest captured epochs: {choices(map(str, sorted(near)))}."
        )

    @property
    def captured(self) -> list[Entry]:
        """The captured epochs that have the table."""
        return [entry for entry in self.manifest.entries if entry.captured and self.table in entry.tables]


@long_call("The versions written so far are complete. Export again to continue.")
def export(
    store: str | Path,
    name: str,
    path: str | Path,
    *,
    table: str | None = None,
    epochs: Epochs | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> ExportReport:
    """Write epochs of a state table as an ordinary Delta table whose versions are those epochs.

    :meth:`streamstate.History.export` describes the arguments and errors.
    """
    source = _source(Layout.at(store, storage_options), name, table)
    target = Place(location(str(path)), storage_options)
    _remove_unfinished(target)
    existing = _exported(target, source)
    chosen = _chosen(source, epochs, existing)
    _check_continues(target, source, existing, chosen)
    rows, report = 0, progress or silent
    for version in range(len(existing), len(chosen)):
        report(f"{version:,} of {len(chosen):,} versions", version / len(chosen))
        rows += _write(source, target, version, chosen[version])
    report(f"{len(chosen):,} of {len(chosen):,} versions", 1.0)
    return ExportReport(target.uri, source.table, tuple(chosen), len(chosen) - len(existing), rows)


def _source(layout: Layout, name: str, table: str | None) -> _Source:
    query = required_query(layout, name)
    manifest = Manifest(layout, name)
    manifest.refresh()
    tables = list(dict.fromkeys(name for entry in manifest.entries for name in entry.tables))
    if table is None and len(tables) > 1:
        how = worded("Pass table=…", line="Choose one with --table")
        raise InvalidArgumentError(f"{name} has {len(tables)} state tables. {how}: {choices(tables)}.")
    chosen = table if table is not None else next(iter(tables), None)
    if chosen is None:
        raise UnknownEpochError(f"No epoch of {name} has been captured yet.\nCapture one, or wait for the first.")
    if chosen not in tables:
        raise UnknownTableError.among("state table", chosen, tables, where=f"in {name}")
    return _Source(manifest, layout.changelog(name, chosen), query.query_id, chosen)


def _exported(target: Place, source: _Source) -> list[int]:
    """Return the epochs that the target holds, in the order of its versions; none if it does not exist yet."""
    folder = target.folder
    if folder is not None and folder.is_file():
        raise NotAnExportError(f"{target} is a file. An export needs a folder: name a new one.")
    table = open_table(target)
    if table is None:
        names = {file.name for file in folder.iterdir()} if folder is not None and folder.exists() else set()
        # A killed export may have left some.
        if any(not name.startswith((".unfinished-", "part-")) for name in names - {"_delta_log"}):
            raise NotAnExportError(f"{target} is a folder with other files in it.\nExport into a new folder.")
        check_outside(target.uri, target.options)
        return []
    commits = [*table.records()][::-1]
    versions = [int(commit["version"]) for commit in commits]
    if versions != list(range(len(commits))) or any(_EPOCH not in commit for commit in commits):
        raise NotAnExportError(
            f"{target} is not an export, or was changed after it was exported.\nExport into a new folder."
        )
    if any((commit[_QUERY], commit[_TABLE]) != (source.query_id, source.table) for commit in commits):
        raise NotAnExportError(
            f"{target} is an export of another state table: {commits[0][_TABLE]} of the query with the id"
            f" {commits[0][_QUERY]}.\nExport into a new folder."
        )
    return [int(commit[_EPOCH]) for commit in commits]


def _remove_unfinished(target: Place) -> None:
    """Remove half-written files of killed exports; a file that is being written is not that old."""
    before = time.time() - GRACE.total_seconds()
    for file in target.folder.glob(".unfinished-*") if target.folder is not None else ():
        if file.stat().st_mtime < before:
            file.unlink(missing_ok=True)


def _chosen(source: _Source, epochs: Epochs | None, existing: Sequence[int]) -> list[int]:
    """Return the epochs of the versions, each once and ascending."""
    captured = [entry.epoch for entry in source.captured]
    if epochs is None:
        # Exported versions stay, even if retention has dropped their epochs since.
        return sorted({*existing, *captured})
    chosen: set[int] = set()
    for item in epoch_items(epochs, captured):
        if isinstance(item, range):
            chosen |= {epoch for epoch in captured if epoch in item}
        else:
            chosen.add(item if item in existing else source.entry(item).epoch)
    if not chosen:
        raise UnknownEpochError(f"None of the epochs to export of {source.manifest.query} is captured.")
    return sorted(chosen)


def _check_continues(target: Place, source: _Source, existing: Sequence[int], chosen: Sequence[int]) -> None:
    """Raise unless the target becomes the export by adding versions."""
    table = open_table(target)
    if table is not None and TableVersion(target, table).schema.names != _schema(source).names:
        raise NotAnExportError(
            f"The columns of {source.table} have changed since {target} was first exported.\nExport into a new folder."
        )
    if list(chosen[: len(existing)]) != list(existing):
        raise NotAnExportError(
            f"{target} holds the epochs {choices(map(str, existing))}, and an export can only add epochs after the"
            " last.\nChoose epochs that begin with these, or export into a new folder."
        )


def _write(source: _Source, target: Place, version: int, epoch: int) -> int:
    """Write one version, again if retention rewrites the log meanwhile; returns its number of rows."""
    for _ in range(_ATTEMPTS):
        try:
            return _write_once(source, target, version, source.entry(epoch))
        except OvertakenError:
            source.manifest.refresh()
    raise StoreError(f"Retention keeps changing {source.place} during the export.\nTry again once retention is done.")


def _write_once(source: _Source, target: Place, version: int, entry: Entry) -> int:
    metadata = _metadata(source, entry)
    written: list[DataFile] = []

    def write(_table: DeltaTable, _committed: int) -> list[DataFile]:
        written[:] = _state(source, target, entry)
        return written

    if version:
        commit_once(
            target,
            _APPLICATION,
            version,
            write,
            removes=lambda now: removals(TableVersion(target, now).files(EPOCH), data_change=True),
            metadata=metadata,
        )
    else:
        _create(source, target, entry, written)
    return sum(file.rows for file in written)


def _create(source: _Source, target: Place, entry: Entry, written: list[DataFile]) -> None:
    """The table and its first version in one commit, so that version 0 is the first epoch."""
    if target.folder is not None:
        target.folder.mkdir(parents=True, exist_ok=True)
    written[:] = _state(source, target, entry)
    properties = CommitProperties(
        custom_metadata=_metadata(source, entry), app_transactions=[Transaction(_APPLICATION, 0)], max_commit_retries=0
    )
    try:
        create_table_with_add_actions(
            target.client_uri,
            Schema.from_arrow(_schema(source)),
            [file.as_action() for file in written],
            configuration=_CONFIGURATION,
            description=f"streamstate: {source.table} of {source.manifest.query}, one version an epoch",
            storage_options=target.storage_options,
            commit_properties=properties,
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )
    except (DeltaError, OSError) as error:
        if open_table(target) is None:
            delete_files(target, [file.path for file in written])
            raise StoreError(f"Nothing could be written to {target}: {str(error).splitlines()[0]}") from error
        held = {uri.rsplit("/", 1)[-1] for uri in required(target).file_uris()}
        delete_files(target, [file.path for file in written if file.path not in held])
        if _exported(target, source)[:1] != [entry.epoch]:
            raise NotAnExportError(f"Something else was written to {target} at the same time.") from error
    seal_missing(target)


def _state(source: _Source, target: Place, entry: Entry) -> list[DataFile]:
    """Return the state at an epoch as one file, in bounded memory."""
    version = TableVersion(source.place, required(source.place))
    check_generation(version, entry.generation)
    schema = _schema(source)
    keyframe = entry.tables[source.table].keyframe
    with folded(version, key_columns(version.schema), entry.epoch, keyframe, schema.names) as rows:
        return write_file(target, schema, rows)


def _schema(source: _Source) -> pa.Schema:
    """Key columns, then value columns, without field metadata."""
    log = TableVersion(source.place, required(source.place)).schema
    return pa.schema([log.field(name).remove_metadata() for name in [*key_columns(log), *value_columns(log)]])


def _metadata(source: _Source, entry: Entry) -> dict[str, str]:
    """Return what a version's commit records of its epoch."""
    facts = {
        _EPOCH: str(entry.epoch),
        _QUERY: source.query_id,
        _TABLE: source.table,
        "streamstate.query": source.manifest.query,
        "streamstate.offsets": entry.offsets,
        "streamstate.watermark": entry.watermark and entry.watermark.isoformat(),
        "streamstate.committed_at": entry.committed_at and entry.committed_at.isoformat(),
    }
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()}
