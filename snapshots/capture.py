"""Bring a store up to date with a checkpoint: one pass over the epochs committed since the last."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamstate.snapshots.capture_report import CaptureReport
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.delta.compaction import compact
from streamstate.snapshots.delta.object_store import plain
from streamstate.snapshots.delta.sweep import sweep
from streamstate.snapshots.errors import CaptureError, OvertakenError, StoreError, StreamStateError
from streamstate.snapshots.executors.frames import FrameReader
from streamstate.snapshots.executors.table import ScalingTableCapture
from streamstate.snapshots.filesystem import location
from streamstate.snapshots.forks.record import ForkRecord, forked_from
from streamstate.snapshots.layout import CAPTURED, Layout
from streamstate.snapshots.manifest import Entry, Manifest, TableFacts
from streamstate.snapshots.names import check_name, name_from
from streamstate.snapshots.progress import BatchProgress, progress_of
from streamstate.snapshots.registry import name_of, register
from streamstate.snapshots.state_reader import no_state
from streamstate.snapshots.table_capture import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Bound what one pass holds in memory; a capture that is further behind makes several passes.
_EPOCHS_A_PASS = 50
_ROWS_A_PASS = 1_000_000


@dataclass(frozen=True)
class _Plan:
    """The epochs of one pass: ``gaps`` are recorded, ``epochs`` are captured."""

    gaps: Sequence[int]
    epochs: Sequence[int]
    broken: bool
    """The first epoch does not follow a captured one, so its tables start with keyframes."""


@dataclass
class Capturer:
    """Captures one query; it remembers between passes what it would have to read again.

    Args:
        spark: a running session.
        checkpoint: where the query keeps its state.
        store: where the snapshots go.
        name: what the query is called in the store.
        storage_options: deltalake's options for reaching the store.
    """

    spark: SparkSession
    checkpoint: Checkpoint
    store: str
    name: str
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    _tables: dict[str, ScalingTableCapture] = field(default_factory=dict)
    _registered: bool = False
    _swept: bool = False
    _epochs_a_pass: int = 1
    told: dict[int, BatchProgress] = field(default_factory=dict)
    """What is known of epochs whose query has ended, and that Spark tells nothing of any more."""

    def __post_init__(self) -> None:
        """Nothing is written before the first pass that has something to write."""
        self.layout = Layout.at(self.store, self.storage_options)
        self.manifest = Manifest(self.layout, self.name)
        self._reader = FrameReader(self.spark, self.checkpoint)

    def register(self) -> None:
        """Take the query's name in the store, once it is known to keep state.

        Raises:
            NoStateError: where it has committed epochs and keeps none.
            NameTakenError: where the name is another query's.
        """
        if self.checkpoint.committed() and not self.checkpoint.has_state():
            raise no_state(self.checkpoint.path)
        register(self.layout, self.name, self.checkpoint.query_id, self.checkpoint.path, self._fork)
        self._registered = True

    @cached_property
    def _fork(self) -> ForkRecord | None:
        """Where the checkpoint was forked from; None where it is no fork."""
        return forked_from(self.checkpoint.path, self.spark)

    def run(self) -> CaptureReport:
        """One pass: capture what was committed since the last, at most 50 epochs of it.

        Raises:
            NoStateError: where the query keeps none.
            CaptureError: where Spark cannot read the state.
            StoreError: where the store cannot be read or written.
        """
        try:
            return self._run()
        except StreamStateError:
            raise
        except (OSError, DeltaError, pa.ArrowException, duckdb.Error) as error:
            raise StoreError(
                f"The store {self.layout.root} cannot be read or written: {plain(error)}\n"
                "Every epoch that it shows is whole; capture again once the cause is gone."
            ) from error

    def _run(self) -> CaptureReport:
        started = time.monotonic()
        if not self._registered:
            self.register()
        if not self._swept:
            sweep(self.layout.queries)
            sweep(self.layout.manifest(self.name))
            self._swept = True
        self.manifest.refresh()
        plan = self._plan()
        if not plan.epochs:
            return CaptureReport(self.name, self.layout.root)
        before = sum(table.written for table in self._tables.values())
        plan = self._capture_again_if_overtaken(plan)
        self._pace(plan.epochs)
        return CaptureReport(
            self.name,
            self.layout.root,
            tuple(plan.epochs),
            tuple(plan.gaps),
            sum(table.written for table in self._tables.values()) - before,
            time.monotonic() - started,
            tuple(table.advice for table in self._tables.values() if table.advice),
        )

    def _pace(self, epochs: Sequence[int]) -> None:
        """How many epochs the next pass may take, by how many rows these had."""
        entries = [entry for entry in self.manifest.entries[-len(epochs) :] if entry.captured]
        rows = sum(facts.changes for entry in entries for facts in entry.tables.values())
        self._epochs_a_pass = max(1, _ROWS_A_PASS * len(epochs) // max(rows, 1))

    def tidy(self) -> None:
        """Write keyframes and merge small files where that is due; to be called when nothing waits.

        Raises:
            StoreError: where the store cannot be written; what it holds is untouched.
        """
        newest = self.manifest.newest
        if newest is None:
            return
        for table, facts in newest.tables.items():
            if table not in self._tables:
                continue
            # Retention has rewritten the log since the manifest was read: the next call sees both.
            with contextlib.suppress(OvertakenError):
                self._tables[table].tidy(newest.epoch, facts, partial(self._changes_since, table))
        compact(self.layout.manifest(self.name), "epoch")

    def _changes_since(self, table: str, keyframe: int | None) -> int:
        later = itertools.takewhile(
            lambda entry: entry.captured and entry.epoch > (-1 if keyframe is None else keyframe),
            reversed(self.manifest.entries),
        )
        return sum(entry.tables[table].changes for entry in later if table in entry.tables)

    def behind(self) -> list[int]:
        """Committed epochs that the store lacks.

        Raises:
            CheckpointReplacedError: where they are another query's.
        """
        self.checkpoint.check_same()
        last = self.manifest.entries[-1].epoch if self.manifest.entries else -1
        return [epoch for epoch in self.checkpoint.committed() if epoch > last]

    def _plan(self) -> _Plan:
        epochs = self._reader.together(self.behind()[: min(self._epochs_a_pass, _EPOCHS_A_PASS)])
        return replace(self._from(epochs[0]), epochs=epochs) if epochs else _Plan((), (), broken=False)

    def _capture_again_if_overtaken(self, plan: _Plan) -> _Plan:
        """Carry the plan out; where retention comes in between, from what it left."""
        try:
            return self._capture(plan)
        except OvertakenError:
            self.manifest.refresh()
            again = self._plan()
            return self._capture(again) if again.epochs else again

    def _capture(self, plan: _Plan) -> _Plan:
        """Carry the plan out; where Spark purges epochs meanwhile, with a gap in their place."""
        failed: Exception | None = None
        for tried in self._plans(plan):
            plan = tried
            try:
                self._advance(plan)
            except (PySparkException, Py4JError) as error:
                failed = error
                self._forget()
            except BaseException:
                # A table may stand ahead of the store now, whichever attempt this was.
                self._forget()
                raise
            else:
                return plan
        raise self._unreadable(plan, failed) from failed

    def _plans(self, plan: _Plan) -> Iterator[_Plan]:
        """The plan, one made anew after a passing failure, and then those that leave out the oldest epochs.

        Spark purges the oldest first, and the commit log may still list what is gone. So it is begun again after ever
        more epochs, up to the newest; of those that can be read, fewer are left out than cannot.
        """
        yield plan
        again = self._plan()
        if not again.epochs:
            return
        yield again
        waiting, skipped = self.behind(), 1
        while skipped < len(waiting) - 1:
            yield self._from(waiting[skipped])
            skipped = 2 * skipped + 1
        if waiting:
            yield self._from(waiting[-1])

    def _from(self, epoch: int) -> _Plan:
        """One epoch, whatever comes before it."""
        entries = self.manifest.entries
        # A fork has the epochs up to its own first one in common with its parent: they are no gap of its.
        first = max(self._fork.epoch, 0) if self._fork else 0
        gaps = range(entries[-1].epoch + 1 if entries else first, epoch)
        from_nothing = self._fork is None or self._fork.epoch < 0
        follows = not gaps and (entries[-1].captured if entries else from_nothing)
        return _Plan(gaps, [epoch], broken=not follows)

    def _unreadable(self, plan: _Plan, error: Exception | None) -> CaptureError:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return CaptureError(
            f"Spark cannot read the state of {self.name!r} at epoch {plan.epochs[-1]}: {reason}\n"
            f"Nothing was lost: the store stands where it was. Checkpoint: {self.checkpoint.path}"
        )

    def _forget(self) -> None:
        for table in self._tables.values():
            table.forget()

    def _advance(self, plan: _Plan) -> None:
        entries = [Entry.gap(epoch) for epoch in plan.gaps]
        captured: dict[int, dict[str, TableFacts]] = {epoch: {} for epoch in plan.epochs}
        for table, capture in self._table_captures(plan.epochs[-1]).items():
            for epoch, facts in capture.advance(plan.epochs, self._chain(table, plan)).items():
                captured[epoch][table] = facts
        progress = self.told | progress_of(self.spark, self.checkpoint.query_id, plan.epochs)
        sources = self.manifest.newest.sources if self.manifest.newest else None
        for epoch, tables in captured.items():
            entry = self._entry(epoch, tables, progress.get(epoch), sources)
            sources = entry.sources or sources
            entries.append(entry)
        self.checkpoint.check_same()
        self.manifest.append(entries, f"{self.checkpoint.query_id}/_epochs")
        self.manifest.refresh()

    def _table_captures(self, epoch: int) -> dict[str, ScalingTableCapture]:
        sources = self._reader.sources(epoch)
        for source in sources:
            if source.table not in self._tables:
                self._tables[source.table] = ScalingTableCapture(
                    self._reader,
                    source,
                    self.layout.change_log(self.name, source.table),
                    f"{self.checkpoint.query_id}/{source.table}",
                )
        return {source.table: self._tables[source.table] for source in sources}

    def _chain(self, table: str, plan: _Plan) -> Chain:
        last = self.manifest.entries[-1] if self.manifest.entries and not plan.broken else None
        return Chain(last.epoch if last else None, last.tables.get(table) if last else None, plan.broken)

    def _entry(
        self, epoch: int, facts: dict[str, TableFacts], progress: BatchProgress | None, sources: str | None
    ) -> Entry:
        planned = self.checkpoint.planned(epoch)
        return Entry(
            epoch,
            CAPTURED,
            run_id=progress.run_id if progress else None,
            committed_at=self.checkpoint.committed_at(epoch),
            offsets=_as_json(planned.offsets) if planned else None,
            watermark=planned.watermark if planned else None,
            input_rows=progress.input_rows if progress else None,
            tables=facts,
            sources=self.checkpoint.sources(planned.offsets, sources) if planned else None,
            began_at=planned.began_at if planned else None,
        )


def capture(
    checkpoint: str | os.PathLike[str],
    store: str | Path,
    name: str | None = None,
    *,
    spark: SparkSession,
    storage_options: Mapping[str, str] | None = None,
) -> CaptureReport:
    """Bring the store up to date with a checkpoint, once; see :func:`streamstate.capture`."""
    capturer = capturer_for(checkpoint, store, name, spark, storage_options=storage_options)
    report = catch_up(capturer)
    with _same_pool_afterwards(spark):
        capturer.tidy()
    return report


def catch_up(capturer: Capturer) -> CaptureReport:
    """Capture, pass by pass, everything that is committed; keyframes and merging are left to :meth:`Capturer.tidy`.

    Raises:
        NoStateError, CaptureError, StoreError, NameTakenError: as :meth:`Capturer.run`.
    """
    report = CaptureReport(capturer.name, capturer.layout.root)
    with _same_pool_afterwards(capturer.spark):
        while (one := capturer.run()).epochs:
            report += one
    return report + one


@contextlib.contextmanager
def _same_pool_afterwards(spark: SparkSession) -> Iterator[None]:
    """Reading state puts the thread into capture's scheduler pool, and here the thread is the user's."""
    before = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
    try:
        yield
    finally:
        # None takes the property away, which PySpark's types do not know.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", before)  # type: ignore[arg-type]


def capturer_for(
    checkpoint: str | os.PathLike[str],
    store: str | Path,
    name: str | None,
    spark: SparkSession,
    *,
    fallback: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Capturer:
    """A capturer, with the name that the query has in the store already where none is given."""
    if name is not None:
        check_name(name)
    found = Checkpoint(checkpoint, spark)
    if name is None:
        known = name_of(Layout.at(store, storage_options), found.query_id)
        name = known or name_from(fallback or found.path.rsplit("/", 1)[-1])
    return Capturer(spark, found, location(store), name, storage_options)


def _as_json(offsets: Sequence[str | None]) -> str:
    """The sources' offsets as one JSON array; an offset that is no JSON stays text."""
    parsed = []
    for offset in offsets:
        try:
            parsed.append(None if offset is None else json.loads(offset))
        except ValueError:
            parsed.append(offset)
    return json.dumps(parsed)
