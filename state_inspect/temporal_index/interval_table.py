"""The temporal index of one state table: every version of every key with the epochs at which it was valid.

``_valid_from`` is the epoch that wrote the version, ``_valid_to`` the epoch that replaced or removed it (``NEVER``
while it is valid), so that "at epoch e" is a filter and a key's history a lookup. The table is built from the changelog
and can always be rebuilt from it: from the keyframe before the first requested epoch, then forward as epochs arrive and
back as older ones are requested. What a reader sees at an epoch never changes.

The versions are sorted by ``_hash``, DuckDB's hash of the key columns. DuckDB's minimum and maximum of each row group
then lead to a key directly, without an index to build, to keep in memory or to update. Later versions are appended
unsorted, until there are so many that scanning them would take noticeable time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from streamstate.errors import IndexFullError, StoreError, first_line, worded
from streamstate.snapshots.calls.progress_callback import long_call
from streamstate.snapshots.checkpoint.state_tables import HASH, PARTITION
from streamstate.snapshots.store.changelog import (
    DELETE,
    beginnings,
    check_generation,
    key_columns,
    rows_since,
    value_columns,
)
from streamstate.snapshots.store.delta.commits import update
from streamstate.snapshots.store.delta.reading import TableVersion, cannot_read
from streamstate.snapshots.store.duckdb_sql import listed, quoted, same
from streamstate.snapshots.store.entries import Entries, TableFacts
from streamstate.snapshots.store.key_scan import KeyScan
from streamstate.snapshots.store.keyframes import keyframes_in, marked_rows
from streamstate.state_inspect.keys.key_text import as_parameter
from streamstate.state_inspect.temporal_index.epoch_runs import EpochRun, EpochSpan, base, runs_of, span_of
from streamstate.state_inspect.temporal_index.loading import counted_files, counted_rows
from streamstate.state_inspect.temporal_index.query_interrupts import interruptible
from streamstate.state_inspect.temporal_index.small_append import FEW_ROWS, NEVER, few, patch

_loads = long_call("What was loaded before is kept.", name="Loading")

# Unsorted rows that can be scanned in a few milliseconds.
_UNSORTED = 2_000_000
# Numbers in a block of DuckDB's, of 256 KiB.
_BLOCK = 32_768


class IntervalTable:
    """One state table's versions, kept in DuckDB.

    Args:
        database: a connection to the index; loading uses a cursor of it.
        relation: the relation's name in the index.
        table: the state table.
        version: its changelog.
        generation: the number of retention runs of the manifest that it is loaded by.
        label: what the table is called where progress is shown; by default as the relation.
        only: keys, as rows of some key columns; the table has only versions of them. By default it has all.
    """

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        relation: str,
        table: str,
        version: TableVersion,
        generation: int = 0,
        *,
        label: str = "",
        only: pa.Table | None = None,
    ) -> None:
        self.relation = quoted(relation)
        self.generation = generation
        self.starts: set[int] = set()
        """Epochs at which the changelog starts again with a keyframe."""
        self.low: int | None = None
        """The oldest epoch in the index; None if it is empty."""
        self.high = -1
        """The newest epoch in the index."""
        self.counts: dict[int, int] = {}
        """The rows at the epochs that were counted; what lives at an epoch never changes."""
        self._table = table
        self._version = version
        self._sorted = self._unsorted = 0  # rows
        self._expected = 0  # rows to load, roughly
        self._whole = False  # whether the table has no epochs before the oldest one in the index
        self._unsure = False  # whether a load was interrupted, so that it may or may not be committed
        self._db = database.cursor()
        self._label = label or relation
        self._only = only
        self._know_columns()

    @property
    def versions(self) -> int:
        """The number of versions."""
        return self._sorted + self._unsorted

    @property
    def values(self) -> int:
        """The number of values, those of the index's own columns included."""
        return self.versions * len(self._kinds)

    @property
    def footprint(self) -> int:
        """The number of values for which it takes memory: at least a block of DuckDB's for each column."""
        return max(self.versions, _BLOCK) * len(self._kinds)

    @property
    def columns(self) -> list[str]:
        """Key columns, then value columns."""
        return [*self.key_columns, *self.value_columns]

    def columns_at(self, epoch: int) -> list[str]:
        """Return the columns that existed at an epoch; a restarted query may have added columns later."""
        return [name for name in self.columns if self.beginnings.get(name, epoch) <= epoch]

    def at(self, epoch: int) -> str:
        """Return SQL for the rows at an epoch."""
        return f"SELECT {listed(self.columns_at(epoch))} FROM {self.relation} WHERE {held_at(epoch)}"

    @property
    def state(self) -> IntervalTable:
        """The state's versions: the table itself, or for the versions of a result those that it is computed from."""
        return self

    def in_state(self, column: str) -> str:
        """Return a column as SQL over the columns of :attr:`state`."""
        return quoted(column)

    def kind(self, column: str) -> str:
        """DuckDB's type of a column."""
        return self._kinds[column]

    def key_is(self, key: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Return the SQL condition that a version belongs to a key, and its parameters; needs no full scan."""
        values = [as_parameter(key[name], self.schema.field(name).type) for name in self.key_columns]
        casts = ", ".join(f"CAST(? AS {self._kinds[name]})" for name in self.key_columns)
        equal = " AND ".join(f"{quoted(name)} IS NOT DISTINCT FROM ?" for name in self.key_columns)
        return f"_hash = hash({casts}) AND {equal}", [*values, *values]

    def covers(self, first: int, last: int) -> bool:
        """Return whether the index has all epochs from ``first`` to ``last``."""
        begins = self.low is not None and (self.low <= first or (self._whole and first < 0))
        return not self._unsure and begins and self.high >= last

    @_loads
    def cover(self, entries: Entries, first: int, *, opened: bool = False) -> None:
        """Load the epochs from ``first`` on that the index lacks.

        Args:
            entries: the manifest.
            first: a captured epoch; −1 for all.
            opened: whether the changelog was opened after the manifest was read, so that it is new enough.

        Raises:
            OvertakenError: retention has rewritten the changelog since the manifest was read.
        """
        if not opened:
            update(self._version.place, self._version.table)
        check_generation(self._version, self.generation)
        if self._unsure:
            with contextlib.suppress(duckdb.Error):
                self._db.execute("ROLLBACK")
        facts = entries.facts(self._table)
        if self.low is not None and (
            self._unsure or self._version.schema != self.schema or self._far_back(facts, first)
        ):
            # A restarted query added a column, or much more is missing than is loaded.
            first = min(first, self.low)
            self.low, self.high = None, -1
        if self.low is None:
            self._know_columns()
        # Keyframes matter only for older epochs; loading new epochs need not look at all files.
        held = self._keyframes(facts) if self.low is None or first < self.low else []
        runs = runs_of(facts, held)
        if not runs:
            return
        self._expected = self._lacking(facts, first)
        with self._all_or_nothing():
            low, high = self._load(runs, first)
        self.low, self.high = low, high
        self._whole = self._whole or first < 0
        self._unsure = False
        if self._unsorted > max(_UNSORTED, self._sorted // 2):
            with self._all_or_nothing():
                self._sort()
            self._unsure = False

    def outgrown(self, entries: Entries, first: int) -> bool:
        """Return whether the epochs from ``first`` on take less than a quarter of the memory by themselves."""
        facts = entries.facts(self._table)
        keyframe = int(facts.keyframes[facts.is_there][-1]) if facts.is_there.any() else -1
        rows = self._rows_at_keyframe(facts, keyframe) + facts.changes_between(keyframe, int(facts.epochs[-1]))
        return 0 <= keyframe <= first and rows < self.versions // 4

    def _lacking(self, facts: TableFacts, first: int) -> int:
        """Return the approximate number of changelog rows to read for the epochs from ``first`` on."""
        own = facts.is_there & (facts.epochs >= first)
        if self.low is not None:
            return int(facts.changes[own & ((facts.epochs < self.low) | (facts.epochs > self.high))].sum())
        base = int(facts.keyframes[own][0]) if own.any() else -1
        return int(facts.changes[own].sum()) + (0 if base < 0 else self._rows_at_keyframe(facts, base))

    def _rows_at_keyframe(self, facts: TableFacts, keyframe: int) -> int:
        """Return the number of rows of a keyframe; 0 if nobody has counted them."""
        known = facts.rows_at(keyframe)
        return (marked_rows(self._version.table, keyframe) if known is None else known) or 0

    def _far_back(self, facts: TableFacts, first: int) -> bool:
        """Return whether reading everything again is less work than adding the epochs from ``first`` on."""
        if self.low is None or self.low <= first:
            return False
        return facts.changes_between(first - 1, self.low - 1) > self.versions // 2

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A transaction of the index; a failure leaves the index unchanged, and so does stopping the task."""
        self._unsure = True  # until the index is known to match this object's fields, even after an interrupt
        self._db.execute("BEGIN")
        try:
            with cannot_read(self._version.place), interruptible(self._db):
                yield
            self._db.execute("COMMIT")
        except duckdb.OutOfMemoryException as error:
            self._roll_back()
            raise IndexFullError(
                f"The index of {self._version.place} needs more memory or more space for temporary files.\n"
                f"Raise the limit: ss.open_store(…, memory_limit='4GB'){worded('', command=' in Python')}."
                f" DuckDB says: {first_line(error)}"
            ) from error
        except duckdb.Error as error:
            self._roll_back()
            raise StoreError(f"The index of {self._version.place} could not be loaded: {error}") from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        """Roll back; only if that succeeds is it known that nothing was committed."""
        self._db.execute("ROLLBACK")
        self._unsure = False

    def part(self, entries: Entries, first: int, last: int) -> EpochSpan:
        """Return the epochs to load for those from ``first`` to ``last``: all that are read from the same keyframes.

        Raises:
            OvertakenError: as :meth:`cover`.
        """
        check_generation(self._version, self.generation)
        facts = entries.facts(self._table)
        part = span_of(runs_of(facts, self._keyframes(facts)), first, last)
        self._expected = facts.changes_between(part.low - 1, part.high) + self._rows_at_keyframe(facts, part.low)
        return part

    @_loads
    def load(self, part: EpochSpan) -> None:
        """Load some epochs, once and for all."""
        self.starts = part.starts
        with self._all_or_nothing():
            self._create()
            self._add(part.runs, part.low)
        self.low, self.high = part.low, part.high
        self._unsure = False

    @_loads
    def load_one(self, epoch: int, keyframe: int | None) -> None:
        """Load a single epoch from the current changelog."""
        with self._all_or_nothing():
            self._create()
            self._stream(self._rows_since(keyframe, epoch))
        self.low = self.high = epoch
        self._unsure = False

    def _know_columns(self) -> None:
        self.schema = self._version.schema
        self.key_columns = key_columns(self.schema)
        self.value_columns = value_columns(self.schema)
        self.beginnings = beginnings(self.schema)
        """For columns that were added later, the epoch from which on they exist."""

    def _keyframes(self, facts: TableFacts) -> list[int]:
        found = keyframes_in(self._version, facts)
        # What an epoch is read from is complete.
        return sorted({*found, *facts.keyframes[facts.keyframes >= 0].tolist()})

    def _load(self, runs: Sequence[EpochRun], first: int) -> tuple[int, int]:
        """Load what is missing; returns the oldest and the newest epoch loaded."""
        low = self.low if self.low is not None and self.low <= first else base(runs, first)
        if self.low is None:
            self._create()
            self._add([run for run in runs if run.last >= low], low)
        else:
            self._go_on(runs)
            if low < self.low:
                self._go_back([run for run in runs if low <= run.last and run.first < self.low], low, self.low)
            low = min(low, self.low)
        self.starts = {run.first for run in runs if run.starts_at_keyframe}
        return low, runs[-1].last

    def _create(self) -> None:
        fields = [self.schema.field(name) for name in [PARTITION, *self.columns]]
        numbers = [pa.field(HASH, pa.uint64()), pa.field("_valid_from", pa.int64()), pa.field("_valid_to", pa.int64())]
        self._db.register("empty", pa.schema(numbers + fields).empty_table())
        like = self._db.sql("FROM empty")
        self._kinds = {name: str(kind) for name, kind in zip(like.columns, like.types, strict=True)}
        self._db.unregister("empty")
        self._make(self.relation)
        self._sorted = self._unsorted = 0

    def _make(self, relation: str) -> None:
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in self._kinds.items())
        # Not CREATE … AS: DuckDB 2.0 loses rows inserted later in the same transaction, from 122,880 rows on.
        self._db.execute(f"CREATE OR REPLACE TABLE {relation} ({columns})")

    def _sort(self) -> None:
        """Sort all versions again. Concurrent readers keep reading the previous rows."""
        resorted = quoted(f"{self.relation} resorted")
        self._make(resorted)
        self._db.execute(f"INSERT INTO {resorted} FROM {self.relation} ORDER BY {HASH}, _valid_from")
        self._db.execute(f"DROP TABLE {self.relation}")
        self._db.execute(f"ALTER TABLE {resorted} RENAME TO {self.relation}")
        self._sorted, self._unsorted = self.versions, 0

    def _add(self, runs: Sequence[EpochRun], low: int) -> None:
        """Load runs that do not continue a loaded run, starting at epoch ``low``."""
        for run in runs:
            # Versions that are valid before a gap end at the gap.
            if run.before is not None:
                ended = run.before + 1
                self._db.execute(f"UPDATE {self.relation} SET _valid_to = {ended} WHERE _valid_to = {NEVER}")
            self._stream(self._rows_since(run.keyframe_at(max(low, run.first)), run.last))

    def _go_on(self, runs: Sequence[EpochRun]) -> None:
        """Load the epochs after the newest loaded one."""
        for run in runs:
            if run.first <= self.high < run.last:
                rows = self._rows_since(None, run.last, after=self.high)
                self._follow(rows, one_epoch=run.last == self.high + 1)
        self._add([run for run in runs if run.first > self.high], runs[0].first)

    def _follow(self, rows: pa.RecordBatchReader, *, one_epoch: bool) -> None:
        """Add rows of epochs that follow the newest loaded one; one epoch has at most one row of a key."""
        if self._expected <= FEW_ROWS:
            read = rows.read_all()
            if self._only is None and few(read):
                versions = self.versions
                self._added(patch(self._db, self.relation, read, self.key_columns, self.columns, versions=versions))
                return
            rows = read.to_reader()
        self._take(rows, one_epoch=one_epoch)
        self._end_replaced(one_epoch=one_epoch)
        self._insert(in_order=not one_epoch)
        self._db.execute("DROP TABLE incoming")

    def _go_back(self, runs: Sequence[EpochRun], first: int, low: int) -> None:
        """Load the epochs from ``first`` on that come before ``low``, the oldest loaded one."""
        for run in runs:
            rows = self._rows_since(run.keyframe_at(max(first, run.first)), min(low, run.last))
            if run.last < low:
                self._stream(rows, never=run.last + 1)
                continue
            self._take(rows)
            # Versions that the keyframe at ``low`` repeats have been valid since they were written.
            self._db.execute(
                f"UPDATE {self.relation} AS held SET _valid_from = incoming._epoch FROM incoming"
                f" WHERE held._valid_from = {low} AND incoming._until IS NULL"
                f" AND incoming._change <> '{DELETE}' AND {self._same_key('held', 'incoming')}"
            )
            self._insert(where="_until IS NOT NULL")
            self._db.execute("DROP TABLE incoming")

    def _rows_since(self, keyframe: int | None, last: int, *, after: int | None = None) -> pa.RecordBatchReader:
        """Return the rows to load: a keyframe's, if there is one, and the changes after it, or after an epoch."""
        if self._only is None:
            rows = rows_since(self._version, keyframe, last, after=after)
            return counted_rows(self._label, rows, self._expected)
        scan = KeyScan(self._version, self._only, keyframe, last, after)
        return counted_files(self._label, self.schema, scan.rows(), self._expected)

    def _stream(self, rows: pa.RecordBatchReader, never: int = NEVER) -> None:
        """Add changelog rows whose keys have no versions yet, without a temporary copy."""
        with self._fed(rows):
            self._insert(f"({self._with_next()})", never=never)

    def _take(self, rows: pa.RecordBatchReader, *, one_epoch: bool = False) -> None:
        """Store changelog rows as ``incoming``, to compare them with the existing versions."""
        with self._fed(rows):
            self._db.execute(f"CREATE OR REPLACE TEMP TABLE incoming AS {self._with_next(one_epoch=one_epoch)}")

    @contextlib.contextmanager
    def _fed(self, rows: pa.RecordBatchReader) -> Iterator[None]:
        self._db.register("feed", rows)
        if self._only is not None:
            self._db.register("wanted", self._only)
        try:
            yield
        finally:
            # After an error the transaction is over, and the names with it; the error is what matters.
            for name in ("feed", "wanted"):
                with contextlib.suppress(duckdb.Error):
                    self._db.unregister(name)

    def _with_next(self, *, one_epoch: bool = False) -> str:
        """Return SQL for the rows of the feed, each with its key's hash and the epoch of its key's next row."""
        keys = listed(self.key_columns)
        following = f"lead(_epoch) OVER (PARTITION BY {HASH}, {keys} ORDER BY _epoch) AS _until"
        if one_epoch:
            following = "NULL::BIGINT AS _until"
        fed = "feed"
        if self._only is not None:
            fed += f" SEMI JOIN wanted ON {same('feed', 'wanted', self._only.column_names)}"
        return f"SELECT *, {following} FROM (SELECT feed.*, hash({keys}) AS {HASH} FROM {fed})"

    def _insert(
        self, incoming: str = "incoming", where: str = "true", never: int = NEVER, *, in_order: bool = True
    ) -> None:
        """Add rows as versions; the last version of a key is valid until ``never``."""
        order = f" ORDER BY {HASH}, _epoch" if in_order else ""
        [(added,)] = self._db.execute(
            f"INSERT INTO {self.relation} SELECT {HASH}, _epoch, coalesce(_until, {never}),"
            f" {listed([PARTITION, *self.columns])} FROM {incoming} WHERE _change <> '{DELETE}' AND {where}{order}"
        ).fetchall()
        self._added(added)

    def _added(self, versions: int) -> None:
        """Count the added versions as sorted or unsorted."""
        if self._sorted:
            self._unsorted += versions
        else:
            self._sorted = versions

    def _end_replaced(self, *, one_epoch: bool) -> None:
        """End the versions that the incoming rows replace or remove."""
        keys = listed([HASH, *self.key_columns])
        first = "incoming" if one_epoch else f"(SELECT {keys}, min(_epoch) AS _epoch FROM incoming GROUP BY ALL)"
        self._db.execute(
            f"UPDATE {self.relation} AS held SET _valid_to = newer._epoch FROM {first} AS newer"
            f" WHERE held._valid_to = {NEVER} AND {self._same_key('held', 'newer')}"
        )

    def _same_key(self, left: str, right: str) -> str:
        """Return the SQL condition that two relations agree in the key, compared once for each pair of equal hashes.

        DuckDB would also join on the keys if it saw that they are compared, and so hash those of all versions.
        """
        keys = same(left, right, self.key_columns)
        return f"{left}.{HASH} = {right}.{HASH} AND coalesce({keys}, false)"


def held_at(epoch: int, relation: str | None = None) -> str:
    """Return the SQL condition that a version, perhaps of a certain relation, is valid at an epoch."""
    of = f"{relation}." if relation else ""
    return f"{of}_valid_from <= {epoch} AND {of}_valid_to > {epoch}"
