"""The change log of a state table, open for writing: rows of epochs, keyframes, and what its commits say of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.state_tables import EPOCH, StateSource
from streamstate.snapshots.store.changelog import Operator, check_generation, log_schema, with_beginning
from streamstate.snapshots.store.delta import Place, append_once, open_or_create
from streamstate.snapshots.store.delta.commits import Handle, recent_metadata, version_of
from streamstate.snapshots.store.delta.data_files import DataFile
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.entries import TableCounts, TableEntry
from streamstate.snapshots.store.keyframes import keyframe_file

_ENTRIES = "streamstate.epochs"
_VERDICTS = ("verified", "differs")


@dataclass
class VerifiedFormats:
    """Records whether rows decoded in a format were what Spark reads, once and for all captures.

    A record is a transaction identifier of the change log, named after the query, what was compared, the versions of
    Spark and streamstate, and the format. So it is found without a scan, a newer version of either compares again, and
    no other query's store has it. A difference outlives any confirmation, also that of a capture at the same time.
    """

    handle: Handle
    application: str
    """The transaction identifier of the table's captures, which begins with the query's id."""
    pending: dict[str, int] = field(default_factory=dict)
    """Identifiers and versions that the next commit of rows records (see ``marks`` of :func:`commit_once`)."""

    def has(self, what: str, layout: TableFormat, spark: str) -> bool:
        """Return whether a version of Spark has confirmed ``what``, such as ``changes``, and never differed."""
        table = self.handle.if_exists()
        if table is None:
            return False
        confirmed, differs = (version_of(table, self._name(what, layout, spark, verdict)) for verdict in _VERDICTS)
        return confirmed > -1 and differs == -1

    def note(self, what: str, layout: TableFormat, spark: str, *, equal: bool) -> None:
        """Write the result of a comparison with the next commit."""
        self.pending[self._name(what, layout, spark, _VERDICTS[0 if equal else 1])] = 1

    def _name(self, what: str, layout: TableFormat, spark: str, verdict: str) -> str:
        digest = hashlib.sha256(repr(layout).encode()).hexdigest()[:16]
        return f"{self.application}/{verdict}/{what}/spark-{spark}/streamstate-{_own_version()}/{digest}"


@cache
def _own_version() -> str:
    return version("streamstate")


@dataclass(frozen=True)
class LogPosition:
    """The position in a table's log at which a pass begins."""

    epoch: int | None
    """The newest captured epoch; None if the log starts from nothing, at epoch 0."""
    entry: TableEntry | None
    """The manifest's facts of the table at that epoch."""
    restarts: bool = False
    """The log has to start with a keyframe: after a gap, or because the first epochs are gone."""
    counts: TableCounts | None = None
    """The manifest's counts up to there, for a log that this process has not written so far."""

    @property
    def last(self) -> int:
        """The newest captured epoch as a number; −1 if there is none."""
        return -1 if self.epoch is None else self.epoch

    @property
    def begins_empty(self) -> bool:
        """True if the table has no rows there."""
        return not self.restarts and self.entry is None


class TableLog:
    """The change log of one state table, open for writing; ``application`` identifies its captures' transactions."""

    def __init__(self, source: StateSource, place: Place, application: str) -> None:
        self.source = source
        self.place = place
        self.application = application
        self.handle = Handle(place)
        self.verified = VerifiedFormats(self.handle, application)
        self._schema: pa.Schema | None = None
        self.written = 0
        """Rows written so far."""
        self.advice: str | None = None
        """Settings that would make the table cheaper to capture; None: there are none."""

    @property
    def keyframes(self) -> str:
        """The transaction identifier of keyframes that are not part of an epoch's commit; its versions are epochs."""
        return f"{self.application}/keyframes"

    def newest_keyframe(self) -> int:
        """Return the newest epoch with a keyframe that is not part of the epoch's commit; −1 if there is none."""
        table = self.handle.if_exists()
        return -1 if table is None else version_of(table, self.keyframes)

    def create(self, columns: pa.Schema, keys: Sequence[str], epoch: int) -> None:
        """Create the log, or add the columns that it lacks, which start at an epoch."""
        schema = log_schema(columns, keys, Operator(self.source.operator, self.source.time_mode))
        existing = self.handle.if_exists()
        if existing is not None:
            schema = with_beginning(schema, TableVersion(self.place, existing).schema, epoch)
        open_or_create(self.handle, schema, f"streamstate: change log of {self.source.table}")

    def append(
        self, rows: pa.Table, keys: Sequence[str], entries: dict[int, TableEntry], base: int
    ) -> dict[int, TableEntry]:
        """Commit the rows of consecutive epochs, unless another capture has; return what the manifest will say of each.

        Args:
            rows: the rows in the log's columns.
            keys: the key columns.
            entries: what to commit of each epoch.
            base: the newest epoch that this capture knows to be in the log; −1 if there is none.
        """
        if rows.schema != self._schema:
            self.create(rows.schema, keys, min(entries))
            self._schema = rows.schema
        stood = base
        if rows.num_rows:
            stood = append_once(
                self.handle,
                self.application,
                max(entries),
                lambda newest: rows.filter(pc.greater(rows[EPOCH], newest)) if newest > base else rows,
                metadata=entries_as_metadata(entries),
                marks=self.verified.pending,
            )
            if stood < max(entries):
                self.verified.pending.clear()
            self.written += rows.num_rows
        # Epochs that another capture has put into the log stay as it wrote them.
        return entries | (self.entries_in_commits([*entries], stood) if stood > base else {})

    def keyframe_files(self, table: DeltaTable, epoch: int, entry: TableEntry, /) -> list[DataFile]:
        """Write a keyframe, folded from the log: Spark's reader would cost the query's machine more."""
        version = TableVersion(self.place, table)
        check_generation(version, entry.generation)
        return keyframe_file(version, epoch, entry.keyframe)

    def entries_in_commits(self, epochs: Sequence[int], upto: int) -> dict[int, TableEntry]:
        """Return what the log's commits say of some epochs up to one; another capture may have written them."""
        entries: dict[int, TableEntry] = {}
        for text in recent_metadata(self.place, _ENTRIES):
            entries |= {epoch: TableEntry(*values) for epoch, *values in json.loads(text)}
        return {epoch: entry for epoch, entry in entries.items() if epoch in epochs and epoch <= upto}


def entries_as_metadata(entries: dict[int, TableEntry]) -> dict[str, str]:
    """Return what a commit of the log says of its epochs, for a capture that finds them there."""
    values = [[epoch, entry.rows, entry.changes, entry.keyframe] for epoch, entry in entries.items()]
    return {_ENTRIES: json.dumps(values)}
