"""The store's temporal index: an embedded DuckDB with an interval table per state table that was read."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import threading
import weakref
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from streamstate.errors import IndexFullError, InvalidArgumentError
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.duckdb_sql import embedded, quoted
from streamstate.snapshots.store.entries import Entry
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest, log_version_of
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at
from streamstate.state_inspect.temporal_index.query_interrupts import interruptible
from streamstate.state_inspect.temporal_index.segments import Segments

# Of the machine's memory; DuckDB respects a container's limit.
_DEFAULT_MEMORY = "25%"
# Tables with the versions of some keys only, such as those whose histories were looked at.
_KEYS_KEPT = 50
# After this many bytes of writes DuckDB compresses the versions and frees what updates replaced. Its default of 16 MB
# is reached only after a thousand small epochs, and doubles the size of an index of many large ones.
_COMPRESSED_AFTER = "4MB"
# For more epochs than these, all are counted at once.
_FEW = 4


class Index:
    """Created on first use and updated as epochs arrive. Never the only copy of any data.

    Args:
        layout: the store.
        memory_limit: the memory that it may use, such as ``"4GB"``; the rest goes to a temporary folder.
    """

    def __init__(self, layout: Layout, memory_limit: str | None = None) -> None:
        self._layout = layout
        self._spilled = tempfile.TemporaryDirectory(prefix="streamstate-index-", dir=_scratch())
        self.folder = self._spilled.name
        """The folder for data that does not fit into memory, which exists as long as the index."""
        self._db = _database(self.folder, memory_limit)
        limit = "SELECT parse_formatted_bytes(current_setting('memory_limit'))"
        [(self._memory,)] = self._db.execute(limit).fetchall()
        self._tables: dict[tuple[str, str], Segments] = {}
        self._of_keys: OrderedDict[tuple[str, str, str], Segments] = OrderedDict()  # in the order of use
        self._opening = threading.RLock()
        self._relations = _Relations(self._db)

    def table(
        self,
        query: str,
        name: str,
        manifest: Manifest,
        first: int,
        last: int | None = None,
        *,
        only: pa.Table | None = None,
        keep: bool = True,
    ) -> IntervalTable:
        """Return an interval table with all captured epochs from ``first`` (−1: all) to ``last``.

        After a run of retention a new one is built; those who hold the previous one can keep reading it.

        Args:
            query: the query's name.
            name: the state table's name.
            manifest: the query's manifest.
            first: the first epoch that is needed.
            last: the last epoch that is needed; None for the newest.
            only: keys, as rows of some key columns; the table has only versions of them. By default it has all.
            keep: whether past epochs that have to be loaded are kept for later questions.
        """
        segments = self._segments(query, name, only)
        try:
            return segments.covering(manifest, first, last, keep=keep)
        except IndexFullError:
            # The past tables of all state tables make room.
            if not sum([each.shed() for each in list(self._tables.values())]):
                raise
            return segments.covering(manifest, first, last, keep=keep)

    def held(self, query: str, name: str) -> IntervalTable | None:
        """Return the loaded interval table of the newest epochs; None if there is none."""
        found = self._tables.get((query, name))
        return None if found is None else found.live

    def loaded(self, query: str, name: str) -> list[IntervalTable]:
        """Return all interval tables of a state table as loaded so far, without reading anything."""
        found = self._tables.get((query, name))
        return [] if found is None else found.loaded

    def counts(self, query: str, name: str) -> Mapping[int, int]:
        """Return the rows of a state table at the epochs that were counted so far."""
        found = self._tables.get((query, name))
        return {} if found is None else found.counts

    def advance(self, query: str, manifest: Manifest) -> None:
        """Load new epochs of the tables of a query whose newest epochs were read before."""
        for (known, _), segments in list(self._tables.items()):
            live = segments.live
            if known == query and live is not None and live.low is not None:
                segments.covering(manifest, live.high)

    def dropped(self, query: str, name: str, entry: Entry) -> IntervalTable:
        """Return a state table at an epoch that retention has dropped since its entry was read.

        Raises:
            EpochDroppedError: the grace period of its files is over.
        """
        with log_version_of(self._layout.changelog(query, name), entry, query) as version:
            found = self._opened(query, name, entry.generation, version)
            found.load_one(entry.epoch, entry.tables[name].keyframe)
            return found

    def _segments(self, query: str, name: str, only: pa.Table | None) -> Segments:
        with self._opening:
            if only is not None:
                keys = query, name, repr(only.to_pylist())
                found = self._of_keys.pop(keys, None) or Segments(
                    partial(self._opened, query, name, only=only), self._memory
                )
                self._of_keys[keys] = found
                while len(self._of_keys) > _KEYS_KEPT:
                    self._of_keys.popitem(last=False)
                return found
            if (query, name) not in self._tables:
                self._tables[query, name] = Segments(partial(self._opened, query, name), self._memory)
            return self._tables[query, name]

    def _opened(
        self,
        query: str,
        name: str,
        generation: int,
        version: TableVersion | None = None,
        *,
        only: pa.Table | None = None,
    ) -> IntervalTable:
        if version is None:
            log = self._layout.changelog(query, name)
            version = TableVersion(log, required(log))
        label = f"{query}/{name}"
        with self._opening:
            relation = self._relations.named(label)
            found = IntervalTable(self._db, relation, name, version, generation, label=label, only=only)
            self._relations.owned_by(found, relation)
        return found

    def query(
        self, sql: str, parameters: list[Any] | None = None, frames: Mapping[str, pa.Table] | None = None
    ) -> pa.Table:
        """Run a statement that reads, isolated from concurrent loading.

        ``frames`` are additional tables, by name, visible only to this statement.
        """
        with self.connection() as cursor:
            for name, frame in (frames or {}).items():
                cursor.register(name, frame)
            return as_arrow(cursor.sql(sql, params=parameters or None))

    def query_parts(self, statements: Iterable[tuple[str, list[Any]]], sql: str) -> pa.Table:
        """Run a statement on the rows of others, which fit on disk but perhaps not into memory.

        Each statement, with its parameters, runs before the next one is made. ``sql`` reads their rows from ``parts``,
        with the number of the statement as ``_part``.
        """
        with self.connection() as cursor:
            for number, (statement, parameters) in enumerate(statements):
                into = "INSERT INTO parts" if number else "CREATE TEMP TABLE parts AS"
                cursor.execute(f"{into} SELECT *, {number} AS _part FROM ({statement})", parameters or None)
            return as_arrow(cursor.sql(sql))

    def keep(self, table: IntervalTable, sql: str, frames: Mapping[str, pa.Table]) -> str:
        """Keep the rows of a statement for as long as a table lives.

        Args:
            table: the table.
            sql: the statement.
            frames: additional tables, by name, visible only to the statement.

        Returns:
            The relation that has the rows.
        """
        with self._opening:
            relation = self._relations.named("kept")
            self._relations.owned_by(table, relation)
        with self.connection() as cursor:
            for name, frame in frames.items():
                cursor.register(name, frame)
            cursor.execute(f"CREATE TABLE {quoted(relation)} AS {sql}")
        return quoted(relation)

    @contextlib.contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a connection to the index for one reader; what it registers is not visible to others.

        Raises:
            QueryStopped: the task that uses it was stopped.
        """
        cursor = self._db.cursor()
        try:
            with interruptible(cursor):
                yield cursor
        finally:
            cursor.close()


class _Relations:
    """Names of relations, each dropped after its table is garbage-collected. Used under the index's lock."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._db = database.cursor()
        self._numbers = itertools.count(2)
        self._taken: set[str] = set()
        # Filled during garbage collection, when no statement may run.
        self._unused: deque[str] = deque()

    def named(self, name: str) -> str:
        """Return a unique name for a new relation; first drops those that are no longer used."""
        while self._unused:
            self._db.execute(f"DROP TABLE IF EXISTS {quoted(self._unused.popleft())}")
        chosen = name if name not in self._taken else f"{name}#{next(self._numbers)}"
        self._taken.add(chosen)
        return chosen

    def owned_by(self, table: IntervalTable, relation: str) -> None:
        """Drop the relation after the table is garbage-collected."""
        weakref.finalize(table, self._unused.append, relation)


def as_arrow(relation: duckdb.DuckDBPyRelation) -> pa.Table:
    """Return the rows; 128-bit sums of integers as 64-bit integers if they fit, instead of decimals."""
    rows = relation.to_arrow_table()
    for at, kind in enumerate(relation.types):
        if str(kind) == "HUGEINT":
            with contextlib.suppress(pa.ArrowInvalid):
                rows = rows.set_column(at, rows.schema.names[at], rows.column(at).cast(pa.int64()))
    return rows


def _scratch() -> str | None:
    """Return the folder that Spark removes when its application ends, in a Python worker, which Spark kills."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return folder if folder and Path(folder).is_dir() else None


def _database(folder: str, memory_limit: str | None) -> duckdb.DuckDBPyConnection:
    try:
        return embedded(
            temp_directory=folder,
            memory_limit=memory_limit or _DEFAULT_MEMORY,
            checkpoint_threshold=_COMPRESSED_AFTER,
        )
    except duckdb.Error as error:
        raise InvalidArgumentError(
            f"Invalid memory_limit={memory_limit!r}: expected an amount such as '4GB' or '512MiB'."
        ) from error


def rows_at(index: Index, table: IntervalTable, epoch: int) -> int:
    """Return the number of rows at an epoch that the index has."""
    return row_counts(index, table, [epoch])[epoch]


def row_counts(index: Index, table: IntervalTable, epochs: Iterable[int]) -> dict[int, int]:
    """Return the number of rows at each of some epochs that the index has; each epoch is counted once."""
    wanted = list(epochs)
    missing = [epoch for epoch in wanted if epoch not in table.counts]
    if len(missing) > _FEW:
        table.counts.update(_all_at_once(index, table, missing))
    else:
        for epoch in missing:
            found = index.query(f"SELECT count(*) AS n FROM {table.relation} WHERE {held_at(epoch)}")
            table.counts[epoch] = found["n"][0].as_py()
    return {epoch: table.counts[epoch] for epoch in wanted}


def _all_at_once(index: Index, table: IntervalTable, epochs: Iterable[int]) -> dict[int, int]:
    """Return a running sum of the versions that begin and end at each epoch; a replaced one does both."""
    found = index.query(
        "SELECT epoch, (sum(sum(n)) OVER (ORDER BY epoch))::BIGINT AS n FROM"
        f" (SELECT _valid_from AS epoch, count(*) AS n FROM {table.relation} GROUP BY ALL"
        f" UNION ALL SELECT _valid_to, -count(*) FROM {table.relation} GROUP BY ALL) GROUP BY epoch ORDER BY epoch"
    )
    changed, counts = found["epoch"].to_pylist(), found["n"].to_pylist()
    return {epoch: counts[at - 1] if (at := bisect_right(changed, epoch)) else 0 for epoch in epochs}
