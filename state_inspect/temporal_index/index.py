"""The store's temporal index: an embedded DuckDB with an interval table per state table that was read."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from streamstate.errors import InvalidArgumentError, OvertakenError
from streamstate.snapshots.delta.commits import required
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.duckdb_sql import embedded
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.manifest import Entry, Manifest, log_version_of
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable
from streamstate.state_inspect.temporal_index.query_interrupts import interruptible
from streamstate.state_inspect.temporal_index.relations import Relations

# Of the machine's memory; DuckDB respects a container's limit.
_DEFAULT_MEMORY = "25%"
# After this many bytes of writes DuckDB compresses the versions and frees what updates replaced. Its default of 16 MB
# is reached only after a thousand small epochs, and doubles the size of an index of many large ones.
_COMPRESSED_AFTER = "4MB"


class Index:
    """Created on first use and updated as epochs arrive. Never the only copy of any data.

    Args:
        layout: the store.
        memory_limit: the memory that it may use, such as ``"4GB"``; the rest goes to a temporary folder.
    """

    def __init__(self, layout: Layout, memory_limit: str | None = None) -> None:
        self._layout = layout
        self._spilled = tempfile.TemporaryDirectory(prefix="streamstate-index-")
        self.folder = self._spilled.name
        """The folder for data that does not fit into memory, which exists as long as the index."""
        self._db = _database(self.folder, memory_limit)
        self._tables: dict[tuple[str, str], IntervalTable] = {}
        self._loading = threading.RLock()
        self._relations = Relations(self._db)

    def table(self, query: str, name: str, manifest: Manifest, first: int, last: int | None = None) -> IntervalTable:
        """The interval table with all captured epochs from ``first`` (−1: all), or at least those up to ``last``.

        After a run of retention a new one is built; those who hold the previous one can keep reading it.

        Args:
            query: the query's name.
            name: the state table's name.
            manifest: the query's manifest.
            first: the first epoch that is needed.
            last: the last epoch that is needed; None for the newest.
        """
        with self._loading:
            while True:
                found = self._tables.get((query, name))
                opened = found is None or found.generation < manifest.generation
                if found is None or opened:
                    found = self._tables[query, name] = self._made(query, name, manifest.generation)
                newest = manifest.newest
                try:
                    if newest is not None and not found.covers(first, newest.epoch if last is None else last):
                        found.cover(manifest.entries, first, opened=opened)
                    return found
                except OvertakenError:
                    before = manifest.generation
                    manifest.refresh()
                    if manifest.generation == before:
                        raise

    def held(self, query: str, name: str) -> IntervalTable | None:
        """The interval table as loaded so far, without reading anything; None if it was not loaded."""
        found = self._tables.get((query, name))
        return None if found is None or found.low is None else found

    def advance(self, query: str, manifest: Manifest) -> None:
        """Load new epochs of the tables of a query that were read before."""
        with self._loading:
            for known, name in list(self._tables):
                table = self._tables[known, name]
                if known == query and table.low is not None:
                    self.table(query, name, manifest, table.low)

    def dropped(self, query: str, name: str, entry: Entry) -> IntervalTable:
        """A state table at an epoch that retention has dropped since its entry was read.

        Raises:
            EpochDroppedError: the grace period of its files is over.
        """
        with self._loading, log_version_of(self._layout.change_log(query, name), entry, query) as version:
            found = self._made(query, name, entry.generation, version)
            found.load_one(entry.epoch, entry.tables[name].keyframe)
            return found

    def _made(self, query: str, name: str, generation: int, version: TableVersion | None = None) -> IntervalTable:
        relation = self._relations.named(f"{query}/{name}")
        if version is None:
            log = self._layout.change_log(query, name)
            version = TableVersion(log, required(log))
        found = IntervalTable(self._db, relation, name, version, generation)
        self._relations.owned_by(found, relation)
        return found

    def query(
        self, sql: str, parameters: list[Any] | None = None, frames: Mapping[str, pa.Table] | None = None
    ) -> pa.Table:
        """Run a statement that reads, isolated from concurrent loading.

        Args:
            sql: the statement.
            parameters: its parameters.
            frames: additional tables, by name, visible only to this statement.
        """
        with self.connection() as cursor:
            for name, frame in (frames or {}).items():
                cursor.register(name, frame)
            return as_arrow(cursor.sql(sql, params=parameters or None))

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


def as_arrow(relation: duckdb.DuckDBPyRelation) -> pa.Table:
    """The rows; sums of integers as 64-bit integers if they fit. DuckDB's 128-bit integers would become decimals."""
    rows = relation.to_arrow_table()
    for at, kind in enumerate(relation.types):
        if str(kind) == "HUGEINT":
            with contextlib.suppress(pa.ArrowInvalid):
                rows = rows.set_column(at, rows.schema.names[at], rows.column(at).cast(pa.int64()))
    return rows


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
