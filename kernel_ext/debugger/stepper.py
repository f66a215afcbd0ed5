"""Steps of one fork: what has to be right before an epoch runs, the epoch itself, and what has to be right after."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from streamstate.debugger.fork_folder import ForkFolder
from streamstate.debugger.frame_sources import check_replayable, check_streaming, sources_of, watermarks_of
from streamstate.debugger.lock import stepping
from streamstate.debugger.next_epoch import NextEpoch, next_epoch
from streamstate.debugger.one_epoch import Ran, active_queries, run_once, with_settings
from streamstate.debugger.sinks import Sink
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import ForkError, NotACheckpointError, QueryError
from streamstate.snapshots.filesystem import location
from streamstate.snapshots.forks import forked_from
from streamstate.snapshots.forks.source_log import source_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BuildQuery", "End", "Stepped", "Stepper", "Watermark", "original_of"]

BuildQuery: TypeAlias = "Callable[[], DataFrame]"
"""Makes the query's streaming DataFrame, not started; called once for each epoch."""

Watermark: TypeAlias = Literal["own", "original"]
"""Whose watermark an epoch runs with: what the fork's epochs made it, or the original's."""

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@dataclass(frozen=True)
class End:
    """There is no further epoch to run."""

    reason: str


@dataclass(frozen=True)
class Stepped:
    """An epoch that was run and committed."""

    next: NextEpoch
    seconds: float
    ran: Ran | None


def original_of(checkpoint: str, original: str | os.PathLike[str] | None, spark: SparkSession | None) -> str:
    """The checkpoint that a fork follows.

    Raises:
        ForkError: none was given, and the checkpoint is no fork.
    """
    if original is not None:
        return location(os.fspath(original))
    path, found = checkpoint, None
    upcoming = max(Checkpoint(checkpoint, spark).committed(), default=-1) + 1
    while (record := forked_from(path, spark)) is not None:
        path = found = record.parent
        # A fork of a fork goes on as its parent did, and where that stopped as the one before.
        if Checkpoint(path, spark).planned(upcoming) is not None:
            return path
    if found is None:
        raise ForkError(
            f"{checkpoint} is no fork, and a query that is not one is never stepped: its own sink and epochs stay as"
            " they are.\nMake a fork of it with ss.fork, and step that; or name the original with original=…."
        )
    return found


@dataclass
class Stepper:
    """Runs one epoch of a fork after another.

    Args:
        build_query: makes the query.
        path: the fork.
        original_path: what it follows.
        spark: the session to look at files with.
        mode: the output mode.
        sink: where results go.
        new_input: whether to go on with new input where the original has no further epoch.
        watermark: whose watermark holds; None: the fork's own where the query has at most one, else the original's,
            because Spark forgets the parts of a watermark that is the least of several when a query starts again.
        conf: settings for the fork's runs alone.
        pinned: settings that its first epoch pins it to, where that begins from nothing.
    """

    build_query: BuildQuery
    path: str
    original_path: str
    spark: SparkSession
    mode: str = "update"
    sink: Sink = field(default_factory=Sink)
    new_input: bool = False
    watermark: Watermark | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    pinned: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing is looked at yet."""
        self.fork = Checkpoint(self.path, self.spark)
        self.original = Checkpoint(self.original_path, self.spark)
        self.folder = ForkFolder(self.path, self.spark)
        self._checked = self._own_watermark = False

    @property
    def epoch(self) -> int:
        """The newest epoch that the fork has committed; −1 before the first."""
        return max(self.fork.committed(), default=-1)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only one who steps the fork, and find it as its last committed epoch left it.

        Raises:
            QueryError: its query is running, or somebody else is stepping it.
            NotACheckpointError, ForkError: it, or its original, is not what it has to be.
        """
        self._check_checkpoints()
        with stepping(self.path):
            if self.fork.query_id in active_queries(self.spark):
                raise QueryError(
                    f"The query of {self.path} is running, so it cannot be stepped.\nStop it first: query.stop()."
                )
            if self.fork.begun()[-1:] > [self.epoch]:
                # A step was killed on its way.
                self.folder.take_back(self.fork)
            yield

    def _check_checkpoints(self) -> None:
        if self.fork.query_id == "":
            raise NotACheckpointError(self.path)
        if self.path == self.original_path:
            raise ForkError(
                f"{self.path} is the original itself, which is never stepped.\nMake a fork with ss.fork, and step that."
            )
        try:
            parent = self.original.query_id
        except NotACheckpointError as error:
            raise NotACheckpointError(
                f"The original of {self.path} is not at {self.original_path} any more.\n"
                "Say where it is with original=…, or give new_input=True and an original to go on without it."
            ) from error
        if parent == self.fork.query_id:
            raise ForkError(
                f"{self.path} has the query id of {self.original_path}: it is a copy of it, not a fork.\n"
                "Make a fork with ss.fork: a copy of a checkpoint is the same query twice."
            )

    def next(self) -> Stepped | End:
        """Run the next epoch; to be called in :meth:`alone`.

        Raises:
            QueryError, NotReplayableError, EpochGoneError, ForkError: see :func:`streamstate.step`; the fork stands
                where it stood.
        """
        began = time.monotonic()
        frame = self._frame()
        upcoming = self._upcoming()
        if isinstance(upcoming, End):
            return upcoming
        ran = None
        try:
            if upcoming.partitions is not None:
                self._repartition(upcoming.number, upcoming.partitions)
            else:
                ran = self._run(frame, upcoming)
        except BaseException:
            if upcoming.number not in self.fork.committed():
                self.folder.take_back(self.fork)
            raise
        if self.epoch == upcoming.number - 1:
            self.folder.take_back(self.fork)
            return End(f"There is nothing new to read after epoch {self.epoch}.")
        return Stepped(upcoming, time.monotonic() - began, ran)

    def _frame(self) -> DataFrame:
        """The query, checked when it is first built."""
        frame = check_streaming(self.build_query())
        if self.conf:
            # What is set may change what the frame is.
            with with_settings(frame.sparkSession, self.conf):
                frame = check_streaming(self.build_query())
        if not self._checked:
            self._check_sources(frame)
            own = watermarks_of(frame) <= 1 if self.watermark is None else self.watermark == "own"
            self._checked, self._own_watermark = True, own
        return frame

    def _check_sources(self, frame: DataFrame) -> None:
        found = sources_of(frame)
        if found is None:
            return
        check_replayable(found)
        planned = self.fork.planned(self.epoch) or self.original.planned(0)
        if planned is None:
            return
        offsets = planned.offsets
        if len(found) != len(offsets):
            raise ForkError(
                f"The query has {len(found)} sources ({', '.join(one.name for one in found)}), and {self.original_path}"
                f" has {len(offsets)}.\nbuild_query has to keep the sources, in their order."
            )
        for at, (source, offset) in enumerate(zip(found, offsets, strict=True)):
            if offset is not None and source.reads_files != (source_batch(offset) is not None):
                raise ForkError(
                    f"Source {at} of the query is {source.name}, and that of {self.original_path} is another kind: its"
                    f" offset is {offset}.\nbuild_query has to keep the sources, in their order."
                )

    def _upcoming(self) -> NextEpoch | End:
        number = self.epoch + 1
        try:
            found = next_epoch(
                self.original, self.fork, self.folder, own_watermark=self._own_watermark, pinned=self.pinned
            )
        except ForkError:
            if not self.new_input:
                raise
            return NextEpoch(number, "new")
        if found is not None:
            return found
        if self.new_input:
            return NextEpoch(number, "new")
        return End(
            f"{self.original_path} has no epoch after {number - 1}; new_input=True goes on with what the sources have"
            " now."
        )

    def _run(self, frame: DataFrame, upcoming: NextEpoch) -> Ran:
        self.sink.claim(self.folder)
        self.folder.write(upcoming.texts)
        version = self.fork.format_version(self.epoch) if self.epoch >= 0 else self._first_format
        conf = {_FORMAT: version, **self.conf}
        ran = run_once(frame, self.path, upcoming.number, mode=self.mode, sink=self.sink, conf=conf)
        self._verify(upcoming)
        return ran

    @property
    def _first_format(self) -> str:
        committed = self.original.committed()
        return self.original.format_version(committed[0]) if committed else "2"

    def _verify(self, upcoming: NextEpoch) -> None:
        """The fork has run that epoch, with that input, and no other."""
        newest, begun = self.epoch, self.fork.begun()[-1:]
        if upcoming.input == "new" and newest == upcoming.number - 1:
            return  # there was nothing new
        planned, theirs = self.fork.planned(newest), self.original.planned(upcoming.number)
        same = upcoming.input == "new" or (
            planned is not None and theirs is not None and planned.offsets == theirs.offsets
        )
        if newest != upcoming.number or begun != [newest] or not same:
            raise ForkError(
                f"{self.path} was to run epoch {upcoming.number} with the original's input; it stands at epoch {newest}"
                f" and has begun {begun}.\nMake another fork, and say so: this is a mistake of streamstate's."
            )

    def _repartition(self, number: int, partitions: int) -> None:
        """Do as the original did: spread the state anew, which reads nothing and changes no row."""
        from streamstate.recovery.checks import Before
        from streamstate.recovery.rescale import repartition

        before = self.fork.partitions(number - 1)
        theirs = self.original.partitions(number - 1)
        planned = self.fork.planned(number - 1)
        if before is None or planned is None or before != theirs:
            raise ForkError(
                f"In epoch {number} {self.original_path} only spread its state over {partitions} partitions instead of"
                f" {theirs}; {self.path} has {before} partitions and cannot do the same.\n"
                f"Fork at epoch {number}, after which both go on as ever."
            )
        settings: dict[str, Any] = {"epoch": number - 1, "partitions": before, "conf": planned.conf}
        repartition(self.spark, self.fork, Before(**settings), partitions)
