"""The capture of one query, pass by pass: read its checkpoint, write the change logs, then commit the manifest."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamstate.errors import (
    CaptureError,
    DamagedCheckpointError,
    OvertakenError,
    StoreError,
    StreamStateError,
)
from streamstate.snapshots.capture.change_feed import ChangeFeed, Verify
from streamstate.snapshots.capture.epoch_entries import BatchProgress, EpochEntries
from streamstate.snapshots.capture.pass_plan import PassPlan, PassPlanner
from streamstate.snapshots.capture.table_capture import TableCapture, store_failures
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.damage import Damage
from streamstate.snapshots.spark.failures import failures, innermost
from streamstate.snapshots.spark.state_reader import StateReader, no_state
from streamstate.snapshots.store.delta.maintenance import merge_small_files, sweep
from streamstate.snapshots.store.delta.object_store import plain
from streamstate.snapshots.store.entries import Entry, TableCounts, TableEntry
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import NewQuery, register_all
from streamstate.snapshots.store.table_log import LogPosition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

# Bound what one pass holds in memory; a capture that is further behind makes several passes.
_EPOCHS_A_PASS = 50
_ROWS_A_PASS = 1_000_000
# Seconds between two sweeps; files stay for an hour after they have left a table anyway.
_SWEEP_SECONDS = 600


@dataclass(frozen=True)
class CaptureReport:
    """The result of a capture."""

    query: str
    """The query's name in the store."""
    store: str
    """The store's path."""
    epochs: tuple[int, ...] = ()
    """Epochs captured now, ascending; empty if the store was up to date."""
    gaps: tuple[int, ...] = ()
    """Epochs that Spark had purged before they were captured."""
    rows: int = 0
    """Change rows written, keyframes included."""
    seconds: float = 0.0
    """The duration in seconds."""
    advice: tuple[str, ...] = ()
    """Settings that would make capture cheaper."""
    by_spark: Mapping[str, str] = field(default_factory=dict)
    """The tables that Spark read, each with the last reason; all others were decoded from the changelog without it."""
    damaged: tuple[str, ...] = ()
    """Epochs that are lost because the checkpoint is damaged, each with the file."""
    committed: int | None = None
    """The newest committed epoch; None: there is none yet."""

    def __add__(self, later: CaptureReport) -> CaptureReport:
        """Return both captures as one."""
        return CaptureReport(
            self.query,
            self.store,
            self.epochs + later.epochs,
            self.gaps + later.gaps,
            self.rows + later.rows,
            self.seconds + later.seconds,
            tuple(dict.fromkeys(self.advice + later.advice)),
            {**self.by_spark, **later.by_spark},
            self.damaged + later.damaged,
            later.committed,
        )


@dataclass
class Capturer:
    """The capture of one query; between passes it remembers what it would otherwise have to read again."""

    spark: SparkSession | None
    """The session to read with where decoding the changelog does not suffice; None: the one that runs then."""
    checkpoint: CheckpointFiles
    layout: Layout
    name: str
    verify: Verify = "first"
    """The epochs that Spark reads too, to compare with the decoded rows."""
    known_progress: dict[int, BatchProgress] = field(default_factory=dict)
    """Progress of epochs whose query has ended, so that Spark no longer reports it."""
    _tables: dict[str, TableCapture] = field(default_factory=dict)
    _prepared: bool = False
    _among_others: bool = False
    _swept: float = 0.0
    _epochs_a_pass: int = 1
    _released_at: int | None = None

    def __post_init__(self) -> None:
        """Nothing is written before the first pass that has something to write."""
        self.manifest = Manifest(self.layout, self.name)
        self._reader = StateReader(self.spark, self.checkpoint)
        self._feed = ChangeFeed(self._reader, self.verify)
        self._planner = PassPlanner(self.manifest, self._reader)
        self._epoch_entries = EpochEntries(self._reader)

    def watch(self, query: StreamingQuery) -> None:
        """Take the progress of the epochs from a query, if it is not one that Spark lists here."""
        self._epoch_entries.watch(query)

    def register(self) -> None:
        """Reserve the query's name in the store, after checking that the query keeps state."""
        refused = register_all(self.layout, [self.registration()])
        if refused:
            raise refused[self.checkpoint.query_id]

    def registration(self) -> NewQuery:
        """Return what :meth:`register` registers, after checking that the query keeps state."""
        if self.checkpoint.committed() and not self.checkpoint.has_state():
            raise no_state(self.checkpoint)
        return NewQuery(self.name, self.checkpoint.query_id, self.checkpoint.path, self._planner.fork)

    def prepared(self) -> None:
        """Leave it to the caller to register the query and to sweep the table of queries."""
        self._prepared, self._among_others, self._swept = True, True, time.monotonic()

    def run(self, *, upto: int | None = None) -> CaptureReport:
        """Run one pass: capture at most 50 of the epochs committed since the last, up to one.

        If Spark has purged everything up to ``upto``, the oldest epoch after it is captured instead, so that the
        manifest records the gap.
        """
        started = time.monotonic()
        with self._store_errors():
            self._prepare()
            rows_before = self._rows_written
            plan = self._capture(upto)
        if plan is None:
            return CaptureReport(self.name, self.layout.root)
        self._set_pass_size(plan.epochs)
        return CaptureReport(
            self.name,
            self.layout.root,
            tuple(plan.epochs),
            tuple(plan.gaps),
            self._rows_written - rows_before,
            time.monotonic() - started,
            tuple(table.log.advice for table in self._tables.values() if table.log.advice),
            dict(self._feed.by_spark),
            tuple(self._lost(plan)),
            self._planner.committed,
        )

    def _lost(self, plan: PassPlan) -> Iterator[str]:
        """Describe the damage that made a gap."""
        if self._planner.damaged is not None and plan.gaps:
            epoch, damage = self._planner.damaged
            lost = f"Epoch {epoch} is" if plan.gaps[-1] == epoch else f"Epochs {epoch} to {plan.gaps[-1]} are"
            yield f"{lost} lost: {damage}. {damage.advice}"

    def tidy(self) -> None:
        """Write keyframes, merge small files and remove those no longer read, where that is due.

        Call it when no epochs wait.
        """
        newest = self.manifest.newest
        if newest is None:
            return
        for table, entry in newest.tables.items():
            if table not in self._tables:
                continue
            # Retention has rewritten the log since the manifest was read: the next call sees both.
            with contextlib.suppress(OvertakenError):
                self._tables[table].tidy(newest.epoch, entry)
        merge_small_files(self.layout.manifest(self.name), "epoch")
        if time.monotonic() - self._swept > _SWEEP_SECONDS:
            self._sweep()
            for capture in self._tables.values():
                sweep(capture.log.place)

    def _sweep(self) -> None:
        if not self._among_others:
            sweep(self.layout.queries)
        sweep(self.layout.manifest(self.name))
        self._swept = time.monotonic()

    def behind(self) -> list[int]:
        """Return committed epochs that the store lacks."""
        with self.checkpoint.read_once():
            self.checkpoint.look_ahead()
            if self._released_at is not None:
                self.checkpoint.check_same()
                if max(self.checkpoint.committed(), default=-1) <= self._released_at:
                    return []
                self.manifest.refresh()
                self._released_at = None
            return self._planner.behind()

    def make_ready(self) -> None:
        """Read what the next pass needs of the store, before there is an epoch to capture."""
        entries = self.manifest.entries
        if not entries or not entries[-1].captured:
            return
        with self.checkpoint.read_once(), self._store_errors():
            for table, capture in self._table_captures(entries[-1].epoch).items():
                capture.make_ready(self._position(table))

    def release(self) -> None:
        """Free the memory that is held for the next pass, which then reads from the store again."""
        if self.manifest.newest is not None:
            self._released_at = self.manifest.newest.epoch
            self.manifest = self._planner.manifest = Manifest(self.layout, self.name)
            self._tables.clear()

    @contextlib.contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            yield
        except StreamStateError:
            raise
        except store_failures() as error:
            raise StoreError(
                f"The store {self.layout.root} cannot be read or written: {plain(error)}\n"
                "The epochs it lists are complete. Fix the cause, then capture again."
            ) from error

    def _prepare(self) -> None:
        if not self._prepared:
            self.register()
            self._sweep()
            self._prepared = True
        self.manifest.refresh()

    def _capture(self, upto: int | None) -> PassPlan | None:
        """Carry out the first plan that works; None if there is nothing to capture.

        Spark may purge epochs at any time: then the next plan is tried. If retention rewrites a log meanwhile, plans
        are made again from the new manifest, once.
        """
        overtaken = False
        plan: PassPlan | None = None
        failure: Exception | None = None
        attempts = self._attempts(upto)
        with self.checkpoint.read_once() as read_anew:
            while (attempt := next(attempts, None)) is not None:
                plan = attempt
                try:
                    self._write(plan)
                except OvertakenError:
                    if overtaken:
                        raise
                    overtaken, plan, failure = True, None, None
                    self.manifest.refresh()
                    attempts = self._attempts(upto)
                except failures() as error:
                    failure = error
                    read_anew()
                else:
                    return plan
        if plan is None or failure is None:
            return None
        raise self._unreadable(plan, failure) from failure

    def _attempts(self, upto: int | None) -> Iterator[PassPlan]:
        return self._planner.attempts(upto, min(self._epochs_a_pass, _EPOCHS_A_PASS))

    def _write(self, plan: PassPlan) -> None:
        """Write the change logs of a plan's epochs, then make the epochs visible by committing the manifest."""
        try:
            entries = self._entries(plan, self._write_change_logs(plan))
            self.checkpoint.check_same(last=True)
            self.manifest.append(entries, f"{self.checkpoint.query_id}/_epochs")
        except BaseException:
            # A table's capture may now be ahead of the manifest.
            for table in self._tables.values():
                table.forget()
            raise

    def _entries(self, plan: PassPlan, tables: Mapping[int, dict[str, TableEntry]]) -> list[Entry]:
        newest, forked = self.manifest.newest, self._planner.fork is not None
        sources = newest.sources if newest else None
        return self._epoch_entries.of(plan, tables, sources, known=self.known_progress, forked=forked)

    def _write_change_logs(self, plan: PassPlan) -> dict[int, dict[str, TableEntry]]:
        """Write the change logs, and return the manifest's facts of each state table by epoch."""
        self._feed.begin_pass()
        tables: dict[int, dict[str, TableEntry]] = {epoch: {} for epoch in plan.epochs}
        for table, capture in self._table_captures(plan.epochs[-1]).items():
            for epoch, entry in capture.advance(plan.epochs, self._position(table, restarts=plan.restarts)).items():
                tables[epoch][table] = entry
        return tables

    def _table_captures(self, epoch: int) -> dict[str, TableCapture]:
        sources = self._reader.sources(epoch)
        for source in sources:
            if source.table not in self._tables:
                self._tables[source.table] = TableCapture(
                    self._feed,
                    source,
                    self.layout.changelog(self.name, source.table),
                    f"{self.checkpoint.query_id}/{source.table}",
                )
        return {source.table: self._tables[source.table] for source in sources}

    def _position(self, table: str, *, restarts: bool = False) -> LogPosition:
        entries = self.manifest.entries
        if not entries or restarts:
            return LogPosition(None, None, restarts)
        return LogPosition(entries[-1].epoch, entries[-1].tables.get(table), counts=TableCounts(entries, table))

    @property
    def keyframe_due(self) -> bool:
        """True if :meth:`tidy` has a keyframe to write."""
        return any(table.keyframe_due for table in self._tables.values())

    @property
    def _rows_written(self) -> int:
        return sum(table.log.written for table in self._tables.values())

    def _set_pass_size(self, epochs: Sequence[int]) -> None:
        """Decide how many epochs the next pass may take, from how many rows these had."""
        entries = [entry for entry in self.manifest.entries[-len(epochs) :] if entry.captured]
        rows = sum(table.changes for entry in entries for table in entry.tables.values())
        self._epochs_a_pass = max(1, _ROWS_A_PASS * len(epochs) // max(rows, 1))

    def _unreadable(self, plan: PassPlan, failure: Exception) -> Exception:
        if self._planner.damaged is not None:
            epoch, damage = self._planner.damaged
            error = DamagedCheckpointError(
                f"The state of {self.name!r} cannot be read from epoch {epoch} on: {damage}.\n{damage.advice}"
                f" {self._captured()}{self._way_out(damage)}\nCheckpoint: {self.checkpoint.path}"
            )
            error.path, error.why, error.advice = damage.file, damage.why, damage.advice
            return error
        if isinstance(failure, DamagedCheckpointError):
            return failure
        return CaptureError(
            f"The state of {self.name!r} at epoch {plan.epochs[-1]} cannot be read: {innermost(failure)}\n"
            f"{self._captured()} Checkpoint: {self.checkpoint.path}"
        )

    def _captured(self) -> str:
        """Describe the epochs that the store has."""
        captured = self.manifest.entries.captured
        if not captured:
            return "No epoch is captured."
        first, last = captured[0], captured[-1]
        return f"Epochs {first} to {last} are captured." if first < last else f"Epoch {last} is captured."

    def _way_out(self, damage: Damage) -> str:
        """Describe the way on without a backup of a file that has to be restored from one."""
        newest = self.manifest.newest
        if newest is None or "backup" not in damage.advice:
            return ""
        root, name, epoch = self.layout.root, self.name, newest.epoch
        return (
            f" Without a backup, the query can go on from epoch {epoch}: ss.open_store({root!r})[{name!r}]"
            f".at({epoch}).restore(to=…), or streamstate restore {root} {name} --at {epoch} --to PATH."
        )
