"""A query that a notebook started or follows: the handle that a magic returns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.magics.signs import signed
from streamstate.magics.table import Shown
from streamstate.recovery.failures import failure_of
from streamstate.snapshots.errors import CaptureError, QueryError, WaitTimeoutError
from streamstate.snapshots.pace import Pace

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.magics.launch import Launch
    from streamstate.recovery.supervision import Supervised
    from streamstate.snapshots import Capture
    from streamstate.snapshots.pace import Every

__all__ = ["ACTIVE", "QueryStatus", "RunningQuery", "progress_line"]

_POLL_SECONDS = 0.2
ACTIVE = ("running", "restarting", "followed")
"""The states of a query that goes on, here or elsewhere."""


@dataclass(frozen=True)
class QueryStatus:
    """A query at one moment."""

    name: str
    state: str
    """'running', 'restarting' (it failed and will be started again), 'finished' (it had an end and reached it),
    'stopped', 'failed', or 'followed': it runs elsewhere."""
    epoch: int | None
    """The newest captured epoch."""
    behind: int
    """Committed epochs that are not captured yet."""
    freshness: float | None
    """Seconds from an epoch's commit until it could be queried."""
    rate: float | None
    """Input rows a second that the query processed in its newest epoch; None where that is not known."""
    rows: int | None
    """Rows of state after the newest epoch that Spark reported on."""
    capture: str
    """'waiting', 'running', 'stopped' or 'failed'."""
    error: str | None
    """The first error, the query's before the capture's."""
    restart: str | None = None
    """Of a query that will be started again: which attempt that is, and when."""


class RunningQuery:
    """One query of this notebook and its capture.

    Attributes:
        name: its name in the store.
        store: the store's path.
        checkpoint: its checkpoint's path.
        capture: the capture in the background.
        supervised: what starts the query again when it fails; None where nothing does.
    """

    def __init__(
        self,
        name: str,
        store: str,
        checkpoint: str,
        capture: Capture,
        *,
        query: StreamingQuery | None = None,
        launch: Launch | None = None,
        every: Every = 1,
        supervised: Supervised | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self.checkpoint = checkpoint
        self.capture = capture
        self.supervised = supervised
        self._query = query
        self.launch = launch
        self.every = every
        self._stopped = False

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's own handle, as it was started last; None where the query runs elsewhere and is only followed."""
        return self._query if self.supervised is None else self.supervised.query

    @property
    def state(self) -> str:
        """What the query does, in the words of :class:`QueryStatus`."""
        if self._supervising:
            return "restarting" if self.supervised is not None and self.supervised.restarting else "running"
        if self.query is None:
            return "stopped" if self._stopped else "followed"
        if self.query.isActive:
            return "running"
        if self.query.exception() is not None:
            return "failed"
        return "stopped" if self._stopped or self.launch is None or not self.launch.ends else "finished"

    def status(self) -> QueryStatus:
        """The query and its capture at this moment."""
        captured = self.capture.status
        return QueryStatus(
            name=self.name,
            state=self.state,
            epoch=captured.epoch,
            behind=captured.behind,
            freshness=captured.freshness,
            rate=self._rate(),
            rows=self._rows(),
            capture=captured.state,
            error=self._failure() or captured.error or captured.tidy_error,
            restart=self.supervised.next_start if self.supervised is not None else None,
        )

    def wait(
        self,
        epoch: int | None = None,
        timeout: float | None = None,
        *,
        progress: Callable[[QueryStatus], None] | None = None,
    ) -> int:
        """Wait until an epoch is captured; interrupting it leaves the query running.

        Args:
            epoch: the epoch to wait for. Without it: until a query that ends by itself has ended and is captured
                whole; for another query, until everything it has committed so far is captured.
            timeout: seconds after which to give up.
            progress: called about five times a second with the status.

        Returns:
            The newest captured epoch.

        Raises:
            QueryError: the query failed, or ended before the epoch.
            CaptureError: the capture failed.
            WaitTimeoutError: the time was up; the query and its capture go on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (reached := self._reached(epoch)) is None:
            if progress is not None:
                progress(self.status())
            if deadline is not None and time.monotonic() > deadline:
                raise WaitTimeoutError(self._overdue(epoch))
            time.sleep(_POLL_SECONDS)
        if progress is not None:
            progress(self.status())
        return reached

    def stop(self, *, progress: Callable[[QueryStatus], None] | None = None) -> None:
        """Stop the query, where this notebook started it, capture what it committed, and stop capturing.

        Args:
            progress: called about five times a second with the status. Interrupted meanwhile, the capture goes on
                until it has what was committed, and ends then.
        """
        if self._supervising and self.supervised is not None:
            self._stopped = True
            self.supervised.stop()
        if self.query is not None and self.query.isActive:
            self._stopped = True
            self.query.stop()
        if self.query is None:
            self._stopped = True
        self.capture.end()
        while progress is not None and self.capture.status.state not in ("stopped", "failed"):
            progress(self.status())
            time.sleep(_POLL_SECONDS)
        self.capture.stop()

    def _reached(self, epoch: int | None) -> int | None:
        """The newest captured epoch, once what is waited for has happened."""
        # In this order: what is no longer supervised has failed for good, and then says why it is not started again.
        if not self._supervising and (failure := self._failure()):
            raise QueryError(f"{self.name} failed: {failure}\n{self.name}'s handle has all of it: .query.exception()")
        if not self._ended:
            return self._reached_running(epoch)
        if Pace.of(self.every).waits:
            self.capture.stop()  # the last epochs may be too few to be captured otherwise
        newest = self._captured(None)
        if newest is not None and epoch is not None and newest < epoch:
            raise QueryError(f"{self.name} has ended at epoch {newest}; epoch {epoch} will not come.")
        return newest

    def _reached_running(self, epoch: int | None) -> int | None:
        """The same for a query that runs on."""
        if epoch is None and self.launch is not None and self.launch.ends:
            return None
        try:
            newest = self._captured(epoch)
        except CaptureError:
            if self._ended:
                return None  # it ended meanwhile, and the capture with it; why is found when it is looked at again
            raise
        return None if newest is None or newest < 0 else newest

    @property
    def _supervising(self) -> bool:
        """Whether the query is started again if it fails."""
        return self.supervised is not None and not self.supervised.over

    @property
    def _ended(self) -> bool:
        return self.query is not None and not self._supervising and not self.query.isActive

    def _captured(self, epoch: int | None) -> int | None:
        """The newest captured epoch; None while the one asked for (or, with none, a committed one) is not captured."""
        try:
            return self.capture.wait(epoch, timeout=_POLL_SECONDS)
        except WaitTimeoutError:
            return None

    def _failure(self) -> str | None:
        """Why the query failed; while it is to be started again, why that is."""
        if self.supervised is not None and (self.supervised.restarting or self.supervised.given_up):
            why = f" (not started again: {self.supervised.given_up})" if self.supervised.given_up else ""
            return f"{self.supervised.error}{why}"
        return None if self.query is None or self.query.isActive else failure_of(self.query)

    def _rows(self) -> int | None:
        progress = None if self.query is None else self.query.lastProgress
        return sum(operator["numRowsTotal"] for operator in progress["stateOperators"]) if progress else None

    def _rate(self) -> float | None:
        """How fast it is, while it runs."""
        progress = self.query.lastProgress if self.query is not None and self.state == "running" else None
        rate = None if progress is None else progress["processedRowsPerSecond"]
        return rate if rate is not None and math.isfinite(rate) else None

    def _overdue(self, epoch: int | None) -> str:
        status = self.status()
        goal = f"epoch {epoch}" if epoch is not None else "the end of what there is"
        return (
            f"{self.name} did not reach {goal} in time: {progress_line(status)}.\n"
            f"It goes on; wait again, or %stream stop {self.name}."
        )

    def __repr__(self) -> str:
        status = self.status()
        return f"{progress_line(status)} (capture {status.capture})"

    def _repr_html_(self) -> str:
        status = self.status()
        line = repr(self).removeprefix(self.name)
        return f"<p>{signed(status.state).sign_html()} <b>{Shown(self.name).html()}</b>{Shown(line).html()}</p>"


def progress_line(status: QueryStatus) -> str:
    """A status in one line, which changes only when there is news."""
    epoch = "no epoch captured yet" if status.epoch is None else f"captured up to epoch {status.epoch}"
    behind = f", {status.behind} behind" if status.behind else ""
    rows = f", {status.rows:,} rows of state" if status.rows is not None else ""
    error = f", last error: {status.error}" if status.error else ""
    restart = f" ({status.restart}: {status.error})" if status.restart else ""
    if restart:
        error = ""
    return f"{status.name} is {status.state}{restart}: {epoch}{behind}{rows}{error}"
