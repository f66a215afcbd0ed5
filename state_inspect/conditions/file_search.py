"""The first epoch at which a condition held, found in the files of a changelog: no index is loaded for it."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing

import duckdb

from streamstate.snapshots.checkpoint.state_tables import EPOCH
from streamstate.snapshots.store.changelog import KEYFRAME, PUT, ChangeLog
from streamstate.snapshots.store.delta.data_files import verified
from streamstate.snapshots.store.delta.reading import Committed
from streamstate.snapshots.store.duckdb_sql import embedded
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.sql.condition_policy import condition_failed, predicate_sql
from streamstate.state_inspect.temporal_index.epoch_runs import runs_of
from streamstate.state_inspect.temporal_index.interval_table import held_at
from streamstate.state_inspect.temporal_index.loading import report_rows
from streamstate.state_inspect.temporal_index.query_interrupts import interruptible

# The epochs of one group are known before the next is read.
_FILES_AT_ONCE = 8


def first_epoch_in_files(query: CapturedQuery, table: str, predicate: str) -> int | None:
    """Return the first captured epoch at which any row met a condition; see :meth:`History.first`.

    Files are read in the order of their epochs, up to the first that answers it.
    """
    log = query.changelog(table)
    search = _Search(query.name, log, f"({predicate_sql(predicate, log.columns, table)})")
    captured = log.entries.captured
    after = -1
    while (found := search.first_written(after)) is not None:
        at = bisect_left(captured, found)
        if at == len(captured):
            return None
        # Retention may have dropped the epoch; the row may be gone from the next one that is kept.
        if captured[at] == found or _holds(query, table, captured[at], search.condition):
            return captured[at]
        after = found
    return None


def _holds(query: CapturedQuery, table: str, epoch: int, condition: str) -> bool:
    held = query.interval_table(table, epoch, epoch)
    rows = f"SELECT 1 FROM {held.relation} WHERE {held_at(epoch)} AND {condition} LIMIT 1"
    return bool(query.index.query(rows).num_rows)


class _Search:
    def __init__(self, query: str, log: ChangeLog, condition: str) -> None:
        self.condition = condition
        self._name = f"{query}/{log.table}"
        self._log = log
        starts = [run.first for run in runs_of(log.facts) if run.starts_at_keyframe]
        known = f"_change = '{KEYFRAME}' AND {EPOCH} IN ({', '.join(map(str, starts)) or 'NULL'})"
        self._written = f"(_change = '{PUT}' OR {known})"
        newest = max(log.entries.captured, default=-1)
        self._files = [
            file
            for file in log.version.files(EPOCH)
            if file.may_hold(None, newest)
            and (file.only_change != KEYFRAME or any(file.may_hold(start, start) for start in starts))
        ]
        self._newest = newest

    def first_written(self, after: int) -> int | None:
        """Return the first epoch after another that wrote a row which meets the condition."""
        best: int | None = None
        read, expected = 0, sum(file.rows or 0 for file in self._files)
        for files in _batched([file for file in self._files if file.may_hold(after + 1, None)]):
            if best is not None and files[0].least is not None and files[0].least > best:
                break
            found = self._first_of(files, after)
            best = min((epoch for epoch in (best, found) if epoch is not None), default=None)
            read += sum(file.rows or 0 for file in files)
            report_rows(self._name, read, expected)
        return best

    def _first_of(self, files: Sequence[Committed], after: int) -> int | None:
        place = self._log.version.place
        paths = [str(verified(place, file.path, file.size)) for file in files]
        with closing(embedded(allowed_paths=paths)) as database, interruptible(database):
            # Files from before a column was added lack it.
            database.register("columns_of", self._log.schema.empty_table())
            sql = (
                f"SELECT min({EPOCH}) FROM (FROM columns_of UNION ALL BY NAME"
                " FROM read_parquet(?, union_by_name = true))"
                f" WHERE {EPOCH} > {after} AND {EPOCH} <= {self._newest} AND {self._written} AND {self.condition}"
            )
            try:
                [(found,)] = database.execute(sql, [paths]).fetchall()
            except duckdb.Error as error:
                raise condition_failed(error) from error
        return None if found is None else int(found)


def _batched(files: Sequence[Committed]) -> Iterator[Sequence[Committed]]:
    rest = iter(files)
    while group := list(itertools.islice(rest, _FILES_AT_ONCE)):
        yield group
