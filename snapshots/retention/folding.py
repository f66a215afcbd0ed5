"""The changes between two epochs that stay, folded into the later one.

The last row of each key counts, and a key that came and went in between vanishes. Where the log begins again after a
gap, its keyframe takes the place of all changes before it.
"""

from __future__ import annotations

import contextlib
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.change_log import DELETE, KEYFRAME, embedded, key_columns, listed, quoted, same
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.operators import CHANGE, EPOCH
from streamstate.snapshots.retention.keeping import Stays

_MEMORY, _BATCH = "512MB", 100_000


@dataclass(frozen=True)
class Region:
    """The epochs after ``after`` up to ``last`` are folded; both stay (None: from the log's beginning)."""

    after: int | None
    last: int

    @property
    def lower(self) -> int:
        """The epoch before the first that is folded, −1 where the log begins with it."""
        return -1 if self.after is None else self.after


@dataclass(frozen=True)
class Folding:
    """One region of one version of a log, folded; what does not fit into memory is sorted on disk."""

    version: TableVersion
    stays: Stays
    region: Region

    def counts(self) -> dict[int, int]:
        """How many rows each epoch of the region has afterwards."""
        within = [one for one in self.stays.epochs if self.region.lower < one <= self.region.last]
        with self._winners() as database:
            found = dict(database.sql("SELECT _kept, count(*) FROM winners GROUP BY ALL").fetchall())
        return {epoch: found.get(epoch, 0) for epoch in within}

    @contextlib.contextmanager
    def rows(self) -> Iterator[pa.RecordBatchReader]:
        """The folded rows with the log's columns, by epoch and key."""
        names = [name for name in self.version.schema.names if name != EPOCH]
        columns = ", ".join(f"log.{quoted(name)}" for name in names)
        keys = key_columns(self.version.schema)
        order = ", ".join(f"winners.{quoted(key)}" for key in keys)
        with self._winners() as database:
            database.register("log", self._feed(self.version.schema.names))
            yield database.sql(
                f"SELECT winners._kept AS {EPOCH}, {columns} FROM log JOIN winners ON log.{EPOCH} = winners.{EPOCH}"
                f" AND log.{CHANGE} = winners.{CHANGE} AND {same('log', 'winners', keys)}"
                f" ORDER BY winners._kept, {order}"
            ).to_arrow_reader(_BATCH)

    @contextlib.contextmanager
    def _winners(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A database with the relation ``winners``: which row of each key counts, and for which epoch."""
        names = key_columns(self.version.schema)
        keys = listed(names)
        with tempfile.TemporaryDirectory(prefix="streamstate-retention-") as folder:
            database = embedded(temp_directory=folder, memory_limit=_MEMORY)
            database.register("log", self._feed([EPOCH, CHANGE, *names]))
            database.register("takers", self._takers())
            database.execute(
                "CREATE TEMP TABLE winners AS WITH newest AS ("
                f" SELECT {keys}, _segment, _kept, max(log.{EPOCH}) AS {EPOCH},"
                f" arg_max({CHANGE}, log.{EPOCH}) AS {CHANGE} FROM log JOIN takers ON log.{EPOCH} = takers.{EPOCH}"
                f" WHERE NOT _begins OR {CHANGE} = '{KEYFRAME}' GROUP BY ALL),"
                f" marked AS (SELECT *, lag({CHANGE}) OVER (PARTITION BY _segment, {keys} ORDER BY _kept) AS _before"
                " FROM newest)"
                f" SELECT {keys}, _kept, {EPOCH}, {CHANGE} FROM marked"
                f" WHERE _kept > {self.region.lower} AND {CHANGE} <> '{KEYFRAME}'"
                f" AND ({CHANGE} <> '{DELETE}' OR coalesce(_before, '{DELETE}') <> '{DELETE}')"
            )
            database.unregister("log")
            yield database
            database.close()

    @property
    def _basis(self) -> int | None:
        """The keyframe from which the state before the region is read; None where there is none."""
        return None if self.region.after is None else self.stays.keyframes[self.region.after]

    def _feed(self, columns: list[str]) -> pa.RecordBatchReader:
        """The state before the region, its changes, and the keyframes at which the log begins again within it."""
        epoch, change = pc.field(EPOCH), pc.field(CHANGE)
        inner = [one for one in self.stays.starts if self.region.lower < one <= self.region.last]
        keyframes = [*inner, *([] if self._basis is None else [self._basis])]
        where = (change == KEYFRAME) & epoch.isin(pa.array(keyframes, pa.int64()))
        where = where | ((change != KEYFRAME) & (epoch > (-1 if self._basis is None else self._basis)))
        return self.version.scan(EPOCH, self._basis, self.region.last, columns=columns, where=where)

    def _takers(self) -> pa.Table:
        """For each epoch the one that takes in its rows, whether the log begins there, and how often it has by then."""
        epochs = self.stays.epochs
        begins = [epoch in self.stays.starts for epoch in epochs]
        segments = list(accumulate(map(int, begins)))
        numbers = range(self._basis or 0, self.region.last + 1)
        places = [bisect_left(epochs, number) for number in numbers]
        return pa.table(
            {
                EPOCH: pa.array(numbers, pa.int64()),
                "_kept": pa.array([epochs[at] for at in places], pa.int64()),
                "_begins": pa.array([begins[at] for at in places], pa.bool_()),
                "_segment": pa.array([segments[at] for at in places], pa.int64()),
            }
        )
