"""Opening Delta tables, and committing to them exactly once.

A Delta transaction identifier (an application and a version, see the Delta protocol's "Transaction Identifiers") does
not deduplicate by itself. It has to be looked up and committed through one handle of the table, so that one of two
writers who both saw the old version gets a conflict. Here a commit becomes the version after the one that its writer
looked at, or it fails. After any commit in between, by another capture, by compaction or by a sweep, the writer looks
again and writes its files again.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from streamstate.errors import StoreError, worded
from streamstate.snapshots.store.delta.data_files import DataFile, delete_files, write_file
from streamstate.snapshots.store.delta.log_checks import (
    check_entries,
    check_log,
    entry_of,
    seal,
    seal_entry,
    seal_missing,
)
from streamstate.snapshots.store.delta.object_store import REACHING, plain
from streamstate.snapshots.store.delta.own_commits import WriterTable
from streamstate.snapshots.store.delta.place import Place, synced
from streamstate.snapshots.store.delta.schema import NO_HOOKS, change, complete, created_with, merged
from streamstate.snapshots.store.delta.size import SIZE
from streamstate.snapshots.store.delta.table import CHECKPOINT_INTERVAL, Table, gets_checkpoint

_REMEMBERS = "delta.deletedFileRetentionDuration"
# streamstate's retention decides what is kept: Delta's default would drop log entries after 30 days.
_CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    # What opening a table reads of its log names the files that left it so long ago. Delta's default is a week.
    _REMEMBERS: "interval 2 hours",
}

# Another process may change the columns at the same time.
_ATTEMPTS = 5

FENCE = "streamstate/fence"
"""The transaction identifier of the empty commit that a sweep makes before it deletes anything."""

# More than the commits of captures that were killed, or compete, between a table's commit and the manifest's.
_RECENT = 256


def open_table(place: Place) -> WriterTable | None:
    """Return a handle on the table's newest version, with its log verified; None if the table does not exist.

    Raises:
        DamagedStoreError: its log is damaged.
        StoreError: it cannot be read.
    """
    with _read_errors(place):
        if place.folder is not None and not place.folder.exists():
            return None  # at once: deltalake takes some milliseconds to find that out
        try:
            table = WriterTable(place)
        except TableNotFoundError:
            check_log(place)
            return None
        check_log(place)
        return table


def update(place: Place, table: DeltaTable) -> bool:
    """Update a handle to the newest version, with its log verified; returns whether there was a newer one.

    Raises:
        DamagedStoreError, StoreError: as :func:`open_table`.
    """
    before = table.version()
    with _read_errors(place):
        # deltalake lists the whole log, which is slow with thousands of entries.
        if not isinstance(table, Table) or table.has_newer():
            table.update_incremental()
        if table.version() == before:
            check_still_there(place, before)
            return False
        check_entries(place, before + 1, table.version())
    return True


def check_still_there(place: Place, version: int) -> None:
    """Raise if a table on the local disk was removed or replaced; to a reader it looks as if nothing had been added.

    Raises:
        StoreError: the table has no entry of a version that was read.
    """
    folder = place.folder
    if folder is not None and not entry_of(folder, version).exists():
        raise StoreError(
            f"{place} was removed or replaced while it was open.\n"
            f"Put it back, or {worded('open the store again with ss.open_store(…)', command='run the command again')}."
        )


class Handle:
    """A table that a writer keeps open, to read only what was committed since.

    A handle belongs to one thread: nothing may update it between a lookup and the commit that relies on it.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._table: WriterTable | None = None

    def newest(self) -> WriterTable:
        """Return the table at its newest version.

        Raises:
            DamagedStoreError, StoreError: as :func:`required`.
        """
        table = self.if_exists()
        return required(self.place) if table is None else table

    def reopened(self) -> WriterTable:
        """Return the table, opened anew.

        Raises:
            DamagedStoreError, StoreError: as :func:`required`.
        """
        self._table = required(self.place)
        return self._table

    def if_exists(self) -> WriterTable | None:
        """Return the table at its newest version; None if it does not exist yet.

        Raises:
            DamagedStoreError, StoreError: as :func:`open_table`.
        """
        if self._table is None:
            self._table = open_table(self.place)
            return self._table
        update(self.place, self._table)
        if self._table.is_slow:
            self._table = required(self.place)
        return self._table


def open_or_create(where: Place | Handle, schema: pa.Schema, description: str) -> Table:
    """Return a handle on the table, which is created if it does not exist, even if another process is creating it too.

    An existing table gets the columns of the schema that it lacks, null in its rows, and types wide enough for it.

    Raises:
        DamagedStoreError, StoreError: as :func:`open_table`, or a column has no common type with the schema's.
    """
    handle = where if isinstance(where, Handle) else Handle(where)
    place = handle.place
    table = handle.if_exists()
    if table is None:
        with _read_errors(place), contextlib.suppress(CommitFailedError):
            DeltaTable.create(
                place.client_uri,
                created_with(schema),
                mode="ignore",
                description=description,
                configuration=_CONFIGURATION,
                storage_options=place.storage_options,
            )
        seal_missing(place)
        table = handle.reopened()
        if set(schema.names) > set(pa.schema(table.schema().to_arrow()).names):
            with _read_errors(place), contextlib.suppress(CommitFailedError):
                complete(place, table, schema)
            seal_missing(place)
            table = handle.reopened()
    for _ in range(_ATTEMPTS):
        now = pa.schema(table.schema().to_arrow())
        target = merged(now, schema, place)
        if target == now:
            return (
                table if _REMEMBERS in table.metadata().configuration else remember_removed(place, timedelta(hours=1))
            )
        change(place, table, target)
        seal_missing(place)
        table = handle.reopened()
    raise StoreError(
        f"The columns of {place} keep changing while they are adapted to the query's state.\n"
        "Do several queries capture into it? Capture again once the others are done."
    )


def remember_removed(place: Place, kept: timedelta) -> Table:
    """Have a table's log name the files that left it for some time, and an hour more, or for longer if it does so."""
    table = required(place)
    hours = int(kept.total_seconds() // 3600) + 1
    if _REMEMBERS not in table.metadata().configuration or remembered(table) < timedelta(hours=hours):
        with _read_errors(place), contextlib.suppress(CommitFailedError):  # another process is doing the same
            table.alter.set_table_properties(
                {_REMEMBERS: f"interval {hours} hours"}, post_commithook_properties=NO_HOOKS
            )
        seal_missing(place)
    return required(place)


def remembered(table: DeltaTable) -> timedelta:
    """Return the time for which a table's log names the files that left it: an hour more than they are kept."""
    found = re.fullmatch(r"interval (\d+) hours?", table.metadata().configuration.get(_REMEMBERS) or "")
    return timedelta(hours=2 if found is None else int(found[1]))


def append_once(
    where: Place | Handle,
    application: str,
    version: int,
    rows_after: Callable[[int], pa.Table],
    *,
    metadata: dict[str, str] | None = None,
    marks: Mapping[str, int] | None = None,
) -> int:
    """Append rows unless the table has them; returns the application's previous version (−1: none).

    If that is already ``version`` or later, nothing is written.

    Args:
        where: an existing table.
        application: the writer; the versions of an application only grow.
        version: the version that the rows bring the application to.
        rows_after: returns the rows that a table lacks, given the application's version in it.
        metadata: stored with the commit.
        marks: as for :func:`commit_once`.

    Raises:
        StoreError: the rows could not be written; none of them is visible.
    """
    handle = where if isinstance(where, Handle) else Handle(where)

    def write(table: DeltaTable, committed: int) -> list[DataFile]:
        return write_file(handle.place, pa.schema(table.schema().to_arrow()), rows_after(committed))

    return commit_once(handle, application, version, write, metadata=metadata, marks=marks)


def commit_once(
    where: Place | Handle,
    application: str,
    version: int,
    write: Callable[[DeltaTable, int], Sequence[DataFile]],
    *,
    removes: Callable[[DeltaTable], Sequence[RemoveAction]] = lambda _: (),
    metadata: dict[str, str] | None = None,
    marks: Mapping[str, int] | None = None,
    data_change: bool = True,
    keeps_files: bool = False,
) -> int:
    """Commit files unless the application's version is committed; returns its previous version (−1: none).

    Args:
        where: an existing table.
        application: the writer; the versions of an application only grow.
        version: the version that the commit brings the application to.
        write: writes the files, given the table and the application's version in it. It is called again if another
            commit came in between.
        removes: the files that leave the table in the same commit.
        metadata: stored with the commit; read after ``write``, as ``marks``.
        marks: numbers to keep with the table, by name, until a later commit replaces them; read after ``write``. Unlike
            metadata they are found without looking for the commit (:func:`version_of`).
        data_change: False if the commit only rewrites existing rows, so that streams of the table skip it.
        keeps_files: if another commit came in between, keep the files on disk: ``write`` returns them again or deletes
            them (see ``prepared``).

    Raises:
        StoreError: the files could not be committed; none of their rows is visible.
    """
    handle = where if isinstance(where, Handle) else Handle(where)
    while True:
        table = handle.newest()
        committed = version_of(table, application)
        if committed >= version:
            seal_missing(handle.place)  # its writer may have been killed before the log entry was synced
            return committed
        mark = Transaction(application, version)
        work = _Work(write, removes, committed, metadata, mark, data_change, keeps_files, marks)
        if _commit(handle.place, table, work):
            return committed


def empty_commit(place: Place, table: WriterTable, application: str) -> bool:
    """Make an empty commit as the table's next version; False if another commit took that version."""
    mark = Transaction(application, table.version() + 1)
    return _commit(place, table, _Work(lambda *_: (), lambda _: (), -1, None, mark))


@dataclass(frozen=True)
class _Work:
    """The contents of one commit."""

    write: Callable[[DeltaTable, int], Sequence[DataFile]]
    removes: Callable[[DeltaTable], Sequence[RemoveAction]]
    committed: int
    metadata: dict[str, str] | None
    transaction: Transaction
    data_change: bool = True
    keeps_files: bool = False
    marks: Mapping[str, int] | None = None

    def versions(self) -> dict[str, int]:
        """Return the versions of applications that the commit sets."""
        return {self.transaction.app_id: self.transaction.version} | dict(self.marks or {})


def _commit(place: Place, table: WriterTable, work: _Work) -> bool:
    """Write files and commit them as the table's next version; False if another commit took that version."""
    files: Sequence[DataFile] = []
    version = table.version() + 1
    entry: bytes | None = None
    try:
        files = work.write(table, work.committed)
        if files and place.folder is not None:
            synced(place.folder)
        removes = work.removes(table)
        size = table.size().after(files, removes)
        metadata = {**(work.metadata or {}), SIZE: size.to_json()}
        if table.takes_entries and not removes:
            entry = table.add_files(files, work.versions(), metadata, data_change=work.data_change)
        else:
            _commit_by_deltalake(table, files, removes, work, metadata)
            table.committed(version, work.versions())
        table.has_size(version, size)
    except (DeltaError, OSError) as error:
        # An error does not mean "not committed": a step after the commit may have failed.
        now = required(place)
        if not _holds(now, files):
            failed = now.version() == table.version()
            if failed or not work.keeps_files:
                delete_files(place, [file.path for file in files])
            if failed:
                raise _failed(place, error) from error
            return False
    _sync_and_seal(place, version, entry)
    return True


def _commit_by_deltalake(
    table: WriterTable,
    files: Sequence[DataFile],
    removes: Sequence[RemoveAction],
    work: _Work,
    metadata: dict[str, str],
) -> None:
    actions: list[AddAction | RemoveAction] = [
        *(file.as_action(data_change=work.data_change) for file in files),
        *removes,
    ]
    transactions = [Transaction(name, number) for name, number in work.versions().items()]
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        commit_properties=CommitProperties(
            custom_metadata=metadata, app_transactions=transactions, max_commit_retries=0
        ),
        post_commithook_properties=NO_HOOKS,
    )


def required(place: Place) -> WriterTable:
    """Return a handle on a table that has to exist.

    Raises:
        StoreError: it does not exist, or cannot be read.
    """
    table = open_table(place)
    if table is None:
        raise StoreError(f"The table {place} does not exist.\nWas the store, or part of it, deleted while in use?")
    return table


def recent_metadata(place: Place, key: str) -> list[str]:
    """Return the values that the table's newest commits have stored under ``key``, oldest first."""
    records = [*itertools.islice(required(place).records(), _RECENT)]
    return [record[key] for record in reversed(records) if key in record]


def version_of(table: DeltaTable, application: str) -> int:
    """Return an application's version; −1 if it has committed nothing."""
    version = table.transaction_version(application)
    return -1 if version is None else version


def _holds(table: DeltaTable, files: Sequence[DataFile]) -> bool:
    paths = {uri.rsplit("/", 1)[-1] for uri in table.file_uris()}
    return bool(files) and all(file.path in paths for file in files)


def _sync_and_seal(place: Place, version: int, entry: bytes | None) -> None:
    """Sync and seal a commit's log entry, given its content if that is synced, and write the log checkpoint due."""
    try:
        if entry is None:
            seal(place, version)
        else:
            seal_entry(place, version, entry)
        if gets_checkpoint(version):
            table = DeltaTable(place.client_uri, version=version, storage_options=place.storage_options)
            table.create_checkpoint()
            seal(place, version, checkpoint=True)
    except (DeltaError, OSError) as error:
        raise StoreError(
            f"A commit to {place} could not be synced to disk: {plain(error)}\n"
            "It is visible; the next capture will sync it."
        ) from error


def _failed(place: Place, error: Exception) -> StoreError:
    return StoreError(
        f"Nothing could be written to {place}: {plain(error)}\nThe store's contents are unchanged.{_hint(place)}"
    )


def _hint(place: Place) -> str:
    return "" if place.folder is not None else f"\n{REACHING}"


@contextlib.contextmanager
def _read_errors(place: Place) -> Iterator[None]:
    """Turn what deltalake raises for an unreadable table into a StoreError, after checking for damage."""
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        check_log(place)
        raise StoreError(f"The table {place} cannot be read: {plain(error)}{_hint(place)}") from error
    except BaseException as error:
        # A damaged log can make deltalake's Rust code panic, which is not an Exception.
        if type(error).__name__ != "PanicException":
            raise
        check_log(place)
        raise StoreError(f"The table {place} cannot be read: {plain(error)}{_hint(place)}") from None
