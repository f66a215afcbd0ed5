"""Planned handover: another process runs new code of a query from the next epoch on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from streamstate.errors import QueryError, SparkConnectError, StreamStateError, WaitTimeoutError
from streamstate.launch.claiming import claim, remove_drafts
from streamstate.launch.recorded_input import with_recorded_input
from streamstate.launch.rescaling import wait_between_epochs
from streamstate.launch.shared_variables import with_shared_variables
from streamstate.launch.standby import stand_by
from streamstate.operations.availability.handover import HandoverReport
from streamstate.operations.availability.lease import HANDED_OVER
from streamstate.operations.availability.standby import ENDED, FAILED, OWNER, Standby
from streamstate.replay.stepping.query_sources import built
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.state_stores import replay_ahead

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.launch.launch import Launch
    from streamstate.operations.availability.lease import Lease
    from streamstate.operations.checkpoint import Checkpoint
    from streamstate.operations.code_check.report import CheckReport
    from streamstate.snapshots.calls.checks import BuildQuery
    from streamstate.snapshots.capture.follow import Capture
    from streamstate.snapshots.capture.pass_plan import Every

_POLL_SECONDS = 0.02
_COMMITS = 10
_FEW_VERSIONS, _FEW_BYTES = 12, 2_000_000
"""Changes that are replayed quickly. Spark makes a snapshot every 10 versions, and uploads the newest each minute."""
_UPLOAD_SECONDS, _UPLOAD_POLL = 75.0, 0.5
_COMMIT_SECONDS, _COMMIT_POLL = 10.0, 0.005


class Handed(Protocol):
    """The parts of a query's handle that a handover uses."""

    checkpoint: Checkpoint
    capture: Capture
    every: Every
    store: str

    @property
    def state(self) -> str:
        """As that of :class:`QueryStatus`."""

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's handle."""

    def end_query(self) -> None:
        """End the query, but neither its capture nor its lease."""

    def restart(self) -> object:
        """Start the query again."""


@long_call("The query runs here as before, unless the other process owns it already.")
def hand_over(
    running: Handed,
    launch: Launch,
    build_query: BuildQuery,
    *,
    lease: float,
    changed: bool,
    timeout: float,
    progress: ProgressCallback | None = None,
) -> HandoverReport:
    """Hand a query over, as :meth:`streamstate.Running.hand_over`.

    Args:
        running: its handle.
        launch: how it was started.
        build_query: the new code.
        lease: the time to live of the lease that the query gets if it has none.
        changed: hand over to code whose state means something else, too.
        timeout: seconds that each of the new process's steps may take.
        progress: called with a message and the completed share of the work.
    """
    if launch.on_connect:
        raise SparkConnectError.needs_classic()
    say = progress or silent
    files = CheckpointFiles(running.checkpoint.path, launch.classic_session)
    return _Handover(running, launch, files, timeout, say).run(build_query, lease=lease, changed=changed)


@dataclass
class _Handover:
    """One handover."""

    running: Handed
    launch: Launch
    files: CheckpointFiles
    timeout: float
    say: ProgressCallback
    phases: dict[str, float] = field(default_factory=dict)
    stopped: bool = False

    def run(self, build_query: BuildQuery, *, lease: float, changed: bool) -> HandoverReport:
        """Check the code, start a process with it, and let that go on after an epoch."""
        running, fence = self.running, self.launch.fence
        with self._phase("checking", 0.0):
            report = self._checked(build_query, changed=changed)
        layout, query_id = running.capture.layout, running.checkpoint.query_id
        with self._phase("warming", 0.2):
            owner = stand_by(
                self.launch, query_id, build_query, layout=layout, every=running.every, lease=lease, replaces=True
            )
            with self._taken_back(owner):
                self._wait_until_warm(owner)
        with self._taken_back(owner):
            with self._phase("waiting for a snapshot", 0.6):
                self._wait_for_snapshot()
            running.capture.pause()  # its passes would share the processors with the new owner's first epoch
            with self._phase("waiting for a commit", 0.7):
                self._wait_for_commit()
            with self._phase("stopping", 0.8):
                self._stop_between_epochs()
                epoch = self.files.committed()[-1]
            with self._phase("starting", 0.9):
                fence.release(HANDED_OVER, to=owner.id)
                running.capture.end(catch_up=False)  # the new owner captures what is left
                self._wait_until_owned(owner)
        running.capture.stop(catch_up=False)
        return HandoverReport(owner, report, epoch, self._seconds(epoch), self._usual(epoch), self.phases)

    @contextmanager
    def _phase(self, name: str, share: float) -> Iterator[None]:
        self.say(f"{self.launch.name}: {name}", share)
        began = time.monotonic()
        yield
        self.phases[name] = time.monotonic() - began

    def _checked(self, build_query: BuildQuery, *, changed: bool) -> CheckReport:
        frame = self._frame(build_query)
        report = self.running.checkpoint.check(frame, mode=self.launch.mode, store=self.running.store)
        # The query, which runs, will commit the unfinished epoch.
        report = replace(report, findings=tuple(found for found in report.findings if found.kind != "unfinished"))
        refused = any(finding.level == "refused" for finding in report.findings)
        if refused or not (report.ok or changed):
            hint = "Change the code." if refused else "If that is meant, pass changed=True."
            raise QueryError(f"{self.launch.name} was not handed over, and runs as before. {hint}\n{report}")
        return report

    def _frame(self, build_query: BuildQuery) -> DataFrame:
        """Return the new code's frame with the recorded input and the shared variables that the query has."""
        launch, layout = self.launch, self.running.capture.layout
        new = replace(launch, frame=built(build_query), shared=())
        new = with_recorded_input(new, layout, record_input=bool(launch.recorders()))
        return with_shared_variables(new, launch.chosen_variables, layout.root, layout.options).frame

    def _wait_until_warm(self, owner: Standby) -> None:
        """Wait until the new code has run an epoch of a fork, unless the query has too few epochs for that."""
        status = owner.wait(self.timeout)
        if status.error is not None:
            raise QueryError(f"the new code failed in a fork of the query: {status.error}")
        self._check_running()

    def _check_running(self) -> None:
        if self.running.state != "running":
            raise QueryError(f"it is {self.running.state}")

    def _wait_for_snapshot(self) -> None:
        """Wait until Spark has uploaded a snapshot of a large state, so that the new owner replays few changes."""
        deadline = time.monotonic() + _UPLOAD_SECONDS
        while (began := time.monotonic()) < deadline and (committed := self.files.committed()):
            versions, size = replay_ahead(self.files, committed[-1])
            if versions <= _FEW_VERSIONS or size <= _FEW_BYTES:
                return
            time.sleep(max(_UPLOAD_POLL, 2 * (time.monotonic() - began)))
            self._check_running()

    def _wait_for_commit(self) -> None:
        """Wait for the next commit, if it is due soon: the new owner then starts while no epoch is due yet."""
        newest = self.files.committed()[-1]
        usual = self._usual(newest)
        if usual is None or self.files.remote:
            return
        deadline = time.monotonic() + min(2 * usual, _COMMIT_SECONDS)
        while self.files.committed()[-1] == newest and time.monotonic() < deadline:
            time.sleep(_COMMIT_POLL)
        self._check_running()

    def _stop_between_epochs(self) -> None:
        if (query := self.running.query) is not None:
            wait_between_epochs(query, self.files)
        self.stopped = True
        self.running.end_query()

    def _wait_until_owned(self, owner: Standby) -> None:
        deadline = time.monotonic() + self.timeout
        while (status := owner.status()).state != OWNER:
            if status.state in (ENDED, FAILED):
                raise QueryError(f"the new code failed: {status.error or 'its process has ended'}")
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"the new code has committed no epoch after {self.timeout:g} s")
            time.sleep(_POLL_SECONDS)

    @contextmanager
    def _taken_back(self, owner: Standby) -> Iterator[None]:
        """If the block fails, end the new process, and run the query here again if it was stopped."""
        lease = self.launch.fence.lease
        try:
            yield
        except BaseException as error:
            if owner.status().state == OWNER:
                raise  # an interrupt that came too late
            owner.stop()
            if self.stopped:
                self._start_again(lease)
            else:
                self.running.capture.resume(None)
            if isinstance(error, StreamStateError):
                raise type(error)(f"{self.launch.name} was not handed over, and runs as before: {error}") from error
            raise

    def _start_again(self, lease: Lease | None) -> None:
        launch, running = self.launch, self.running
        lasts = None if lease is None else lease.lasts
        if claim(launch, running.capture.layout, running.every, lasts, lambda _line: None):
            remove_drafts(launch.checkpoint, launch.classic_session)
        running.restart()

    def _seconds(self, epoch: int) -> float | None:
        """Return the seconds between the commits of an epoch and the next one."""
        return next(iter(self._intervals(epoch, epoch + 1)), None)

    def _usual(self, epoch: int) -> float | None:
        """Return the usual seconds between two commits up to an epoch."""
        intervals = self._intervals(epoch - _COMMITS, epoch)
        return statistics.median(intervals) if intervals else None

    def _intervals(self, first: int, last: int) -> list[float]:
        times = [self.files.committed_at(epoch) for epoch in self.files.committed() if first <= epoch <= last]
        known = [time for time in times if time is not None]
        return [(after - before).total_seconds() for before, after in pairwise(known)]
