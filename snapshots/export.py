"""Epochs as an ordinary Delta table: version i is exactly the state at the i-th of them.

The table has the state table's columns and nothing of ours, so any reader of Delta travels through it by version.
Each version is one commit, whose metadata names the epoch; it is written as a stream, and appears whole or not at all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import create_table_with_add_actions

from streamstate.snapshots.change_log import check_generation, folded, key_columns, value_columns
from streamstate.snapshots.delta import Place, commit_once, open_table
from streamstate.snapshots.delta.commits import required
from streamstate.snapshots.delta.compaction import removals
from streamstate.snapshots.delta.data_files import DataFile, DataFileWriter, delete_files
from streamstate.snapshots.delta.log_checks import seal_missing
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.delta.sweep import GRACE
from streamstate.snapshots.errors import (
    InvalidArgumentError,
    NotAnExportError,
    OvertakenError,
    StoreError,
    UnknownEpochError,
    UnknownTableError,
    choices,
)
from streamstate.snapshots.filesystem import location
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.manifest import Entry, Manifest
from streamstate.snapshots.operators import EPOCH
from streamstate.snapshots.registry import required_query

_APPLICATION = "streamstate/export"
_EPOCH, _QUERY, _TABLE = "streamstate.epoch", "streamstate.query_id", "streamstate.table"
_ATTEMPTS = 5

# Every version stays, also where another tool vacuums the table or writes a log checkpoint.
_CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.deletedFileRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "50",
}

Epochs = Iterable[int | range]
"""Numbers of epochs and ranges of them; a range takes in the captured epochs that it holds."""


@dataclass(frozen=True)
class ExportReport:
    """What an export did."""

    path: str
    """The Delta table."""
    table: str
    """The state table that it holds."""
    epochs: tuple[int, ...]
    """The epochs: version i of the table is the i-th of them."""
    written: int
    """How many versions were written now; the others were there already."""
    rows: int
    """Rows written now."""

    def __str__(self) -> str:
        """In one line."""
        there = len(self.epochs) - self.written
        before = f", {there:,} were there" if there else ""
        return f"{self.path}: {self.written:,} versions of {self.table} written ({self.rows:,} rows){before}"


@dataclass(frozen=True)
class _Source:
    """The state table that is exported."""

    manifest: Manifest
    place: Place
    query_id: str
    table: str

    def entry(self, epoch: int) -> Entry:
        """The manifest's row of an epoch that has the table.

        Raises:
            UnknownEpochError: where it is not captured.
        """
        captured = {one.epoch: one for one in self.manifest.entries if one.captured and self.table in one.tables}
        if epoch in captured:
            return captured[epoch]
        near = sorted(captured, key=lambda one: abs(one - epoch))[:2]
        raise UnknownEpochError(
            f"Epoch {epoch} of {self.manifest.query} is not captured, or was dropped by retention.\n"
            f"The nearest captured: {choices(map(str, sorted(near)))}."
        )


def export(
    store: str | Path,
    name: str,
    path: str | Path,
    *,
    table: str | None = None,
    epochs: Epochs | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> ExportReport:
    """Write epochs of a state table as an ordinary Delta table whose versions are those epochs.

    Version i holds exactly the state at the i-th epoch: the key columns, then the value columns. The metadata of its
    commit names the epoch, its source offsets, its watermark and when it was committed. Doing it again goes on where
    it stood, after a killed export as well as when more epochs have been captured.

    Args:
        store: the store's path.
        name: the query.
        path: the folder or URI of the Delta table.
        table: the state table; may be left out where there is one.
        epochs: numbers, and ranges that take in the captured epochs they hold; by default all captured ones.
        storage_options: deltalake's, for the store and the table where they are on an object store.
        progress: called with how many versions are written, and of how many.

    Returns:
        The epochs that the table holds now, and what was written.

    Raises:
        NotAnExportError: where ``path`` holds something else, or other epochs.
        UnknownQueryError, UnknownTableError, UnknownEpochError: where there is no such query, table or epoch.
        StoreError: where the table cannot be written; the versions that it has are whole.

    Example:
        >>> ss.export("store", "delays", "exported", epochs=[3, 5, range(10, 21)]).epochs  # doctest: +SKIP
        (3, 5, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
        >>> DeltaTable("exported", version=1).to_pandas()  # doctest: +SKIP
    """
    source = _source(Layout.at(store, storage_options), name, table)
    target = Place(location(str(path)), storage_options)
    _remove_unfinished(target)
    there = _exported(target, source)
    chosen = _chosen(source, epochs, there)
    _check_goes_on(target, source, there, chosen)
    rows = 0
    for version in range(len(there), len(chosen)):
        progress(version, len(chosen))
        rows += _write(source, target, version, chosen[version])
    progress(len(chosen), len(chosen))
    return ExportReport(target.uri, source.table, tuple(chosen), len(chosen) - len(there), rows)


def _source(layout: Layout, name: str, table: str | None) -> _Source:
    query = required_query(layout, name)
    manifest = Manifest(layout, name)
    manifest.refresh()
    tables = list(dict.fromkeys(one for entry in manifest.entries for one in entry.tables))
    if table is None and len(tables) > 1:
        raise InvalidArgumentError(f"{name} has {len(tables)} state tables; say which one: {', '.join(tables)}.")
    chosen = table if table is not None else next(iter(tables), None)
    if chosen is None:
        raise UnknownEpochError(f"No epoch of {name} is captured yet.\nWait for the first, or capture one.")
    if chosen not in tables:
        raise UnknownTableError.among("state table", chosen, tables, where=f"in {name}")
    return _Source(manifest, layout.change_log(name, chosen), query.query_id, chosen)


def _exported(target: Place, source: _Source) -> list[int]:
    """The epochs that the target holds, in the order of its versions; none where there is no table yet.

    Raises:
        NotAnExportError: where it is anything else.
    """
    folder = target.folder
    if folder is not None and folder.is_file():
        raise NotAnExportError(f"{target} is a file. An export is a folder: name a new one.")
    table = open_table(target)
    if table is None:
        if folder is not None and folder.exists() and any(_foreign(one.name) for one in folder.iterdir()):
            raise NotAnExportError(f"{target} is a folder with other files in it.\nName a new folder for the export.")
        return []
    commits = sorted(table.history(), key=lambda one: int(one["version"]))
    if [int(one["version"]) for one in commits] != list(range(len(commits))) or any(_EPOCH not in c for c in commits):
        raise NotAnExportError(f"{target} is another Delta table, or one that was changed since.\nName a new folder.")
    wanted = (source.query_id, source.table)
    if any((one[_QUERY], one[_TABLE]) != wanted for one in commits):
        raise NotAnExportError(
            f"{target} is an export of another state table: {commits[0][_TABLE]} of the query with the id"
            f" {commits[0][_QUERY]}.\nName a new folder."
        )
    return [int(one[_EPOCH]) for one in commits]


def _remove_unfinished(target: Place) -> None:
    """Remove half-written files of exports that were killed; one that is being written grows by the second."""
    before = time.time() - GRACE.total_seconds()
    for file in target.folder.glob(".unfinished-*") if target.folder is not None else ():
        if file.stat().st_mtime < before:
            file.unlink(missing_ok=True)


def _foreign(name: str) -> bool:
    """Whether a name in a folder without a table is that of something else than what a killed export left."""
    return not (name.startswith((".unfinished-", "part-")) or name == "_delta_log")


def _chosen(source: _Source, epochs: Epochs | None, there: Sequence[int]) -> list[int]:
    """The epochs of the versions, each once and ascending.

    Raises:
        UnknownEpochError: where one is not captured.
        InvalidArgumentError: where a number is none.
    """
    captured = [one.epoch for one in source.manifest.entries if one.captured and source.table in one.tables]
    if epochs is None:
        # What was exported once stays, although retention may have dropped it since.
        return sorted({*there, *captured})
    chosen: set[int] = set()
    for one in epochs:
        if isinstance(one, range):
            chosen |= {epoch for epoch in captured if epoch in one}
        elif isinstance(one, bool) or not isinstance(one, int):
            raise InvalidArgumentError(f"An epoch is a whole number, not {one!r}.")
        else:
            chosen.add(one if one in there else source.entry(one).epoch)
    if not chosen:
        raise UnknownEpochError(f"No captured epoch of {source.manifest.query} is among those that were asked for.")
    return sorted(chosen)


def _check_goes_on(target: Place, source: _Source, there: Sequence[int], chosen: Sequence[int]) -> None:
    """Raise unless the target can become the export by further versions.

    Raises:
        NotAnExportError: where it cannot.
    """
    table = open_table(target)
    if table is not None and TableVersion(target, table).schema.names != _schema(source).names:
        raise NotAnExportError(f"{source.table} has other columns since {target} was begun.\nName a new folder.")
    if list(chosen[: len(there)]) != list(there):
        raise NotAnExportError(
            f"{target} holds the epochs {choices(map(str, there))}, and an export only goes on after its last.\n"
            "Choose epochs that begin with these, or name a new folder."
        )


def _write(source: _Source, target: Place, version: int, epoch: int) -> int:
    """Write one version, again where retention comes in between; returns its rows."""
    for _ in range(_ATTEMPTS):
        try:
            return _write_once(source, target, version, source.entry(epoch))
        except OvertakenError:
            source.manifest.refresh()
    raise StoreError(f"Retention keeps changing {source.place} while it is exported.\nTry again when it is done.")


def _write_once(source: _Source, target: Place, version: int, entry: Entry) -> int:
    metadata = _metadata(source, entry)
    written: list[DataFile] = []

    def write(_table: DeltaTable, _stands: int) -> list[DataFile]:
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
    return sum(one.rows for one in written)


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
            target.uri,
            Schema.from_arrow(_schema(source)),
            [one.as_action() for one in written],
            configuration=_CONFIGURATION,
            description=f"streamstate: {source.table} of {source.manifest.query}, one version an epoch",
            storage_options=target.storage_options,
            commit_properties=properties,
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )
    except (DeltaError, OSError) as error:
        if open_table(target) is None:
            delete_files(target, [one.path for one in written])
            raise StoreError(f"Nothing could be written to {target}: {str(error).splitlines()[0]}") from error
        held = {uri.rsplit("/", 1)[-1] for uri in required(target).file_uris()}
        delete_files(target, [one.path for one in written if one.path not in held])
        if _exported(target, source)[:1] != [entry.epoch]:
            raise NotAnExportError(f"Something else was written to {target} at the same time.") from error
    seal_missing(target)


def _state(source: _Source, target: Place, entry: Entry) -> list[DataFile]:
    """The state at an epoch as one file; memory stays bounded, whatever its size."""
    version = TableVersion(source.place, required(source.place))
    check_generation(version, entry.generation)
    schema = _schema(source)
    keyframe = entry.tables[source.table].keyframe
    with (
        DataFileWriter(target, schema) as writer,
        folded(version, key_columns(version.schema), entry.epoch, keyframe, schema.names) as rows,
    ):
        for batch in rows:
            writer.write(batch)
    return [] if writer.file is None else [writer.file]


def _schema(source: _Source) -> pa.Schema:
    """Key columns, then value columns, without our marks."""
    log = TableVersion(source.place, required(source.place)).schema
    return pa.schema([log.field(name).remove_metadata() for name in [*key_columns(log), *value_columns(log)]])


def _metadata(source: _Source, entry: Entry) -> dict[str, str]:
    """What a version's commit says of its epoch."""
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


def parsed(text: str) -> list[int | range]:
    """Epochs as they are written on a line: ``3,5,10:20``, where a range takes in both its ends.

    Raises:
        InvalidArgumentError: where the text is none.
    """
    found: list[int | range] = []
    for part in text.split(","):
        first, colon, last = part.strip().partition(":")
        if not first.isdecimal() or (colon and not last.isdecimal()):
            raise InvalidArgumentError(f"{text!r} names no epochs. Write numbers and ranges, such as 3,5,10:20.")
        found.append(range(int(first), int(last) + 1) if colon else int(first))
    return found
