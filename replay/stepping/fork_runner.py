"""Running the epochs of one fork: the checks before an epoch, the epoch itself, and the checks after it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from streamstate.errors import ForkError, NotACheckpointError, QueryError, choices
from streamstate.replay.forks import forked_from
from streamstate.replay.repartition import repartition
from streamstate.replay.stepping.delta_sources import delta_checked
from streamstate.replay.stepping.fork_folder import ForkFolder, stepping
from streamstate.replay.stepping.next_epoch import NextEpoch, next_epoch
from streamstate.replay.stepping.query_sources import (
    QuerySource,
    built,
    check_replayable,
    sources_of,
    watermark_count,
)
from streamstate.replay.stepping.run_batch import ForkSink, active_queries, run_batch
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.capture.epoch_entries import BatchProgress
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.checkpoint.source_offsets import file_batch
from streamstate.snapshots.spark.kafka_broker import check_answers
from streamstate.snapshots.spark.own_settings import with_settings
from streamstate.snapshots.spark.private_classes import private_calls
from streamstate.snapshots.store.layout import Layout
from streamstate.state_inspect.inputs.epoch_offsets import SourceRange
from streamstate.state_inspect.inputs.known_input import KnownInputs
from streamstate.state_inspect.inputs.source_batches import SourceReader
from streamstate.state_inspect.inputs.whole_input import WholeInput
from streamstate.variables.bound_step import BoundStep

Watermark: TypeAlias = Literal["own", "original"]
"""The watermark that an epoch runs with: computed by the fork's own epochs, or the original's."""

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@dataclass(frozen=True)
class NoNextEpoch:
    """There is no further epoch to run."""

    reason: str


@dataclass(frozen=True)
class CompletedEpoch:
    """An epoch that was run and committed."""

    epoch: NextEpoch
    seconds: float
    progress: BatchProgress | None = None
    """None if Spark reported nothing, or the state was only repartitioned."""
    execution: Any = None
    """Spark's own object of it; see :mod:`streamstate.snapshots.spark.plan_graph`."""
    doubt: str | None = None
    """The reason for which its input may not be all that the original read; None if it is."""


def original_of(checkpoint: str, original: str | os.PathLike[str] | None, spark: SparkSession | None) -> str:
    """Return the checkpoint that a fork follows."""
    if original is not None:
        return location(os.fspath(original))
    ancestors = [checkpoint]
    upcoming = max(CheckpointFiles(checkpoint, spark).committed(), default=-1) + 1
    while (record := forked_from(ancestors[-1], spark)) is not None:
        if record.parent in ancestors:
            raise ForkError(
                f"The forks {choices(ancestors)} name each other as their parents.\n"
                "A streamstate-fork.json was changed. Name the original with original=…."
            )
        ancestors.append(record.parent)
        # A fork of a fork continues as its parent did, and after the parent's end as the parent's parent did.
        if CheckpointFiles(record.parent, spark).planned(upcoming) is not None:
            break
    if len(ancestors) == 1:
        raise ForkError(
            f"{checkpoint} is not a fork, and only forks are stepped: the epochs and sink of any other query stay as"
            " they are.\nMake a fork with Checkpoint.fork, and step that; or name the original with original=…."
        )
    return ancestors[-1]


@dataclass
class ForkRunner:
    """Runs one epoch of a fork after another.

    Args:
        watermark: whose watermark to use; None: the fork's own if the query has at most one, else the original's,
            because Spark forgets the parts of a combined watermark when a query restarts.
        conf: settings for the fork's runs only.
        shared: values for shared variables, instead of those that the original's epochs saw.
        pinned: settings that the first epoch pins the fork to, if it begins without any epoch.
        store: a store that may have the original, for what it knows of the epochs' input.
    """

    build_query: BuildQuery
    path: str
    original_path: str
    spark: SparkSession
    mode: str = "update"
    sink: ForkSink = field(default_factory=ForkSink)
    new_input: bool = False
    watermark: Watermark | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict)
    pinned: Mapping[str, str] = field(default_factory=dict)
    store: Layout | None = None

    def __post_init__(self) -> None:
        """Prepare to read the checkpoints; nothing is read yet."""
        self.fork = CheckpointFiles(self.path, self.spark)
        self.original = CheckpointFiles(self.original_path, self.spark)
        self.folder = ForkFolder(self.path, self.spark)
        self._checked = self._own_watermark = False
        self._sources: list[QuerySource] = []
        self._bound = BoundStep(self.original, self.fork, self.shared)

    @property
    def epoch(self) -> int:
        """The newest committed epoch of the fork; −1 before the first."""
        return max(self.fork.committed(), default=-1)

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Lock the fork, and clean up what a killed step left behind."""
        self._check_checkpoints()
        with stepping(self.path, self.spark):
            if self.fork.query_id in active_queries(self.spark):
                raise QueryError(
                    f"The query of {self.path} is running, so it cannot be stepped.\nStop it first: query.stop()."
                )
            if self.fork.begun()[-1:] > [self.epoch]:
                # A step was killed half-way.
                self.folder.take_back(self.fork)
            yield

    def _check_checkpoints(self) -> None:
        if self.fork.query_id == "":
            raise NotACheckpointError(
                f"{self.path} cannot be stepped: its 'metadata' file names no query.\n"
                "Make a fork with Checkpoint.fork, and step that."
            )
        if self.path == self.original_path:
            raise ForkError(
                f"{self.path} is the original itself, which is never stepped.\nMake a fork with Checkpoint.fork, and"
                f" step that."
            )
        try:
            parent = self.original.query_id
        except NotACheckpointError as error:
            raise NotACheckpointError(
                f"The original of {self.path} is no longer at {self.original_path}.\n"
                "Pass its new path with original=…, or another original and new_input=True to continue without it."
            ) from error
        if parent == self.fork.query_id:
            raise ForkError(
                f"{self.path} has the query id of {self.original_path}: it is a copy, not a fork.\n"
                "Make a fork with Checkpoint.fork, which gets its own query id."
            )

    def run_next(self) -> CompletedEpoch | NoNextEpoch:
        """Run the next epoch, inside :meth:`exclusively`; if it fails, the fork is unchanged."""
        began = time.monotonic()
        frame = self._frame()
        upcoming = self._upcoming()
        if isinstance(upcoming, NoNextEpoch):
            return upcoming
        doubt = self._check_kept(frame, upcoming)
        progress, execution = None, None
        try:
            if upcoming.partitions is not None:
                self._repartition(upcoming.number, upcoming.partitions)
            else:
                progress, execution = self._run(frame, upcoming)
        except BaseException:
            if upcoming.number not in self.fork.committed():
                self.folder.take_back(self.fork)
            raise
        if self.epoch == upcoming.number - 1:
            self.folder.take_back(self.fork)
            return NoNextEpoch(f"There is no new input after epoch {self.epoch}.")
        return CompletedEpoch(upcoming, time.monotonic() - began, progress, execution, doubt)

    def _frame(self) -> DataFrame:
        """Return the query, checked when it is first built."""
        frame = built(self.build_query)
        if self.conf:
            # The settings may change the frame.
            with with_settings(frame.sparkSession, self.conf):
                frame = built(self.build_query)
        frame = self._bound.bound(frame)
        if not self._checked:
            self._sources = self._checked_sources(frame)
            own = watermark_count(frame) <= 1 if self.watermark is None else self.watermark == "own"
            self._checked, self._own_watermark = True, own
        return frame

    def _checked_sources(self, frame: DataFrame) -> list[QuerySource]:
        """Return the sources in the order of their offsets; none if that is not known."""
        found = sources_of(frame)
        if found is None:
            return []
        check_replayable(found)
        planned = self.fork.planned(self.epoch) or self.original.planned(0)
        if planned is None:
            return []
        if planned.names:
            found = self._by_name(found, planned.names)
        offsets = planned.offsets
        if len(found) != len(offsets):
            raise ForkError(
                f"The query has {len(found)} sources ({', '.join(source.name for source in found)}), but"
                f" {self.original_path} has {len(offsets)}.\nKeep the sources in build_query, in the same order."
            )
        for at, (source, offset) in enumerate(zip(found, offsets, strict=True)):
            if offset is not None and source.reads_files != (file_batch(offset) is not None):
                raise ForkError(
                    f"Source {at} of the query is {source.name}, but that of {self.original_path} is of another kind:"
                    f" its offset is {offset}.\nKeep the sources in build_query, in the same order."
                )
        return found

    def _by_name(self, found: Sequence[QuerySource], names: Sequence[str]) -> list[QuerySource]:
        """Return the query's named sources, in the order of the names."""
        given = {source.given_name: source for source in found}
        if given.keys() != {*names}:
            own = choices(sorted(str(name) for name in given if name)) if any(given) else "no names"
            raise ForkError(
                f"The sources of {self.original_path} are named {choices(names)}; those of the query: {own}.\n"
                "Keep the sources in build_query, with their names (readStream.name)."
            )
        return [given[name] for name in names]

    def _upcoming(self) -> NextEpoch | NoNextEpoch:
        number = self.epoch + 1
        found = None
        try:
            found = next_epoch(
                self.original, self.fork, self.folder, own_watermark=self._own_watermark, pinned=self.pinned
            )
        except ForkError:
            if not self.new_input:
                raise
        if found is None and self.new_input:
            return NextEpoch(number, "new")
        return found or NoNextEpoch(
            f"{self.original_path} has no epoch after {number - 1}. Pass new_input=True to continue with new input."
        )

    def _check_kept(self, frame: DataFrame, upcoming: NextEpoch) -> str | None:
        """Raise if records that the epoch reads are gone: Spark would say so late, or read what is left.

        Returns why some may be gone, if the broker cannot say for certain.
        """
        if not any(source.kafka is not None for source in self._sources):
            return None
        before, planned = self.fork.planned(self.epoch), self.original.planned(upcoming.number)
        if upcoming.input == "new" or planned is None:
            check_answers(frame)
            return None
        starts = before.offsets if before is not None else [None] * len(planned.offsets)
        ranges = map(SourceRange, planned.logs, starts, planned.offsets)
        reader = SourceReader(self.spark, self.original.path, self.original.files)
        known = self._known.at(upcoming.number, one_source=len(self._sources) == 1)
        whole = WholeInput(f"epoch {upcoming.number} of {self.original.path}", known, reader)
        try:
            with private_calls(self.spark):
                doubts = [
                    whole.doubt(source.kafka, read)
                    for source, read in zip(self._sources, ranges, strict=True)
                    if source.kafka is not None
                ]
        finally:
            reader.close()
        return "; ".join(filter(None, doubts)) or None

    @cached_property
    def _known(self) -> KnownInputs:
        return KnownInputs(self.original.query_id, self.store)

    def _run(self, frame: DataFrame, upcoming: NextEpoch) -> tuple[BatchProgress | None, Any]:
        self.sink.claim(self.folder)
        self.folder.write(self._bound.rebound(upcoming.texts, upcoming.number))
        version = self.fork.format_version(self.epoch) if self.epoch >= 0 else self._first_format
        conf = {_FORMAT: version, **self.conf}
        with self._bound.run(frame), delta_checked(frame, self.original, self.fork, upcoming):
            ran = run_batch(frame, self.path, upcoming.number, mode=self.mode, sink=self.sink, conf=conf)
        self._verify(upcoming)
        self._bound.settle(upcoming.number)
        return ran

    @property
    def _first_format(self) -> str:
        committed = self.original.committed()
        return self.original.format_version(committed[0]) if committed else "2"

    def _verify(self, upcoming: NextEpoch) -> None:
        """Raise unless the fork has run exactly that epoch, with that input."""
        newest, begun = self.epoch, self.fork.begun()[-1:]
        if upcoming.input == "new" and newest == upcoming.number - 1:
            return  # there was no new input
        planned, theirs = self.fork.planned(newest), self.original.planned(upcoming.number)
        same = upcoming.input == "new" or (planned is not None and theirs is not None and planned.input == theirs.input)
        if newest != upcoming.number or begun != [newest] or not same:
            raise ForkError(
                f"{self.path} should have run epoch {upcoming.number} with the original's input, but it is at epoch"
                f" {newest} and has planned {begun}.\nThis is a bug in streamstate: please report it, and fork again."
            )

    def _repartition(self, number: int, partitions: int) -> None:
        """Repartition the state as the original did, which reads no input and changes no row."""
        before = self.fork.partitions(number - 1)
        original_before = self.original.partitions(number - 1)
        if before is None or before != original_before:
            raise ForkError(
                f"Epoch {number} of {self.original_path} only repartitioned its state, from {original_before} to"
                f" {partitions} partitions. {self.path} has {before} partitions, so it cannot repeat that.\n"
                f"Fork at epoch {number}, after the repartitioning."
            )
        repartition(self.spark, self.fork, number - 1, partitions)
