"""Rewriting a change log so that it holds the epochs that retention keeps and nothing else.

The changes between two kept epochs are folded into the later one: the last row of each key counts, and a key that came
and went in between vanishes. An epoch at which the log begins, or begins again after a gap, is a keyframe: it replaces
all changes before it, and its own changes go too. The manifest alone says what stays, so any later run can finish one
that was killed.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH
from streamstate.snapshots.store.changelog import DELETE, KEYFRAME, key_columns
from streamstate.snapshots.store.delta import Place, commit_once, open_table
from streamstate.snapshots.store.delta.commits import version_of
from streamstate.snapshots.store.delta.data_files import DataFile, write_file
from streamstate.snapshots.store.delta.maintenance import removals
from streamstate.snapshots.store.delta.reading import Committed, TableVersion
from streamstate.snapshots.store.delta.reusable_files import Prepared
from streamstate.snapshots.store.duckdb_sql import listed, quoted, same, spilling
from streamstate.snapshots.store.layout import RETENTION
from streamstate.snapshots.store.retention.kept_epochs import Stays

_BATCH = 100_000


@dataclass(frozen=True)
class Region:
    """The epochs to fold: after ``after`` (None: from the log's beginning) up to ``last``; both are kept."""

    after: int | None
    last: int

    @property
    def lower(self) -> int:
        """The epoch before the first folded one; −1 if the log begins with that."""
        return -1 if self.after is None else self.after


@dataclass(frozen=True)
class Folding:
    """One folded region of a version of a log; what exceeds memory is sorted on disk."""

    version: TableVersion
    stays: Stays
    region: Region

    def counts(self) -> dict[int, int]:
        """Return the number of rows that each epoch of the region has afterwards."""
        within = [epoch for epoch in self.stays.epochs if self.region.lower < epoch <= self.region.last]
        with self._winners() as database:
            found = dict(database.sql("SELECT _kept, count(*) FROM winners GROUP BY ALL").fetchall())
        return {epoch: found.get(epoch, 0) for epoch in within}

    @contextlib.contextmanager
    def rows(self) -> Iterator[pa.RecordBatchReader]:
        """The folded rows in the log's columns, ordered by epoch and key."""
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
        """A database with the relation ``winners``: which row of each key counts, and for which kept epoch."""
        names = key_columns(self.version.schema)
        keys = listed(names)
        with spilling() as database:
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

    @property
    def _basis(self) -> int | None:
        """The keyframe from which the state before the region is read; None if there is none."""
        return None if self.region.after is None else self.stays.keyframes[self.region.after]

    def _feed(self, columns: list[str]) -> pa.RecordBatchReader:
        """Return the state before the region, its changes, and keyframes at which the log begins again within it."""
        epoch, change = pc.field(EPOCH), pc.field(CHANGE)
        inner = [epoch for epoch in self.stays.starts if self.region.lower < epoch <= self.region.last]
        keyframes = [*inner, *([] if self._basis is None else [self._basis])]
        where = (change == KEYFRAME) & epoch.isin(pa.array(keyframes, pa.int64()))
        where = where | ((change != KEYFRAME) & (epoch > (-1 if self._basis is None else self._basis)))
        return self.version.scan(EPOCH, self._basis, self.region.last, columns=columns, where=where)

    def _takers(self) -> pa.Table:
        """For each epoch: the kept one it is folded into, whether the log begins there, and how often it has begun."""
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


@dataclass(frozen=True)
class Rewrite:
    """The rewriting of one version of a log: which files, and which of their epochs are folded."""

    version: TableVersion
    stays: Stays
    files: tuple[Committed, ...]
    region: Region | None

    @classmethod
    def of(cls, version: TableVersion, stays: Stays) -> Rewrite:
        """Find the rows to drop; this reads two columns of the files that may have such rows."""
        suspects = [file for file in version.files(EPOCH) if _may_hold_dropped(file, stays)]
        dirty = {file.path: _dropped_in(version, file, stays) for file in suspects}
        region = _region(sorted(set().union(*dirty.values())), stays)
        chosen = [
            file
            for file in version.files(EPOCH)
            if dirty.get(file.path) or (region is not None and file.may_hold(region.lower + 1, region.last))
        ]
        return cls(version, stays, tuple(chosen), region)

    def counts(self) -> dict[int, int]:
        """Return the number of rows that the folded epochs have afterwards; 0 for those at which the log begins."""
        folded = {} if self.region is None else Folding(self.version, self.stays, self.region).counts()
        return folded | dict.fromkeys(self.stays.starts, 0)

    def bytes_going(self) -> float:
        """Return the files' bytes, in proportion to their rows of dropped epochs."""
        dropped, size = _goes(self.stays), 0.0
        for file in self.files:
            rows = sum(batch.num_rows for batch in self.version.scan_files([file], columns=[EPOCH], where=dropped))
            size += file.size * rows / max(file.rows or rows, 1)
        return size

    def write(self) -> list[DataFile]:
        """Write the kept rows as new files in the order of their epochs."""
        version, where = self.version, self._copied()
        if self.region is None:
            return write_file(version.place, version.schema, version.scan_files(self.files, where=where))
        after = self.region.lower
        earlier = version.scan_files(self.files, where=where & (pc.field(EPOCH) <= after))
        written = write_file(version.place, version.schema, earlier)
        with Folding(version, self.stays, self.region).rows() as rows:
            written += write_file(version.place, version.schema, rows)
        later = version.scan_files(self.files, where=where & (pc.field(EPOCH) > after))
        return written + write_file(version.place, version.schema, later)

    def _copied(self) -> pc.Expression:
        """Return rows to copy unchanged: those of kept epochs that are not folded, and those of captures under way."""
        epoch, change = pc.field(EPOCH), pc.field(CHANGE)
        stays = epoch.isin(pa.array(self.stays.epochs, pa.int64()))
        begins = epoch.isin(pa.array(sorted(self.stays.starts), pa.int64()))
        unfolded = stays & ~begins
        if self.region is not None:
            unfolded = unfolded & ((epoch <= self.region.lower) | (epoch > self.region.last))
        return (epoch > self.stays.newest) | ((change == KEYFRAME) & stays) | ((change != KEYFRAME) & unfolded)


def drop(place: Place, generation: int, stays: Stays) -> int:
    """Rewrite a log so that it holds only what is kept, unless this or a later run has; returns the bytes freed.

    If that fails, the log is unchanged, and every epoch in the manifest can be read.
    """
    table = open_table(place)
    if table is None or version_of(table, RETENTION) >= generation:
        return 0
    rewrite = Rewrite(TableVersion(place, table), stays, (), None)

    def make(version: TableVersion) -> list[DataFile]:
        nonlocal rewrite
        rewrite = Rewrite.of(version, stays)
        return rewrite.write()

    def fits(version: TableVersion, added: Sequence[Committed], removed: set[str]) -> bool:
        suspects = [file for file in added if _may_hold_dropped(file, stays)]
        rewritten = {file.path for file in rewrite.files}
        return not (rewritten & removed) and not any(_dropped_in(version, file, stays) for file in suspects)

    prepared = Prepared(place, EPOCH, make, fits)
    stood = commit_once(
        place,
        RETENTION,
        generation,
        prepared.write,
        removes=lambda _: removals(rewrite.files, data_change=True),
        metadata={RETENTION: str(generation)},
        keeps_files=True,
    )
    if stood >= generation:
        prepared.discard()
        return 0
    return sum(file.size for file in rewrite.files) - prepared.size


def _may_hold_dropped(file: Committed, stays: Stays) -> bool:
    """Return whether a file may have rows to drop, according to the log's statistics."""
    if file.least is None or file.most is None:
        return True
    if file.least > stays.newest:
        return False
    if any(file.least <= epoch <= file.most for epoch in stays.starts):
        return True
    first = bisect_left(stays.epochs, file.least)
    span = range(file.least, min(file.most, stays.newest) + 1)
    return stays.epochs[first : first + len(span)] != tuple(span)


def _dropped_in(version: TableVersion, file: Committed, stays: Stays) -> set[int]:
    """Return the epochs of which a file has rows to drop."""
    batches = version.scan_files([file], columns=[EPOCH], where=_goes(stays))
    return {number for batch in batches for number in pc.unique(batch[EPOCH]).to_pylist()}


def _goes(stays: Stays) -> pc.Expression:
    """Return the rows to drop: those of dropped epochs, and the changes of epochs at which the log begins."""
    epoch, change = pc.field(EPOCH), pc.field(CHANGE)
    stay = epoch.isin(pa.array(stays.epochs, pa.int64()))
    begins = epoch.isin(pa.array(sorted(stays.starts), pa.int64()))
    return (epoch <= stays.newest) & (~stay | (begins & (change != KEYFRAME)))


def _region(dirty: Sequence[int], stays: Stays) -> Region | None:
    """Return the epochs into which dropped ones are folded; None if all are before the log's new beginning."""
    into = [stays.epochs[at] for epoch in dirty if (at := bisect_left(stays.epochs, epoch)) < len(stays.epochs)]
    into = [epoch for epoch in into if epoch not in stays.starts]
    if not into:
        return None
    at = bisect_left(stays.epochs, into[0])
    return Region(stays.epochs[at - 1] if at else None, into[-1])
