"""Notice that a query that has not failed commits no epochs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.errors import first_line
from streamstate.operations.supervision.stall_cause import NOT_KNOWN, StallCause, cause_of_stall
from streamstate.operations.supervision.stall_rule import Pace
from streamstate.snapshots.checkpoint.commit_times import COMMIT, CommitTimes
from streamstate.snapshots.spark.task_times import running_tasks

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.operations.supervision.restart_policy import BackOff
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

_LOOKS = 15
"""Looks at a query within the shortest time that can be a stall."""
_LONGEST_LOOK = 5.0
_LONGER = 0.25
"""The cause of a stall is looked for again when it lasts longer by this share."""
_KNOWN = 20
"""Epochs of earlier runs whose times the checkpoint's files tell."""
_SAMPLES, _LEAST_SAMPLED, _MOST_SAMPLED = 3.0, 0.5, 10.0
_BETWEEN = 0.002
"""Seconds between two looks, of which Spark's pause between two questions, 10 ms, contains some."""


@dataclass(frozen=True)
class Stall:
    """A query that commits no epochs, although it is busy.

    Attributes:
        seconds: since the last epoch, or the start.
        usual: seconds that an epoch usually takes at most.
        cause: why, if that can be told.
        moves: whether tasks have ended or read rows since the look before; None if that is not known.
    """

    seconds: float
    usual: float
    cause: StallCause
    moves: bool | None

    def __str__(self) -> str:
        return f"no epoch for {self.seconds:.0f} s, usually {self.usual:.1f} s: {self.cause.evidence}"


class StallWatch:
    """Looks at a query now and then, and says if it stalls.

    A look asks Spark for the status and the newest report of the query. Only when an epoch takes half of what it may
    are the tasks counted, and only when it takes longer is the cause looked for.

    Args:
        policy: when a long epoch is a stall.
        checkpoint: the query's, whose files tell how long earlier epochs took.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, policy: BackOff, checkpoint: CheckpointFiles, clock: Callable[[], float]) -> None:
        self.stall: Stall | None = None
        """The stall, as of the last look for its cause."""
        self._clock, self._checkpoint = clock, checkpoint
        self._every = min(policy.stall_floor / _LOOKS, _LONGEST_LOOK)
        self._never = policy.stalled_after is None
        self._pace = Pace(policy.stalled_after or 1.0, policy.stall_floor, clock())
        self._query: StreamingQuery | None = None
        self._next = self._due = self._source_seconds = 0.0
        self._progress: tuple[object, ...] | None = None

    def look(self, query: StreamingQuery) -> bool:
        """Look at the query, if it is time to; True if ``stall`` is new, another one, or over.

        Raises:
            Exception: Spark does not answer.
        """
        now = self._clock()
        if self._never or (query is self._query and now < self._next):
            return False
        if query is not self._query:
            first, self._query, self.stall = self._query is None, query, None
            self._pace.begin_run(now)
            if first:
                self._pace.know(_seconds_of_earlier(self._checkpoint))
        self._next = now + self._every
        self._note(query, now)
        return self._judge(query, now)

    def busy_for(self) -> float:
        """Return for how long the query has been busy with one epoch, in seconds."""
        return self._pace.busy_for(self._clock())

    def _note(self, query: StreamingQuery, now: float) -> None:
        report = query.lastProgress
        durations = report["durationMs"] if report else {}
        finished = "addBatch" in durations  # a trigger that finds no data reports the epoch that would come
        self._source_seconds = durations.get("latestOffset", 0) / 1000
        self._pace.looked(
            now,
            busy=_busy(query),
            epoch=int(report["batchId"]) if report and finished else None,
            seconds=durations.get("triggerExecution", 0) / 1000,
        )

    def _judge(self, query: StreamingQuery, now: float) -> bool:
        waited, bound, usual = self._pace.busy_for(now), self._pace.bound, self._pace.usual
        if bound is None or usual is None or waited < bound / 2:
            over, self.stall, self._progress, self._due = self.stall is not None, None, None, 0.0
            return over
        if self._progress is None:
            self._progress = _progress(query)
            self._due = max(bound, waited + bound / 2)
            return False
        if waited < self._due or self._turns_out_idle(query):
            return False
        try:
            cause = cause_of_stall(query)
        except Exception as error:  # noqa: BLE001 (whatever fails, the stall is shown)
            cause = StallCause(None, f"{NOT_KNOWN}: {first_line(error)}")
        moves = None if cause.progress is None else cause.progress != self._progress
        if cause.kind == "source":
            moves = False
        self._progress = cause.progress or ()
        if moves and not cause.straggler and self.stall is None:
            self._due = waited + bound / 2
            return False
        self._due = waited + max(waited * _LONGER, bound / 2)
        self.stall = Stall(waited, usual, cause, moves)
        return True

    def _turns_out_idle(self, query: StreamingQuery) -> bool:
        """Check that the query waits for data between two questions to its source, which single looks may miss."""
        seconds = min(max(_SAMPLES * self._source_seconds, _LEAST_SAMPLED), _MOST_SAMPLED)
        end = time.monotonic() + seconds
        while query.isActive and time.monotonic() < end:
            status = query.status
            if status["isDataAvailable"]:
                return False
            if not _busy(query):
                self._pace.looked(self._clock(), busy=False)
                return True
            time.sleep(_BETWEEN)
        return False


def _busy(query: StreamingQuery) -> bool:
    """Check that a query works on an epoch, and does not wait for data or for its trigger."""
    status = query.status
    message = str(status["message"])
    return message.startswith("Initializing") or (bool(status["isTriggerActive"]) and "Waiting" not in message)


def _progress(query: StreamingQuery) -> tuple[object, ...]:
    found = running_tasks(query)
    return () if found is None else found.progress


def _seconds_of_earlier(checkpoint: CheckpointFiles) -> list[float]:
    """Return how long earlier epochs took, as far as the times of the files in the checkpoint tell."""
    times, found = CommitTimes(checkpoint), []
    for epoch in checkpoint.committed()[-_KNOWN - 1 : -1]:  # of a copy, the newest has the time of copying
        committed_at, source = times.of(epoch)
        planned = checkpoint.readable_plan(epoch)
        if source == COMMIT and committed_at is not None and planned is not None and planned.began_at is not None:
            found.append((committed_at - planned.began_at).total_seconds())
    return found
