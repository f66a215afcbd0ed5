"""Delta tables, opened and committed to exactly once.

A Delta transaction identifier (an application and a version, see the Delta protocol's "Transaction Identifiers")
does not deduplicate by itself: it must be looked up and committed through one handle of the table, so that of two
writers who both saw the old version one gets a conflict. Here a commit becomes the version after the one that its
writer looked at, or it fails: whatever was committed in between, by another capture, by compaction or by a sweep,
has the writer look again and write its files anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from streamstate.snapshots.delta.data_files import DataFile, delete_files, write_file
from streamstate.snapshots.delta.log_checks import check, check_entries, entry_of, seal, seal_missing
from streamstate.snapshots.delta.object_store import REACHING, plain
from streamstate.snapshots.delta.place import Place, synced
from streamstate.snapshots.delta.schema import NO_HOOKS, change, merged
from streamstate.snapshots.errors import StoreError

# History is kept by our own rules: Delta's default would drop log entries after 30 days.
_CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "50",
}
_CHECKPOINT_INTERVAL = 50

# Others may change the columns at the same moment.
_ATTEMPTS = 5

FENCE = "streamstate/fence"
"""The transaction identifier of the empty commits that a sweep makes before it deletes anything."""

# More commits than captures that died, or race, between a table's commit and the manifest's.
_RECENT = 64


def open_table(place: Place) -> DeltaTable | None:
    """A handle on the table's newest version, its log verified; None where there is no table.

    Raises:
        DamagedStoreError: where its log is not what was written.
        StoreError: where it cannot be read.
    """
    with _told(place):
        try:
            table = DeltaTable(place.uri, storage_options=place.storage_options)
        except TableNotFoundError:
            check(place)
            return None
        check(place)
        return table


def update(place: Place, table: DeltaTable) -> bool:
    """Bring a handle forward to the newest version, verified; returns whether there was a newer one.

    Raises:
        DamagedStoreError, StoreError: as :func:`open_table`.
    """
    before = table.version()
    with _told(place):
        # deltalake lists the whole log, which takes long once it has thousands of entries; versions follow each other.
        if place.folder is None or entry_of(place.folder, before + 1).exists():
            table.update_incremental()
        if table.version() == before:
            _check_still_there(place, before)
            return False
        check_entries(place, before + 1, table.version())
    return True


def _check_still_there(place: Place, version: int) -> None:
    """Raise where the table's folder was removed or replaced: to deltalake that looks as if nothing had been added."""
    folder = place.folder
    if folder is not None and not entry_of(folder, version).exists():
        raise StoreError(
            f"{place} was removed or replaced while it was open.\n"
            "Put it back, or open the store again with ss.open_store(…)."
        )


class Handle:
    """A table kept open by one writer, who then reads only what was committed since.

    A handle belongs to one thread: what is looked up in it must still hold when it commits.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._table: DeltaTable | None = None

    def newest(self) -> DeltaTable:
        """The table, brought forward to its newest version.

        Raises:
            DamagedStoreError, StoreError: as :func:`required`.
        """
        if self._table is None:
            self._table = required(self.place)
        else:
            update(self.place, self._table)
        return self._table

    def forget(self) -> None:
        """Open the table anew the next time."""
        self._table = None


def open_or_create(place: Place, schema: pa.Schema, description: str) -> DeltaTable:
    """A handle on the table, made first where it is missing (another process may be making it too).

    A table that is there gets the schema's columns that it lacks, null in its rows, and types that hold the schema's.

    Raises:
        DamagedStoreError, StoreError: as :func:`open_table`; and where a column's type cannot hold the schema's.
    """
    table = open_table(place)
    if table is None:
        with _told(place), contextlib.suppress(CommitFailedError):
            DeltaTable.create(
                place.uri,
                schema,
                mode="ignore",
                description=description,
                configuration=_CONFIGURATION,
                storage_options=place.storage_options,
            )
        seal_missing(place)
        table = required(place)
    for _ in range(_ATTEMPTS):
        now = pa.schema(table.schema().to_arrow())
        wanted = merged(now, schema, place)
        if wanted == now:
            return table
        change(place, table, wanted)
        seal_missing(place)
        table = required(place)
    raise StoreError(f"The columns of {place} do not become those of the query's state: {schema}.")


def append_once(
    where: Place | Handle,
    application: str,
    version: int,
    rows_after: Callable[[int], pa.Table],
    *,
    metadata: dict[str, str] | None = None,
) -> int:
    """Append rows unless the table has them; returns the application's version before (−1: none).

    Where that is not below ``version``, nothing was written.

    Args:
        where: an existing table.
        application: who writes; each application's versions only grow.
        version: the version that the rows bring the application to.
        rows_after: gives the rows that a table standing at the given version lacks.
        metadata: kept with the commit.

    Raises:
        StoreError: where the rows could not be written; nothing of them is visible then.
    """
    handle = where if isinstance(where, Handle) else Handle(where)

    def write(table: DeltaTable, stands: int) -> list[DataFile]:
        return write_file(handle.place, pa.schema(table.schema().to_arrow()), rows_after(stands))

    return commit_once(handle, application, version, write, metadata=metadata)


def commit_once(
    where: Place | Handle,
    application: str,
    version: int,
    write: Callable[[DeltaTable, int], Sequence[DataFile]],
    *,
    removes: Callable[[DeltaTable], Sequence[RemoveAction]] = lambda _: (),
    metadata: dict[str, str] | None = None,
    data_change: bool = True,
    keeps_files: bool = False,
) -> int:
    """Commit files unless the application's version is there; returns its version before (−1: none).

    Args:
        where: an existing table.
        application: who writes; each application's versions only grow.
        version: the version that the commit brings the application to.
        write: writes the files, given the table and the version at which the application stands. It is called again
            where another commit came in between.
        removes: the files that leave the table in the same commit.
        metadata: kept with the commit.
        data_change: False where the commit only rewrites rows that are there, which a stream of the table leaves out.
        keeps_files: where another commit came in between, leave the files on disk: ``write`` gives them again, or
            deletes them (see ``prepared``).

    Raises:
        StoreError: where they could not be committed; nothing of them is visible then.
    """
    handle = where if isinstance(where, Handle) else Handle(where)
    while True:
        table = handle.newest()
        stands = version_of(table, application)
        if stands >= version:
            seal_missing(handle.place)  # whoever committed it may have died before its log entry was synced
            return stands
        mark = Transaction(application, version)
        if _commit(handle.place, table, _Work(write, removes, stands, metadata, mark, data_change, keeps_files)):
            return stands


def empty_commit(place: Place, table: DeltaTable, application: str) -> bool:
    """Commit nothing as the table's next version; False where another commit took its place."""
    mark = Transaction(application, table.version() + 1)
    return _commit(place, table, _Work(lambda *_: (), lambda _: (), -1, None, mark))


@dataclass(frozen=True)
class _Work:
    """What one commit is to do."""

    write: Callable[[DeltaTable, int], Sequence[DataFile]]
    removes: Callable[[DeltaTable], Sequence[RemoveAction]]
    stands: int
    metadata: dict[str, str] | None
    transaction: Transaction
    data_change: bool = True
    keeps_files: bool = False

    def properties(self) -> CommitProperties:
        return CommitProperties(
            custom_metadata=self.metadata, app_transactions=[self.transaction], max_commit_retries=0
        )


def _commit(place: Place, table: DeltaTable, work: _Work) -> bool:
    """Write files and commit them as the table's next version; False where another commit took its place."""
    files: Sequence[DataFile] = []
    wanted = table.version() + 1
    try:
        files = work.write(table, work.stands)
        if files and place.folder is not None:
            synced(place.folder)
        actions: list[AddAction | RemoveAction] = [
            *(one.as_action(data_change=work.data_change) for one in files),
            *work.removes(table),
        ]
        table.create_write_transaction(
            actions, "append", table.schema(), commit_properties=work.properties(), post_commithook_properties=NO_HOOKS
        )
    except (DeltaError, OSError) as error:
        # An error does not mean "not committed": what follows the commit may have failed.
        now = required(place)
        if not _holds(now, files):
            failed = now.version() == table.version()
            if failed or not work.keeps_files:
                delete_files(place, [file.path for file in files])
            if failed:
                raise _failed(place, error) from error
            return False
    _sync_and_seal(place, wanted)
    return True


def required(place: Place) -> DeltaTable:
    """A handle on a table that is there.

    Raises:
        StoreError: where it is not, or cannot be read.
    """
    table = open_table(place)
    if table is None:
        raise StoreError(f"The table {place} is gone.\nWas the store, or a part of it, deleted while it was in use?")
    return table


def recent_metadata(place: Place, key: str) -> list[str]:
    """What the table's newest commits keep under ``key``, oldest first."""
    entries: list[dict[str, Any]] = required(place).history(_RECENT)
    return [entry[key] for entry in reversed(entries) if key in entry]


def version_of(table: DeltaTable, application: str) -> int:
    """At which version an application stands; −1 where it has committed nothing."""
    version = table.transaction_version(application)
    return -1 if version is None else version


def _holds(table: DeltaTable, files: Sequence[DataFile]) -> bool:
    paths = {uri.rsplit("/", 1)[-1] for uri in table.file_uris()}
    return bool(files) and all(file.path in paths for file in files)


def _sync_and_seal(place: Place, version: int) -> None:
    try:
        seal(place, version)
        if version and version % _CHECKPOINT_INTERVAL == 0:
            table = DeltaTable(place.uri, version=version, storage_options=place.storage_options)
            table.create_checkpoint()
            seal(place, version, checkpoint=True)
    except (DeltaError, OSError) as error:
        raise StoreError(
            f"What was committed to {place} could not be made safe on disk: {plain(error)}\n"
            "It is there; the next capture will try again."
        ) from error


def _failed(place: Place, error: Exception) -> StoreError:
    return StoreError(
        f"Nothing could be written to {place}: {plain(error)}\nWhat is in the store already is untouched.{_hint(place)}"
    )


def _hint(place: Place) -> str:
    return "" if place.folder is not None else f"\n{REACHING}"


@contextlib.contextmanager
def _told(place: Place) -> Iterator[None]:
    """Turn what deltalake raises for a table it cannot read into an error of ours, damage first."""
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        check(place)
        raise StoreError(f"The table {place} cannot be read: {plain(error)}{_hint(place)}") from error
    except BaseException as error:
        # A damaged log can make deltalake's Rust panic, which is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        check(place)
        raise StoreError(f"The table {place} cannot be read: {plain(error)}{_hint(place)}") from None
