"""The temporal index of one state table: every version of every key with the epochs at which it held.

``_valid_from`` is the epoch that wrote the version, ``_valid_to`` the one that replaced or removed it (NULL while it
holds), so that "at epoch e" is a filter and a key's history a lookup. It is made from the change log and can always
be made again from it. Versions are only ever added and closed, never changed: what a reader sees at an epoch stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.change_log import (
    KEYFRAME,
    PUT,
    check_generation,
    key_columns,
    listed,
    quoted,
    rows_since,
    same,
    value_columns,
)
from streamstate.snapshots.delta import Place
from streamstate.snapshots.delta.commits import required, update
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.manifest import Entry
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION


@dataclass(frozen=True)
class _Segment:
    """Epochs between which there is no gap; dropped ones between them are folded into those that stay."""

    first: int
    last: int
    broken: bool
    """The segment starts with a keyframe instead of following what came before."""
    gap: int | None = None
    """The first epoch of the gap before the segment."""


class IntervalTable:
    """One state table's versions, kept in DuckDB.

    Args:
        database: a connection to the index; a cursor of it is used for loading.
        name: the relation's name in the index.
        place: the change log.
        generation: how many runs of retention the manifest has been through that it is loaded by.
        version: the log as it was, instead of the newest.
    """

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        name: str,
        place: Place,
        generation: int = 0,
        version: TableVersion | None = None,
    ) -> None:
        self.relation = quoted(name)
        self.generation = generation
        self.name = place.uri.rsplit("/", 1)[-1]
        """The state table's name."""
        self.epoch = -1
        """The newest epoch that the index has."""
        self.starts: set[int] = set()
        """Epochs at which the log starts anew with a keyframe."""
        self._version = version or TableVersion(place, required(place))
        self._db = database.cursor()
        self.schema = self._version.schema
        self.key_columns = key_columns(self.schema)
        self.value_columns = value_columns(self.schema)
        self._create()

    @property
    def columns(self) -> list[str]:
        """Key columns, then value columns."""
        return [*self.key_columns, *self.value_columns]

    def at(self, epoch: int) -> str:
        """SQL for the rows that held at an epoch."""
        return f"SELECT {listed(self.columns)} FROM {self.relation} WHERE {held_at(epoch)}"

    def advance(self, entries: Sequence[Entry]) -> None:
        """Load what the manifest's entries add to what is indexed.

        Raises:
            OvertakenError: where retention has rewritten the log since they were read.
        """
        newest = max((entry.epoch for entry in entries if entry.captured), default=-1)
        if newest <= self.epoch:
            return
        update(self._version.place, self._version.table)
        check_generation(self._version, self.generation)
        for segment in _segments(entries, self.epoch, self.name):
            self._load(segment)
        self.epoch = newest

    def load_one(self, epoch: int, keyframe: int | None) -> None:
        """Load a single epoch from the log as it stands."""
        self._load(_Segment(-1 if keyframe is None else keyframe, epoch, broken=keyframe is not None))
        self.epoch = epoch

    def _create(self) -> None:
        fields = [self.schema.field(name) for name in [PARTITION, *self.columns]]
        intervals = [pa.field("_valid_from", pa.int64()), pa.field("_valid_to", pa.int64())]
        self._db.register("empty", pa.schema(intervals + fields).empty_table())
        self._db.execute(f"CREATE OR REPLACE TABLE {self.relation} AS FROM empty")
        self._db.unregister("empty")

    def _load(self, segment: _Segment) -> None:
        keys = listed(self.key_columns)
        self._db.register("feed", self._rows(segment))
        self._db.execute("BEGIN")
        try:
            self._db.execute(
                "CREATE OR REPLACE TEMP TABLE incoming AS"
                f" SELECT *, lead(_epoch) OVER (PARTITION BY {keys} ORDER BY _epoch) AS _until FROM feed"
            )
            self._close(segment)
            self._db.execute(
                f"INSERT INTO {self.relation} SELECT _epoch, _until, {listed([PARTITION, *self.columns])}"
                f" FROM incoming WHERE _change IN ('{PUT}', '{KEYFRAME}')"
            )
            self._db.execute("DROP TABLE incoming")
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        finally:
            self._db.unregister("feed")

    def _rows(self, segment: _Segment) -> pa.RecordBatchReader:
        """The log's rows of a segment; keyframes matter only where nothing comes before."""
        if segment.broken:
            return rows_since(self._version, segment.first, segment.last)
        changes = pc.field(CHANGE) != KEYFRAME
        return self._version.scan(EPOCH, segment.first, segment.last, where=changes)

    def _close(self, segment: _Segment) -> None:
        """End the versions that the segment replaces or removes."""
        if segment.broken:
            if segment.gap is not None:
                self._db.execute(f"UPDATE {self.relation} SET _valid_to = {segment.gap} WHERE _valid_to IS NULL")
            self.starts.add(segment.first)
            return
        self._db.execute(
            f"UPDATE {self.relation} AS held SET _valid_to = newer._epoch FROM ("
            f" SELECT {listed(self.key_columns)}, min(_epoch) AS _epoch FROM incoming GROUP BY ALL) AS newer"
            f" WHERE held._valid_to IS NULL AND {same('held', 'newer', self.key_columns)}"
        )


def held_at(epoch: int) -> str:
    """The SQL condition that a version held at an epoch."""
    return f"_valid_from <= {epoch} AND (_valid_to IS NULL OR _valid_to > {epoch})"


def _segments(entries: Sequence[Entry], after: int, table: str) -> Iterator[_Segment]:
    """The captured epochs after one that have the table, cut at the gaps."""
    found: list[_Segment] = []
    gap: int | None = None
    begins = True
    for entry in entries:
        if not entry.captured:
            gap, begins = entry.epoch if gap is None else gap, True
        elif table in entry.tables:
            broken = begins and entry.tables[table].keyframe is not None
            if entry.epoch <= after:
                pass
            elif begins or not found:
                found.append(_Segment(entry.epoch, entry.epoch, broken=broken, gap=gap))
            else:
                found[-1] = replace(found[-1], last=entry.epoch)
            gap, begins = None, False
    yield from found
