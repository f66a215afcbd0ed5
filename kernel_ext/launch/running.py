"""A query that this process started or follows, together with its capture."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from streamstate.errors import CaptureError, QueryError, SparkConnectError, StreamStateError, WaitTimeoutError
from streamstate.launch.query_status import QueryStatus, full_line, line_html, status_line
from streamstate.operations.availability.lease import LASTS
from streamstate.operations.checkpoint import Checkpoint
from streamstate.operations.supervision.restart_policy import BackOff, failure_of
from streamstate.snapshots.capture.pass_plan import CaptureInterval
from streamstate.snapshots.spark.kafka_lag import kafka_lag

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.launch.launch import Launch
    from streamstate.launch.load_policy import RunningPolicy
    from streamstate.operations.availability.handover import HandoverReport
    from streamstate.operations.availability.standby import Standby
    from streamstate.operations.policies.runtime import LoadPolicy
    from streamstate.operations.rescaling.rescale import RescaleReport
    from streamstate.operations.supervision.supervise import Supervised
    from streamstate.snapshots.calls.checks import BuildQuery
    from streamstate.snapshots.calls.progress_callback import ProgressCallback
    from streamstate.snapshots.capture.follow import Capture
    from streamstate.snapshots.capture.pass_plan import Every
    from streamstate.snapshots.capture.recording.recorder import Recorder
    from streamstate.state_inspect import History, Store
    from streamstate.variables.version_pump import VersionPump

_POLL_SECONDS = 0.2
RUNNING = ("running", "restarting")
"""The states of a query that this process runs."""
ACTIVE = (*RUNNING, "followed")
"""The states of a query that is still going, here or elsewhere."""
_newest: WeakValueDictionary[tuple[str, str], Running] = WeakValueDictionary()
"""The newest handle of each query, by its store and name."""


class Running:
    """A query and its capture, as :func:`streamstate.start` and ``%%stream`` return them.

    Attributes:
        name: the query's name in the store.
        store: the store's path.
        checkpoint: the query's :class:`Checkpoint`.
        capture: the background capture.
        supervised: what restarts the query if it fails; None without supervision.

    Example:
        >>> delays = ss.start(frame, "delays", "store")
        >>> delays.wait(epoch=61, timeout=60)
        61
        >>> delays.stop()
    """

    def __init__(
        self,
        name: str,
        store: str,
        checkpoint: str | os.PathLike[str],
        capture: Capture,
        *,
        query: StreamingQuery | None = None,
        launch: Launch | None = None,
        every: Every = 1,
        supervised: Supervised | None = None,
        recorders: Mapping[Recorder, Supervised | None] | None = None,
        start: Callable[[Launch], Running] | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self.checkpoint = Checkpoint(checkpoint, storage_options=capture.layout.options)
        self.capture = capture
        self.supervised = supervised
        self._recorders = dict(recorders or {})
        self._query = query
        self.launch = launch
        self._start = start
        self.every = every
        self._stopped = False
        self._rescaling = False
        _newest[store, name] = self
        self._versions: VersionPump | None = None
        if launch is not None and launch.shared:
            from streamstate.variables.version_pump import VersionPump

            self._versions = VersionPump(launch.shared, launch.checkpoint, launch.frame.sparkSession, self._goes_on)
        self._policy: RunningPolicy | None = None
        if launch is not None and not launch.on_connect:
            from streamstate.launch.load_policy import RunningPolicy

            self._policy = RunningPolicy(self, launch, capture.layout)
        if launch is not None:
            launch.fence.watch(self)

    @property
    def _lost(self) -> str | None:
        """The reason that the query was stopped here, as another process may own it; None if it was not stopped."""
        return None if self.launch is None else self.launch.fence.lost

    def _goes_on(self) -> bool:
        """Check that the query may still commit epochs."""
        return self.state in ACTIVE

    @property
    def newest(self) -> Running:
        """The handle of the newest start under this name; after a restart, it is another one than this."""
        return _newest.get((self.store, self.name), self)

    @property
    def history(self) -> History:
        """The query's captured epochs."""
        return self._history

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's handle of the current run; None if the query runs elsewhere and is only followed."""
        return self._query if self.supervised is None else self.supervised.query

    @property
    def state(self) -> str:
        """The query's state: one of those of :class:`QueryStatus`."""
        if self._rescaling:
            return "restarting"
        if self._supervising:
            return "restarting" if self.supervised is not None and self.supervised.restarting else "running"
        if self.query is None:
            return "stopped" if self._stopped else "followed"
        if self.query.isActive:
            return "running"
        given_up = self.supervised is not None and self.supervised.given_up is not None
        if self._lost is not None or given_up or self.query.exception() is not None:
            return "failed"
        return "stopped" if self._stopped or self.launch is None or not self.launch.ends else "finished"

    def status(self) -> QueryStatus:
        """Return the status of the query and its capture at this moment."""
        captured = self.capture.status
        return QueryStatus(
            name=captured.name,
            state=self.state,
            epoch=captured.epoch,
            behind=captured.behind,
            freshness=captured.freshness,
            rate=self._rate(),
            rows=self._rows(),
            capture=captured.state,
            error=self._failure()
            or self._unrecorded()
            or captured.error
            or captured.tidy_error
            or self._unwritten()
            or (None if self.supervised is None else self.supervised.unwritten)
            or (None if self._policy is None else self._policy.error)
            or (None if self.launch is None else self.launch.fence.error),
            restart=self.supervised.next_start if self.supervised is not None else None,
            lag=kafka_lag(None if self.query is None else self.query.lastProgress),
            policy=self.promise,
            stall=self.supervised.stalled if self.supervised is not None else None,
        )

    @property
    def policy(self) -> LoadPolicy | None:
        """The query's load policy, a :class:`Policy`; None if it has none.

        Setting it takes effect from the next epoch on, and is a row of the store: the next start continues with it.
        None ends the policy; everything is kept and read again.

        Raises:
            QueryError: when it is set, the policy contradicts itself or the query, or the query does not run here.
            SparkConnectError: when it is set, a Spark Connect server runs the query.

        Example:
            >>> running.policy = ss.Policy(latency="5s", partitions=(2, 4))
            >>> running.policy = None
        """
        return None if self._policy is None else self._policy.get()

    @policy.setter
    def policy(self, policy: LoadPolicy | None) -> None:
        if self._policy is None:
            if self.launch is not None:
                raise SparkConnectError.needs_classic()
            raise QueryError(
                f"{self.name} was not started in this process, so it cannot be kept to a policy here.\n"
                "Set the policy where the query runs, or start it here with streamstate.start."
            )
        self._policy.set(policy)

    @property
    def promise(self) -> str | None:
        """In words, if the policy holds, such as "policy holds"; None without a policy."""
        return None if self._policy is None else self._policy.words()

    def wait(
        self,
        epoch: int | None = None,
        timeout: float | None = None,
        *,
        on_status: Callable[[QueryStatus], None] | None = None,
    ) -> int:
        """Wait until an epoch is captured. Interrupting the wait leaves the query running.

        Args:
            epoch: the epoch to wait for. By default, a query that ends by itself is waited for until it has ended
                and is captured completely; any other query until everything committed so far is captured.
            timeout: seconds after which to give up.
            on_status: called with the status about five times per second.

        Returns:
            The newest captured epoch.

        Raises:
            QueryError: if the query failed, or ended before the epoch.
            CaptureError: if the capture failed.
            WaitTimeoutError: if the timeout expired; the query and its capture continue.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        goal = self._goal(epoch)
        while (reached := self._reached(epoch, goal)) is None:
            if on_status is not None:
                on_status(self.status())
            if deadline is not None and time.monotonic() > deadline:
                raise WaitTimeoutError(self._overdue(epoch))
            time.sleep(_POLL_SECONDS)
        if on_status is not None:
            on_status(self.status())
        return reached

    def stop(self, *, on_status: Callable[[QueryStatus], None] | None = None) -> None:
        """Stop the query, capture what it has committed, then stop the capture.

        A query that runs elsewhere continues; only its capture stops. The lease on the query is given back, and its
        standby ends.

        Args:
            on_status: called with the status about five times per second. If it raises, the capture still finishes
                what was committed, then ends.
        """
        fence = None if self.launch is None or self.launch.fence.watched is not self else self.launch.fence
        try:
            self.end_run(on_status=on_status)
        finally:
            if fence is not None and (self.query is None or not self.query.isActive):
                fence.release()

    def end_run(self, *, on_status: Callable[[QueryStatus], None] | None = None) -> None:
        """Stop as :meth:`stop` does, but keep the lease for the next run."""
        self.end_query()
        self.capture.end()
        while on_status is not None and self.capture.status.state not in ("stopped", "failed"):
            on_status(self.status())
            time.sleep(_POLL_SECONDS)
        self.capture.stop()

    def end_query(self) -> None:
        """End the query and what belongs to it, but neither its capture nor its lease."""
        fence = None if self.launch is None or self.launch.fence.watched is not self else self.launch.fence
        if fence is not None:
            fence.watched = None
        try:
            self._end_query()
        finally:
            if fence is not None and self.query is not None and self.query.isActive:
                fence.watch(self)

    def _end_query(self) -> None:
        if self._supervising and self.supervised is not None:
            self._stopped = True
            self.supervised.stop()
        if self.query is not None and self.query.isActive:
            self._stopped = True
            self.query.stop()
        if self.query is None:
            self._stopped = True
        self._stop_recorders()
        if self._policy is not None:
            self._policy.stop()
        if self._versions is not None:
            self._versions.stop()

    def restart(self) -> Running:
        """Stop the query and start it again from its checkpoint, with the same settings.

        Returns:
            The handle of the new run; :attr:`newest` of this one gives it too.

        Raises:
            QueryError: the query was not started in this process; or Kafka does not answer within a few seconds, or
                lacks one of its topics. It then goes on as it is.

        Example:
            >>> running = running.restart()
        """
        return self._again(lambda launch: launch)

    def supervise(self, back_off: BackOff | None = None) -> Running:
        """Restart the query as :meth:`restart` does; from then on, it is restarted whenever it fails.

        If the query does not fail, but no epoch comes for much longer than usual, :meth:`status` shows that with its
        cause, and the store records it. :class:`BackOff` says when, and what else is done then.

        Args:
            back_off: how often to restart and how long to wait, and what to do about a stall; by default five restarts
                in ten minutes, and a stall is only shown.

        Returns:
            The handle of the new run, whose ``supervised`` shows the restarts.

        Raises:
            QueryError: the query was not started in this process.

        Example:
            >>> running = running.supervise(ss.BackOff(restarts=10, when_stalled="restart"))
        """
        return self._again(lambda launch: replace(launch, restart=back_off or BackOff()))

    def rescale(self, partitions: int, *, progress: ProgressCallback | None = None) -> RescaleReport:
        """Repartition the state of the running query, into more or fewer partitions.

        The query is stopped after an epoch, its state is repartitioned and verified as :meth:`Checkpoint.rescale` does,
        and it is started again with the same settings; meanwhile its input waits in the source. The capture goes on,
        and this handle stays valid. If anything fails, or you interrupt the call, the query runs with its old
        partitions.

        Args:
            partitions: the new number of partitions, at least 1.
            progress: called with a message and the completed share of the work, from 0 to 1 (None: not known).

        Returns:
            The report of :meth:`Checkpoint.rescale`. ``seconds_standing`` is the time from the last commit before to
            the first one after; if no input waits, until the query waits for input.

        Raises:
            QueryError: the query does not run in this process, has committed no epoch yet, writes to a file sink of
                Spark, or fails in its first epoch after the rescale, which then stays.
            SparkConnectError: the query runs in a Spark Connect server.
            UnsupportedStateError: Spark cannot repartition this kind of state; the query was not stopped.
            InvalidArgumentError: ``partitions`` is invalid, or is the current number; the query was not stopped.
            RescaleError: Spark failed, or the new state differs.

        Example:
            >>> running.rescale(4).partitions
            (2, 4)
        """
        from streamstate.launch.rescaling import rescale

        if self.launch is None or self.state != "running" or self.query is None:
            raise QueryError(
                f"{self.name} is {self.state}, and only a query that runs in this process can be rescaled here.\n"
                f"Stop it where it runs, then call streamstate.Checkpoint({self.checkpoint.path!r}).rescale(N)."
            )
        self._rescaling = True
        try:
            return rescale(
                self.launch,
                self.query,
                self.checkpoint.path,
                self.capture,
                partitions,
                supervised=self.supervised,
                started=self._goes_on_with,
                progress=progress,
            )
        finally:
            self._rescaling = False

    def standby(self, build_query: BuildQuery, *, lease: float = LASTS) -> Standby:
        """Start a process that stands by: warm, and ready to take the query over when this process fails.

        The query gets a lease in its store, which this process renews. When it has not been renewed for its time to
        live, or the query has failed here, the standby starts the query from its checkpoint, with the same name, store,
        sink, trigger and capture. This process then stops its own run, if it is still there. Stopping the query on
        purpose (:meth:`stop`) ends the standby; :meth:`restart` and :meth:`rescale` keep both.

        Args:
            build_query: returns the streaming DataFrame in another process, so it makes all that it needs, beginning
                with ``streamstate.session()``.
            lease: the time to live in seconds. A shorter one makes a takeover quicker; a pause of two thirds of it
                stops the query here.

        Returns:
            A handle with ``.status()``, ``.wait(timeout)`` and ``.stop()``. The standby outlives this process.

        Raises:
            QueryError: the query does not run in this process.
            InvalidArgumentError: ``build_query`` cannot be sent to another process, or the store cannot keep a lease.
            SparkConnectError: the query runs in a Spark Connect server.
            NotOwnerError: another process holds the lease.

        Example:
            >>> standby = running.standby(build_query)  # starts a process  # doctest: +SKIP
            >>> standby.wait().state  # it is warm  # doctest: +SKIP
            'ready'
        """
        from streamstate.launch.standby import stand_by

        if self.launch is None or self.state not in RUNNING:
            raise QueryError(
                f"{self.name} is {self.state}, and only a query that runs in this process gets its standby here.\n"
                f"For a query that holds a lease elsewhere: streamstate standby {self.checkpoint.path}."
            )
        layout, query_id = self.capture.layout, self.checkpoint.query_id
        return stand_by(self.launch, query_id, build_query, layout=layout, every=self.every, lease=lease)

    def hand_over(
        self,
        build_query: BuildQuery,
        *,
        changed: bool = False,
        lease: float = LASTS,
        timeout: float = 300.0,
        progress: ProgressCallback | None = None,
    ) -> HandoverReport:
        """Hand the query over to a new process with new code, between two epochs: for a deployment, or maintenance.

        The code is checked as :meth:`Checkpoint.check` does. A new process with it warms up as a standby does, while
        the query runs here. Then the query is stopped after an epoch, and the new process runs the next one. If the
        code fails before its first commit, or you interrupt the call, the query runs here as before.

        Args:
            build_query: returns the streaming DataFrame of the new code in another process, so it makes all that it
                needs, beginning with ``streamstate.session()``.
            changed: hand over even if the check finds changes: the state means something else with the new code, or the
                sink gets other rows.
            lease: the time to live in seconds of the lease that the query gets if it has none.
            timeout: seconds to wait for the new process to be warm, and then for its first epoch.
            progress: called with a message and the completed share of the work, from 0 to 1 (None: not known).

        Returns:
            What the check found, the new owner as a handle like that of :meth:`standby`, and how late its first epoch
            was. The new process outlives this one.

        Raises:
            QueryError: the query does not run in this process, the check refuses the code, or the code failed.
            InvalidArgumentError: ``build_query`` cannot be sent to another process, or the store cannot keep a lease.
            SparkConnectError: the query runs in a Spark Connect server.
            NotOwnerError: another process holds the lease.
            WaitTimeoutError: the new process is not warm in time.

        Example:
            >>> running.hand_over(build_query).epochs_late  # starts a process  # doctest: +SKIP
            0.4
        """
        from streamstate.launch.handover import hand_over

        if self.launch is None or self.state != "running":
            raise QueryError(
                f"{self.name} is {self.state}, and only a query that runs in this process can be handed over here."
            )
        return hand_over(
            self, self.launch, build_query, lease=lease, changed=changed, timeout=timeout, progress=progress
        )

    def _goes_on_with(self, query: StreamingQuery, launch: Launch) -> None:
        """Take over the query as it was started again by a rescale."""
        self._query, self.launch = query, launch
        if self.supervised is not None:
            self.supervised.goes_on_with(query, launch.start_again)
        if self._stopped:  # while it was rescaled
            query.stop()

    def _again(self, changed: Callable[[Launch], Launch]) -> Running:
        if self.launch is None or self._start is None:
            raise QueryError(
                f"{self.name} was not started in this process, so it cannot be restarted here.\n"
                "Restart it where it runs, or start it here with streamstate.start."
            )
        return self._start(changed(self.launch))

    def _goal(self, epoch: int | None) -> int | None:
        """Return the epoch to wait for; None to wait until the query ends.

        Decided once: a query that never pauses is always ahead of its capture.
        """
        if epoch is not None or (self.launch is not None and self.launch.ends):
            return epoch
        return max(self.capture.committed(), 0)

    def _reached(self, epoch: int | None, goal: int | None) -> int | None:
        """Return the newest captured epoch if the wait is over, else None."""
        # In this order: once supervision is over, the failure says why the query is not restarted.
        if not self._supervising and (failure := self._failure()):
            raise QueryError(f"{self.name} failed: {failure}\n.query.exception() of its handle has the full error.")
        if not self._ended:
            if why := self._unrecorded():
                raise QueryError(f"{self.name} gets no more input: {why}\nStart it again to go on.")
            return None if goal is None else self._reached_running(goal)
        if CaptureInterval.of(self.every).waits:
            self.capture.stop()  # the last epochs may be too few to be captured otherwise
        newest = self._captured(None)
        if newest is not None and epoch is not None and newest < epoch:
            raise QueryError(f"{self.name} ended at epoch {newest}, before epoch {epoch}.")
        if newest is not None and self._versions is not None:
            self._versions.stop()  # the last epoch's contributions are merged then, in the background
        return newest

    def _reached_running(self, goal: int) -> int | None:
        """Return the same for a query that is still running."""
        try:
            return self._captured(goal)
        except CaptureError:
            if self._ended:
                return None  # the query and its capture ended just now; the next round finds out why
            raise

    @property
    def _supervising(self) -> bool:
        """True while the query is restarted if it fails."""
        return self.supervised is not None and not self.supervised.over

    @property
    def _ended(self) -> bool:
        return self.query is not None and not (self._supervising or self._rescaling or self.query.isActive)

    def _captured(self, epoch: int | None) -> int | None:
        """Return the newest captured epoch; None if ``epoch`` (by default, all that is committed) is not yet."""
        try:
            return self.capture.wait(epoch, timeout=_POLL_SECONDS)
        except WaitTimeoutError:
            return None

    def _failure(self) -> str | None:
        """Return the reason of the query's failure, also while it is about to be restarted."""
        if self._lost is not None:
            return f"it was stopped, because another process may run it: {self._lost}"
        if self.supervised is not None and (self.supervised.restarting or self.supervised.given_up):
            why = f" (not started again: {self.supervised.given_up})" if self.supervised.given_up else ""
            return f"{self.supervised.error}{why}"
        return None if self.query is None or self.query.isActive else failure_of(self.query)

    def _unrecorded(self) -> str | None:
        """Return the reason if the input is no longer recorded."""
        for recorder, supervised in self._recorders.items():
            if recorder.error is not None and (supervised is None or supervised.over):
                return f"the recorder of {recorder.path} failed: {recorder.error}"
        return None

    def _unwritten(self) -> str | None:
        """Return the reason if versions of shared variables are not written to the store."""
        return None if self._versions is None else self._versions.error

    def _stop_recorders(self) -> None:
        for recorder, supervised in self._recorders.items():
            if supervised is not None:
                supervised.stop()
            recorder.stop(self.name)

    def _rows(self) -> int | None:
        """Return Spark's count of state rows in its newest epoch; before the first one of a run, that in the store."""
        progress = None if self.query is None else self.query.lastProgress
        operators = progress["stateOperators"] if progress else ()
        if operators:
            return sum(int(operator["numRowsTotal"]) for operator in operators)
        with contextlib.suppress(StreamStateError, OSError):
            known = self._history.recorded.newest_rows().values()
            return None if not known or None in known else sum(rows or 0 for rows in known)
        return None

    @property
    def _history(self) -> History:
        """The history of the version that is captured now, if a flow of a pipeline is followed."""
        return self._opened[self.capture.name]

    @cached_property
    def _opened(self) -> Store:
        from streamstate.state_inspect import open_store  # loads the engines that read state

        layout = self.capture.layout
        return open_store(layout.root, storage_options=layout.options)

    def _rate(self) -> float | None:
        """Input rows per second, while the query runs."""
        progress = self.query.lastProgress if self.query is not None and self.state == "running" else None
        rate = None if progress is None else progress["processedRowsPerSecond"]
        return rate if rate is not None and math.isfinite(rate) else None

    def _overdue(self, epoch: int | None) -> str:
        goal = f"epoch {epoch}" if epoch is not None else "the end of its input"
        return (
            f"{self.name} did not reach {goal} in time: {status_line(self.status())}.\n"
            f"It is still going. Wait again, or stop it."
        )

    def __repr__(self) -> str:
        return full_line(self.status())

    def _repr_html_(self) -> str:
        return line_html(self.name, repr(self))
