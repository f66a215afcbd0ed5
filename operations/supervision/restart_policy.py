"""The restart policy of a query that failed or stalled: the cause of the failure, the wait, and the limits."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from streamstate.errors import InvalidArgumentError, choices, first_line, hidden_cause

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

WhenStalled: TypeAlias = Literal["wait", "restart", "hand over"]

_PYTHON = "Traceback (most recent call last):"
_TASK_LOST = re.compile(r"most recent failure: Lost task [^(]*\(TID \d+\) \([^)]*\): (.*)")


@dataclass(frozen=True)
class BackOff:
    """What :meth:`streamstate.Running.supervise` does about a query that failed, or that stalls.

    The wait doubles from ``initial_wait`` to ``longest`` seconds while the query fails without committing an epoch.
    Once it commits one, the next wait is ``initial_wait`` seconds again.

    A query stalls if it has been busy with one epoch for ``stalled_after`` times the usual, and for ``stall_floor``
    seconds at least. The usual is the 95th percentile of its last 100 epochs; fewer than five are no usual. A query
    that waits for data or for its trigger is not busy. In the first two epochs after a start, three times as long is
    allowed. While tasks end or read rows, a long epoch is only slow, unless one task runs far longer than the others.
    """

    restarts: int = 5
    """How many restarts are allowed ``within`` seconds."""
    within: float = 600.0
    """The length of that period in seconds."""
    initial_wait: float = 1.0
    """Seconds before the first restart."""
    longest: float = 60.0
    """The longest wait in seconds."""
    max_failures_without_progress: int = 3
    """How many failures in a row are allowed without a committed epoch in between."""
    stalled_after: float | None = 10.0
    """An epoch that takes this many times the usual is a stall; None: never."""
    stall_floor: float = 30.0
    """Seconds that an epoch takes at least before it is a stall. With less than about 20, slow tasks may look stuck."""
    when_stalled: WhenStalled = "wait"
    """``"wait"``: only show and record the stall, because restarting a query that is slow makes it slower.
    ``"restart"``: stop the query if nothing in it moves, and start it again; this counts as a failure. ``"hand over"``:
    stop it, and give its lease to its standby; without a standby that is ready, restart it."""

    def __post_init__(self) -> None:
        """Check the values."""
        counts = (self.restarts, self.max_failures_without_progress)
        if min(counts) < 1 or not 0 <= self.initial_wait <= self.longest or self.within <= 0:
            raise InvalidArgumentError(
                f"Invalid {self}: expected restarts and max_failures_without_progress of at least 1, within above 0"
                " seconds, and initial_wait from 0 to longest seconds."
            )
        if not (self.stalled_after is None or self.stalled_after > 1) or self.stall_floor <= 0:
            raise InvalidArgumentError(
                f"Invalid {self}: expected stalled_after above 1, or None for never, and stall_floor above 0 seconds."
            )
        if self.when_stalled not in get_args(WhenStalled):
            raise InvalidArgumentError(
                f"Invalid when_stalled={self.when_stalled!r}: expected {choices(get_args(WhenStalled))}."
            )


@dataclass
class Restarts:
    """Counts the failures of a query and decides what follows each."""

    back_off: BackOff = field(default_factory=BackOff)
    given_up: str | None = None
    """Why the query is not restarted; None while it is."""
    attempt: int = 0
    """Failures in a row without a committed epoch in between."""
    _times: deque[float] = field(default_factory=deque)

    def after_failure(self, *, progressed: bool, now: float) -> float | None:
        """Return the seconds to wait before the next start; None to give up, for the reason in ``given_up``.

        Args:
            progressed: whether an epoch was committed since the last start.
            now: the time in seconds, of a monotonic clock.
        """
        policy = self.back_off
        self.attempt = 1 if progressed else self.attempt + 1
        while self._times and now - self._times[0] >= policy.within:
            self._times.popleft()
        if self.attempt > policy.max_failures_without_progress:
            self.given_up = f"it failed {self.attempt} times in a row without committing an epoch"
        elif len(self._times) >= policy.restarts:
            often = "once" if len(self._times) == 1 else f"{len(self._times)} times"
            self.given_up = f"it was restarted {often} within {policy.within:g} s"
        if self.given_up is not None:
            return None
        wait = min(policy.initial_wait * 2.0 ** (self.attempt - 1), policy.longest)
        self._times.append(now + wait)
        return wait


_WAITS = ("Waiting for data to arrive", "Waiting for next trigger")


def waits(query: StreamingQuery) -> bool:
    """Check that the query has no epoch to run at this moment."""
    status = query.status
    return not status["isTriggerActive"] and status["message"] in _WAITS


def failure_of(query: StreamingQuery) -> str | None:
    """Return the cause of the query's failure in one line; None if it did not fail."""
    error = query.exception()
    return None if error is None else hidden_cause(error) or in_one_line(str(error))


def in_one_line(message: str) -> str:
    """Return the line of an error message of Spark that says what went wrong.

    Spark adds its own words, the query's plan and stack traces. For an error in Python code, the line to show is the
    last of its traceback; for others it follows the task that was lost.
    """
    text = message.partition("=== Streaming Query ===")[0].rpartition("terminated with exception: ")[2]
    if _PYTHON in text:
        traceback = [line.rstrip() for line in text.partition(_PYTHON)[2].splitlines()]
        lines = [line for line in traceback if line and not line.startswith((" ", "\t", "SQLSTATE"))]
    else:
        lost = _TASK_LOST.search(text)
        lines = [lost[1]] if lost else [first_line(text)] if text.strip() else []
    return lines[-1].partition(" SQLSTATE:")[0].strip() if lines else "no reason given"
