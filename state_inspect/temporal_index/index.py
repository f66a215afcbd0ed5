"""The store's temporal index: one embedded DuckDB with an interval table per state table that was asked for."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from streamstate.snapshots.change_log import embedded
from streamstate.snapshots.delta.commits import required
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.errors import InvalidArgumentError, OvertakenError
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.manifest import Entry, Manifest
from streamstate.snapshots.retention.dropped import held_version
from streamstate.state_inspect.frames import with_whole_numbers
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable
from streamstate.state_inspect.temporal_index.relations import Relations

# Of the machine's memory; DuckDB knows a container's limit too.
_DEFAULT_MEMORY = "25%"
# After so much was written DuckDB compresses the versions and lets go of what updates replaced; its own 16 MB come only
# after a thousand small epochs, and leave the index of many large ones twice as big.
_COMPRESSED_AFTER = "4MB"


class Index:
    """Made on first use, brought forward as epochs arrive, never the only copy of anything.

    Args:
        layout: where the store is.
        memory_limit: what it may take of memory, such as ``"4GB"``; the rest goes to a temporary folder.
    """

    def __init__(self, layout: Layout, memory_limit: str | None = None) -> None:
        self._layout = layout
        self._spilled = tempfile.TemporaryDirectory(prefix="streamstate-index-")
        self.folder = self._spilled.name
        """Where what does not fit into memory goes, as long as the index is there."""
        self._db = _database(self.folder, memory_limit)
        self._tables: dict[tuple[str, str], IntervalTable] = {}
        self._loading = threading.RLock()
        self._relations = Relations(self._db)

    def table(self, query: str, name: str, manifest: Manifest, first: int, last: int | None = None) -> IntervalTable:
        """The interval table, with all captured epochs from one on (−1: all), or at least those up to another.

        After a run of retention it is made anew; whoever holds the one before goes on reading from that.

        Args:
            query: the query's name.
            name: the state table's.
            manifest: the query's manifest.
            first: the first epoch that is needed.
            last: the last epoch that is needed; None: the newest.
        """
        with self._loading:
            while True:
                found = self._tables.get((query, name))
                if found is None or found.generation < manifest.generation:
                    found = self._tables[query, name] = self._made(query, name, manifest.generation)
                newest = manifest.newest
                try:
                    if newest is not None and not found.covers(first, newest.epoch if last is None else last):
                        found.cover(manifest.entries, first)
                    return found
                except OvertakenError:
                    before = manifest.generation
                    manifest.refresh()
                    if manifest.generation == before:
                        raise

    def held(self, query: str, name: str) -> IntervalTable | None:
        """The interval table as far as it was read before; None where it was not: nothing is read for this."""
        found = self._tables.get((query, name))
        return None if found is None or found.low is None else found

    def advance(self, query: str, manifest: Manifest) -> None:
        """Bring those tables of a query forward that were read before."""
        with self._loading:
            for known, name in list(self._tables):
                table = self._tables[known, name]
                if known == query and table.low is not None:
                    self.table(query, name, manifest, table.low)

    def dropped(self, query: str, name: str, entry: Entry) -> IntervalTable:
        """A state table at an epoch that retention has dropped since its entry was read.

        Raises:
            EpochDroppedError: where the grace period of its files is over.
        """
        with self._loading, held_version(self._layout.change_log(query, name), entry, query) as version:
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
        """Run a statement that reads, isolated from what is loaded meanwhile.

        Args:
            sql: the statement.
            parameters: its parameters.
            frames: what it reads besides the index, by name; nobody else sees them.
        """
        with self.connection() as cursor:
            for name, frame in (frames or {}).items():
                cursor.register(name, frame)
            relation = cursor.sql(sql, params=parameters or None)
            return with_whole_numbers(relation.to_arrow_table(), [str(kind) for kind in relation.types])

    @contextlib.contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of its own to the index, for one reader: what it registers, nobody else sees."""
        cursor = self._db.cursor()
        try:
            yield cursor
        finally:
            cursor.close()


def _database(folder: str, memory_limit: str | None) -> duckdb.DuckDBPyConnection:
    try:
        return embedded(
            temp_directory=folder,
            memory_limit=memory_limit or _DEFAULT_MEMORY,
            checkpoint_threshold=_COMPRESSED_AFTER,
        )
    except duckdb.Error as error:
        raise InvalidArgumentError(
            f"memory_limit={memory_limit!r} cannot be meant: give an amount such as '4GB' or '512MiB'."
        ) from error
