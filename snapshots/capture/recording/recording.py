"""A recording: a Delta table with the rows that a source delivered, in numbered batches.

The recorder's commits carry its query and epoch as transaction identifier, so that an epoch that Spark runs twice is
there once. Batches are numbered from 0 across all runs of the recorder, and the number is in every row: merging files
changes nothing for a reader that has read up to a batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from streamstate.errors import QueryError, StoreError
from streamstate.snapshots.capture.executors.tasks import TableTask
from streamstate.snapshots.capture.executors.writer import run_tasks
from streamstate.snapshots.capture.recording.batches import BATCH, MARKS, write_batch
from streamstate.snapshots.capture.recording.source_position import SourcePosition, forget_positions
from streamstate.snapshots.checkpoint.outside_checkpoints import check_outside
from streamstate.snapshots.store.delta import Place, commit_once, open_or_create, open_table
from streamstate.snapshots.store.delta.commits import Handle, empty_commit, version_of
from streamstate.snapshots.store.delta.data_files import DataFile
from streamstate.snapshots.store.delta.maintenance import GRACE, merge_small_files, removals, sweep
from streamstate.snapshots.store.delta.reading import Committed, TableVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Numbers that are kept with the table, as versions of transaction identifiers.
RECORDED = "streamstate/recorded"
"""The newest batch."""
DROPPED = "streamstate/dropped"
"""The newest batch that retention dropped, with all before it."""
PINNED = "streamstate/pinned"
"""The batch after which retention drops nothing, because a fork or another query may read on from there."""
_RECORDER = "streamstate/recorder"
_RETENTION = "streamstate/retention"

_TITLE = "streamstate: recorded input of "
# As often as that, small files are merged.
_TIDY_EVERY = 64
# As many batches keep their source's position. A query keeps those that it has read in its own offsets.
_POSITIONS = 1_000


@dataclass(frozen=True)
class Kept:
    """The batches that a recording holds: those after ``dropped`` up to ``newest``; −1: none."""

    dropped: int
    newest: int


class Recording:
    """A recording that a recorder writes, or that retention shortens."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._handle = Handle(place)
        self._turn = -1
        self._since_tidy = 0

    def create(self, schema: pa.Schema, of: str) -> None:
        """Create the table if it does not exist.

        Args:
            schema: the columns of the source.
            of: what tells the recorded frame from others.

        Raises:
            QueryError: the table holds something else.
        """
        self.check(schema, of)
        whole = pa.schema([*MARKS, *(field.with_nullable(nullable=True) for field in schema)])
        open_or_create(self.place, whole, _TITLE + of)

    def check(self, schema: pa.Schema, of: str) -> None:
        """Raise a QueryError if the path holds something else than a recording of this frame. Writes nothing."""
        folder = self.place.folder
        if folder is not None and folder.exists() and (folder.is_file() or any(folder.iterdir())):
            required_recording(self.place)
        table = open_table(self.place)
        if table is None:
            check_outside(self.place.uri, self.place.options)
            return
        found = pa.schema(table.schema().to_arrow())
        columns = [field.name for field in found if field.name not in MARKS.names]
        same = [(field.name, field.type) for field in found if field.name in columns] == _stored(schema)
        if not (table.metadata().description or "").startswith(_TITLE):
            raise not_a_recording(self.place)
        if not same or table.metadata().description != _TITLE + of:
            why = "the input of another frame" if same else f"other columns: {', '.join(columns)}"
            raise QueryError(
                f"{self.place} already holds the recording of {why}.\n"
                "Record into another folder, or record the same frame as before to continue."
            )

    def claim(self) -> int:
        """Become the recording's only recorder, and return the number of the turn: one before fails from now on."""
        while True:
            table = self._handle.newest()
            if empty_commit(self.place, table, _RECORDER):
                self._turn = version_of(self._handle.newest(), _RECORDER)
                return self._turn

    def append(self, application: str, epoch: int, rows: DataFrame, position: SourcePosition | None = None) -> None:
        """Append what a recorder's epoch delivered as the next batch, unless it is there. Executors write the rows.

        ``position`` is how far the epoch has read its source, if that says so in its own offsets.

        Raises:
            StoreError: another recorder has taken over, or the rows cannot be written.
        """
        marks: dict[str, int] = {}

        def write(table: DeltaTable, _committed: int) -> list[DataFile]:
            if version_of(table, _RECORDER) != self._turn:
                raise StoreError(
                    f"Another recorder has taken over {self.place}.\nOnly one can record into a folder at a time."
                )
            newest = version_of(table, RECORDED)
            files = self._written(rows, pa.schema(table.schema().to_arrow()), newest + 1)
            marks[RECORDED] = newest + 1 if files else newest
            if files and position is not None:
                position.write(self.place, newest + 1)
            return files

        commit_once(self._handle, application, epoch, write, marks=marks)
        self._since_tidy += 1
        if self._since_tidy >= _TIDY_EVERY:
            self._since_tidy = 0
            self.tidy()

    def tidy(self) -> None:
        """Merge small files, and remove files that no version holds."""
        merge_small_files(self.place, BATCH)
        sweep(self.place)
        forget_positions(self.place, before=kept(self._handle.newest()).newest - _POSITIONS)

    def drop(self, upto: int, grace: timedelta = GRACE) -> int:
        """Drop the files whose batches are all up to a number; returns the newest batch that is dropped (−1: none).

        Nothing is rewritten. The files stay on disk for the grace period.
        """
        table = self._handle.if_exists()
        if table is None:
            return -1
        pinned = version_of(table, PINNED) if table.transaction_version(PINNED) is not None else upto
        upto = min(upto, pinned)
        going: list[Committed] = []
        marks: dict[str, int] = {}

        def write(table: DeltaTable, _committed: int) -> list[DataFile]:
            files = TableVersion(self.place, table).files(BATCH)
            # A batch can be in several files: what is dropped ends before the first batch that stays.
            stays = [-1 if file.least is None else file.least for file in files if not _ends_by(file, upto)]
            marks[DROPPED] = max(version_of(table, DROPPED), min([upto, *(least - 1 for least in stays)]))
            going[:] = [file for file in files if _ends_by(file, marks[DROPPED])]
            return []

        write(table, -1)
        if not going:
            return version_of(table, DROPPED)
        commit_once(
            self._handle,
            _RETENTION,
            version_of(table, _RETENTION) + 1,
            write,
            removes=lambda _: removals(going, data_change=True),
            marks=marks,
        )
        sweep(self.place, grace)
        return marks[DROPPED]

    def pin(self, batch: int) -> None:
        """Keep everything after a batch for good: a fork that was made there will read on from it."""
        while (table := self._handle.if_exists()) is not None:
            known = table.transaction_version(PINNED)
            if known is not None and known <= batch:
                return
            stood = version_of(table, _RETENTION)
            if commit_once(self._handle, _RETENTION, stood + 1, lambda *_: [], marks={PINNED: batch}) == stood:
                return

    def _written(self, rows: DataFrame, schema: pa.Schema, batch: int) -> list[DataFile]:
        task = TableTask(self.place, schema, ())
        return run_tasks(rows, partial(write_batch, task, batch), task).files


def required_recording(place: Place) -> DeltaTable:
    """Return a recording, which has to exist.

    Raises:
        QueryError: there is none.
    """
    table = open_table(place)
    if table is None or not (table.metadata().description or "").startswith(_TITLE):
        raise not_a_recording(place)
    return table


def not_a_recording(place: Place) -> QueryError:
    """Return the error for a path that holds something else."""
    return QueryError(
        f"{place} is not a recording of streamstate.\nPass a new folder to streamstate.record, or one that it made."
    )


def kept(table: DeltaTable) -> Kept:
    """Return the batches that a version of a recording holds."""
    return Kept(version_of(table, DROPPED), version_of(table, RECORDED))


def pin(uri: str, batch: int, options: Mapping[str, str] | None = None) -> None:
    """Pin a recording, if it is there: see :meth:`Recording.pin`."""
    with contextlib.suppress(StoreError):  # a recording that cannot be written is not shortened either
        Recording(Place(uri, options)).pin(batch)


def _stored(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Return columns as Delta stores them."""
    from deltalake import Schema

    stored = pa.schema(Schema.from_arrow(pa.schema(list(schema))).to_arrow())
    return [(field.name, field.type) for field in stored]


def _ends_by(file: Committed, batch: int) -> bool:
    return file.most is not None and file.most <= batch
