"""Keep a store up to date in the background, without holding up the query."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from streamstate.errors import (
    CaptureError,
    CheckpointError,
    DamagedCheckpointError,
    InvalidArgumentError,
    JavaNotFoundError,
    MissingDependencyError,
    NameTakenError,
    SparkConnectError,
    WaitTimeoutError,
    first_line,
)
from streamstate.snapshots.capture.allocator_settings import give_back, plain_memory
from streamstate.snapshots.capture.background import BackgroundThread
from streamstate.snapshots.capture.capture import capturer_for, open_checkpoint
from streamstate.snapshots.capture.change_feed import Verify
from streamstate.snapshots.capture.epoch_commit import Capturer, CaptureReport
from streamstate.snapshots.capture.flow_versions import FlowVersions, is_flow
from streamstate.snapshots.capture.pass_plan import CaptureInterval, Every
from streamstate.snapshots.capture.reached_checkpoint import checkpoint_of
from streamstate.snapshots.capture.shared_threads import SharedThreads
from streamstate.snapshots.checkpoint.commit_times import CommitLogTime
from streamstate.snapshots.checkpoint.default_names import flow_version
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.checkpoint.server_copy import CopiedCheckpoint
from streamstate.snapshots.spark.connect import is_of_connect
from streamstate.snapshots.spark.connect_server import served
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.describe import store_running_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from streamstate.snapshots.store.entries import Entry

# How often to look whether the commit log has changed: cheap on a disk, not on an object store.
_LOCAL_POLL, _REMOTE_POLL = 0.02, 1.0
# How often to look for the next version of a pipeline's flow.
_LOCAL_VERSIONS, _REMOTE_VERSIONS = 1.0, 10.0
# Captures that share threads look less often, so that all of them together look about so many times a second.
_SHARED_LOOKS = 1_000
# A log whose folder has not changed is read all the same after this many seconds: not every file system says so.
_LONGEST_TRUST = 1.0
# The same for captures that share threads: after this many looks.
_SHARED_TRUST = 30
# How often to ask whether a query of this process has ended, which takes a call into the JVM.
_ASK_QUERY = 0.05
_LONGEST_RETRY = 30.0
# How long a process that ends waits for its captures.
_AT_EXIT = 10.0
# Checking whether keyframes or merging are due costs some milliseconds per table; more often gains nothing.
_TIDY_PAUSE = 5.0
# Captures that share threads tidy after so many passes, because all of them may have epochs at once. Then, and after so
# many seconds without an epoch, they free the memory that they hold for the next pass.
_SHARED_TIDY = 8
_SHARED_REST = 600.0

OnPass: TypeAlias = "Callable[[CaptureReport | Exception], object]"
"""Receives the report of a pass that captured epochs, or the exception of one that failed."""

_running: weakref.WeakSet[Capture] = weakref.WeakSet()


def follow(
    query_or_checkpoint: StreamingQuery | str | os.PathLike[str],
    store: str | Path,
    name: str | None = None,
    *,
    every: Every = 1,
    verify: Verify = "first",
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    on_pass: OnPass | None = None,
    records_plan: bool = True,
    checkpoint_of_query: str | os.PathLike[str] | None = None,
    fallback: str | None = None,
    paused: bool = False,
) -> Capture:
    """Keep a store up to date with a query, in the background.

    :meth:`streamstate.Checkpoint.follow` describes the arguments and errors. A caller that records the query's plan
    itself passes ``records_plan=False``; one that knows the query's checkpoint passes that too. With ``paused``, the
    first pass begins after :meth:`Capture.resume`.
    """
    interval = CaptureInterval.of(every)
    if isinstance(query_or_checkpoint, (str, os.PathLike)):
        checkpoint, query = query_or_checkpoint, None
    else:
        query = served(query_or_checkpoint)
        checkpoint, fallback = checkpoint_of_query or checkpoint_of(query), query.name

    def capturer_of(path: str | os.PathLike[str], name: str | None) -> Capturer:
        return capturer_for(path, store, name, spark, fallback=fallback, verify=verify, storage_options=storage_options)

    # That of a query of this process ends with it.
    versions = None if query is not None else _versions(checkpoint, name, capturer_of, storage_options)
    capturer = capturer_of(checkpoint, name) if versions is None else versions.first()
    if query is not None:
        capturer.watch(query)
    # Checked before the thread starts, so that errors are raised here.
    if capturer.checkpoint.committed():
        capturer.register()
    # A checkpoint does not show whether its query still runs, so a capture of it does not end by itself.
    ended = None if query is None else lambda: not query.isActive
    capture = Capture(capturer, interval, ended, on_pass, versions=versions, paused=paused)
    if query is not None and records_plan and not is_of_connect(query):  # whose plan is in the server
        from streamstate.snapshots.store.query_plans.spark_plan import first_epoch, plan_of_query

        store_running_plan(capture.layout, capture.name, lambda: plan_of_query(query), first_epoch(query))
    return capture


def _versions(
    checkpoint: str | os.PathLike[str],
    name: str | None,
    capturer_of: Callable[[str, str | None], Capturer],
    storage_options: Mapping[str, str] | None,
) -> FlowVersions | None:
    """Return the versions of a pipeline's flow, if a path is its folder, or from the version on that it is."""
    if isinstance(checkpoint, CopiedCheckpoint):
        return None
    version = flow_version(location(checkpoint))
    if version is None and flow_version(f"{location(checkpoint)}/0") is None:
        return None
    opened = open_checkpoint(checkpoint, None, storage_options)
    if version is not None:
        return FlowVersions(version.folder, opened.files, capturer_of, name, begin=version.version)
    return FlowVersions(opened.path, opened.files, capturer_of, name) if is_flow(opened.files, opened.path) else None


def stop_all() -> None:
    """Stop every capture of this process without waiting for what it could still read.

    A pass under way is given some seconds: a thread inside a library would crash a process that is about to end.
    """
    captures = list(_running)
    for capture in captures:
        capture.end(catch_up=False)
    deadline = time.monotonic() + _AT_EXIT
    for capture in captures:
        capture.join(max(deadline - time.monotonic(), 0))


@dataclass(frozen=True)
class CaptureStatus:
    """The status of a background capture."""

    name: str
    """The query's name in the store."""
    state: str
    """``waiting`` (nothing committed yet), ``running``, ``stopped`` or ``failed``."""
    epoch: int | None = None
    """The newest captured epoch."""
    committed_at: datetime | None = None
    """The time of that epoch's commit, if it is known."""
    watermark: datetime | None = None
    """The watermark of the newest captured epoch."""
    rows: int | None = None
    """The rows of all state tables at that epoch; None if capture has not counted them."""
    changes: int | None = None
    """The rows of state that the epoch changed."""
    committed: int | None = None
    """The newest committed epoch."""
    behind: int = 0
    """Committed epochs that are not captured yet."""
    rows_per_second: float | None = None
    """Change rows captured per second, in the last pass that wrote any."""
    freshness: float | None = None
    """Seconds from the newest captured epoch's commit until it could be queried."""
    gaps: int = 0
    """Epochs that Spark purged before this capture could read them."""
    error: str | None = None
    """The last error; None once a pass has succeeded again."""
    advice: tuple[str, ...] = ()
    """Settings that would make capture cheaper."""
    by_spark: Mapping[str, str] = field(default_factory=dict)
    """The tables that Spark read in the last pass, each with the reason; all others were decoded without it."""
    damaged: tuple[str, ...] = ()
    """Epochs that are lost because the checkpoint is damaged, each with the file."""
    tidy_error: str | None = None
    """The last error while writing keyframes or merging files; None once that has succeeded again. It does not keep
    epochs from being captured."""


@dataclass(frozen=True)
class CaptureLag:
    """The lag of a capture behind its checkpoint."""

    epochs: int
    """Committed epochs that are not captured yet."""
    seconds: float
    """Time since the oldest of them was committed; 0 if none waits."""


class Capture:
    """A capture that runs in the background; :meth:`streamstate.Checkpoint.follow` starts one.

    An error delays snapshots and shows in :attr:`status`; the capture retries, at growing intervals. Only an error that
    retrying cannot fix ends it, such as a name that belongs to another query, or Spark that is needed and missing. So
    does the end of the query that it was given, once all its committed epochs are captured.

    Args:
        capturer: captures the query.
        interval: how often.
        ended: whether the query has ended and will commit nothing more; None if that cannot be known.
        on_pass: receives what each pass did.
        versions: the versions of a pipeline's flow; the capture goes on with the next one once that has begun.
        threads: run the capture beside others; by default it has a thread of its own.
        paused: begin no pass until :meth:`resume`.
    """

    def __init__(
        self,
        capturer: Capturer,
        interval: CaptureInterval,
        ended: Callable[[], bool] | None = None,
        on_pass: OnPass | None = None,
        *,
        versions: FlowVersions | None = None,
        threads: SharedThreads | None = None,
        paused: bool = False,
    ) -> None:
        self._capturer = capturer
        self._versions = versions
        self._next: Capturer | None = None
        self._looked_for_version = time.monotonic()
        self._is_damaged = False
        self._interval = interval
        self._ended = ended or (lambda: False)
        self._longest_trust = _LONGEST_TRUST if ended is None else _ASK_QUERY
        self._log = CommitLogTime(capturer.checkpoint)
        self._on_pass = on_pass or (lambda _outcome: None)
        self._pass_began = self._tidied = -float("inf")
        self._untidy = 0
        self._incomplete = self._idle = self._ready = False
        self._status = CaptureStatus(capturer.name, "waiting")
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._abandoning, self._paused = False, paused
        self._retry = 0.0
        self._threads = threads
        _running.add(self)
        if threads is None:
            self._thread = BackgroundThread(self._loop, f"streamstate-capture-{capturer.name}")
            self._thread.start()
        else:
            threads.add(self)

    @property
    def name(self) -> str:
        """The query's name in the store."""
        return self._capturer.name

    @property
    def layout(self) -> Layout:
        """The places of the store's tables."""
        return self._capturer.layout

    @property
    def store(self) -> str:
        """The store's path."""
        return self.layout.root

    @property
    def checkpoint(self) -> str:
        """The checkpoint that is followed."""
        return self._capturer.checkpoint.path

    @property
    def query_id(self) -> str:
        """The id of the query in its checkpoint."""
        return self._capturer.checkpoint.query_id

    @property
    def status(self) -> CaptureStatus:
        """The capture's status now."""
        with self._changed:
            return self._status

    def committed(self) -> int:
        """Return the newest epoch that the query has committed by now; −1 before its first."""
        return max(self._capturer.checkpoint.committed(), default=-1)

    def lag(self) -> CaptureLag:
        """Return the capture's lag behind the checkpoint now, also while a pass is stuck or keeps failing."""
        newest = self.status.epoch
        checkpoint = self._capturer.checkpoint
        waiting = [epoch for epoch in checkpoint.committed() if newest is None or epoch > newest]
        oldest = checkpoint.committed_at(waiting[0]) if waiting else None
        seconds = max((datetime.now(UTC) - oldest).total_seconds(), 0.0) if oldest else 0.0
        return CaptureLag(len(waiting), seconds)

    def wait(self, epoch: int | None = None, timeout: float | None = None) -> int:
        """Wait until an epoch is captured.

        Args:
            epoch: the epoch to wait for. Default: the newest that is committed now.
            timeout: seconds. Default: no limit.

        Returns:
            The newest captured epoch; −1 if nothing has been committed yet.

        Raises:
            CaptureError: the capture failed, or was stopped before it reached the epoch.
            WaitTimeoutError: it took longer than ``timeout``.
        """
        target = epoch if epoch is not None else self.committed()
        with self._changed:
            in_time = self._changed.wait_for(lambda: self._reached(target) or self._over(), timeout)
            status = self._status
        newest = -1 if status.epoch is None else status.epoch
        if self._reached(target):
            return newest
        if in_time:
            raise CaptureError(
                f"The capture of {self.name!r} {status.state} at epoch {newest}, before epoch {target}"
                + (f": {status.error}" if status.error else ".")
            )
        raise WaitTimeoutError(
            f"Epoch {target} of {self.name!r} was not captured within {timeout} s; the newest captured epoch is"
            f" {newest}" + (f". Last error: {status.error}" if status.error else ".")
        )

    def stop(self, *, catch_up: bool = True) -> None:
        """Capture what is committed, then end. Stopping again does nothing.

        Args:
            catch_up: False to finish only the pass under way. The next capture takes the epochs that are left.
        """
        self.end(catch_up=catch_up)
        if threading.current_thread() not in ([self._thread] if self._threads is None else self._threads):
            self.join()

    def end(self, *, catch_up: bool = True) -> None:
        """Ask the capture to stop, as :meth:`stop` does, and return at once."""
        self._abandoning = self._abandoning or not catch_up
        self._ending.set()
        if self._threads is not None:
            self._threads.wake(self)

    def pause(self) -> None:
        """Begin no pass until :meth:`resume`: the query is stopped for a moment, and its epochs wait."""
        self._paused = True

    def resume(self, query: StreamingQuery | None, *, after: StreamingQuery | None = None) -> None:
        """Go on with the same query as it was started again; None: by its checkpoint alone, as before.

        ``after`` is a run between the two, which has ended: it knows the load of its epochs.
        """
        if after is not None:
            self._capturer.watch(after)
        if query is not None:
            self._capturer.watch(query)
            self._ended = lambda: not query.isActive
        self._paused = False

    def join(self, timeout: float | None = None) -> None:
        """Wait until the capture has stopped, or for a number of seconds."""
        if self._threads is None:
            self._thread.join(timeout)
            return
        with self._changed:
            self._changed.wait_for(self._over, timeout)

    def __repr__(self) -> str:
        status = self.status
        return f"<Capture {self.name!r}: {status.state}, epoch {status.epoch}, {status.behind} behind>"

    def _reached(self, epoch: int) -> bool:
        return epoch < 0 or (self._status.epoch is not None and self._status.epoch >= epoch)

    def _over(self) -> bool:
        return self._status.state in ("stopped", "failed")

    def _loop(self) -> None:
        pause: float | None = self._poll
        while pause is not None:
            self._ending.wait(pause)
            pause = self.turn()

    def turn(self) -> float | None:
        """Do what is due. Returns the seconds until the next turn; None if the capture has ended.

        Only one thread at a time may call it: the capture's own, or one of those that it shares with others.
        """
        try:
            return self._turn()
        except Exception as error:  # noqa: BLE001 (shown in the status; others may share the thread)
            self._update(state="failed", error=_summary(error))
            return None

    def _turn(self) -> float | None:
        if plain_memory():
            give_back()
        if self._ending.is_set():
            self._finish(None if self._abandoning else CaptureInterval())
            return None
        if self._paused:
            return self._poll
        if self._goes_on() or self._nothing_new():
            self._tidy_if_due()
            return self._poll
        ended = self._query_ended()  # asked first, so that all its commits are seen
        self._log.looked()
        succeeded = self._attempt(CaptureInterval() if ended else self._interval)
        self._idle = succeeded and not self._incomplete and self._status.behind < self._interval.epochs
        if succeeded and ended and not self._over():
            self._finish(None)
        if self._over():
            return None
        if not succeeded:
            self._retry = min(_LONGEST_RETRY, max(0.5, 2 * self._retry))
            return self._retry
        self._retry = 0.0
        self._tidy_if_due()
        self._make_ready()
        return self._pause()

    def _pause(self) -> float:
        """Return the seconds until the next turn, after one that succeeded."""
        if self._incomplete:
            return 0.0
        until_due = self._pass_began + self._interval.seconds - time.monotonic()
        return max(self._poll, until_due if self._status.behind else 0.0)

    def _finish(self, interval: CaptureInterval | None) -> None:
        """Capture once more at an interval, unless it is None, and stop."""
        if interval is not None:
            self._attempt(interval)
        if not self._over():
            if not self._abandoning:
                self._tidy()
            self._update(state="stopped")

    def _goes_on(self) -> bool:
        """Go on with the next version of a flow, once there is one and this one is captured, or cannot be."""
        if self._versions is None:
            return False
        if self._next is None:
            remote = self._capturer.checkpoint.remote
            if time.monotonic() - self._looked_for_version < (_REMOTE_VERSIONS if remote else _LOCAL_VERSIONS):
                return False
            self._looked_for_version = time.monotonic()
            try:
                self._next = self._versions.later()
            except Exception as error:  # noqa: BLE001 (shown in the status, and tried again)
                self._update(error=_summary(error))
        if self._next is None or not (self._attempt(CaptureInterval()) or self._is_damaged):
            return False
        self._tidy()
        self._capturer, self._next = self._next, None
        self._log = CommitLogTime(self._capturer.checkpoint)
        self._untidy = 0
        self._incomplete = self._idle = self._ready = False
        with self._changed:
            self._status = CaptureStatus(self._capturer.name, "waiting")
            self._changed.notify_all()
        return True

    @property
    def _poll(self) -> float:
        """Seconds between two looks at the commit log."""
        if self._capturer.checkpoint.remote:
            return _REMOTE_POLL
        return _LOCAL_POLL if self._threads is None else max(_LOCAL_POLL, len(self._threads) / _SHARED_LOOKS)

    @property
    def _trust(self) -> float:
        """Seconds for which an unchanged folder is trusted."""
        return self._longest_trust if self._threads is None else max(self._longest_trust, _SHARED_TRUST * self._poll)

    def _nothing_new(self) -> bool:
        """Return whether the commit log is as it was when nothing was left to do."""
        return self._idle and self._log.unchanged(self._trust)

    def _query_ended(self) -> bool:
        asked = self._ended
        try:
            # A query that is stopped to be started again has not ended.
            return asked() and not self._paused and asked is self._ended
        except Exception as error:  # noqa: BLE001 (shown in the status; the query may still run)
            self._update(error=_summary(error))
            return False

    def _make_ready(self) -> None:
        """Prepare for the first pass while no epoch waits; what fails here is reported by that pass."""
        if self._idle and not self._ready:
            with contextlib.suppress(Exception):
                self._capturer.make_ready()
            self._ready = True

    def _tidy_if_due(self) -> None:
        """Tidy now and then, and at once if a keyframe is due: later it would hold up an epoch."""
        if self._capturer.keyframe_due:
            self._tidy()
            return
        now = time.monotonic()
        if not self._untidy or now - self._tidied < _TIDY_PAUSE:
            return
        if self._threads is None:
            self._tidy()
        elif self._untidy >= _SHARED_TIDY or now - self._pass_began >= _SHARED_REST:
            self._tidy()
            self._capturer.release()

    def _tidy(self) -> None:
        """Write keyframes and merge files where that is due."""
        if not self._untidy:
            return
        try:
            self._capturer.tidy()
        except Exception as error:  # noqa: BLE001 (shown in the status, and tried again)
            self._update(tidy_error=_summary(error))
        else:
            self._untidy = 0
            self._update(tidy_error=None)
        self._tidied = time.monotonic()

    def _attempt(self, interval: CaptureInterval) -> bool:
        """Capture if that is due; False if it failed and should be retried."""
        self._is_damaged = False
        try:
            self._passes(interval)
        except DamagedCheckpointError as error:
            self._is_damaged = True
            # The file may come back, from a backup.
            self._update(error=_summary(error))
            self._on_pass(error)
            return False
        except (
            *(NameTakenError, CheckpointError, InvalidArgumentError),
            *(MissingDependencyError, JavaNotFoundError, SparkConnectError),
        ) as error:
            self._update(state="failed", error=str(error))
            self._on_pass(error)
        except Exception as error:  # noqa: BLE001 (any failure in the background is shown in the status, and retried)
            self._update(error=_summary(error))
            self._on_pass(error)
            return False
        return True

    def _passes(self, interval: CaptureInterval) -> None:
        """Capture the epochs that wait now, in as many passes as it takes.

        Epochs committed meanwhile are left to the next attempt, so that stopping and tidying get their turn.
        """
        self._capturer.checkpoint.refresh(quick=True)
        waiting = self._waiting()
        if not waiting:
            self._incomplete = False
            return
        upto = waiting[-1]
        while waiting and waiting[0] <= upto and self._due(interval, len(waiting)) and self._pass(waiting, upto):
            one_pass = self._abandoning or (self._threads is not None and not self._ending.is_set())
            waiting = [] if one_pass else self._waiting()

    def _pass(self, waiting: list[int], upto: int) -> bool:
        self._update(state="running")
        report = self._capturer.run(upto=upto)
        newest = self._capturer.manifest.newest
        if newest is not None:
            self._show(report, newest)
        if report.epochs:
            self._on_pass(report)
        self._untidy += bool(report.epochs)
        self._incomplete = bool(report.epochs) and waiting[-1] > report.epochs[-1]
        return bool(report.epochs)

    def _due(self, interval: CaptureInterval, waiting: int) -> bool:
        """Return whether a pass is due; after a pass that took only some of the epochs, the next follows at once."""
        now = time.monotonic()
        if self._incomplete:
            return True
        if not interval.due(waiting, now - self._pass_began):
            return False
        self._pass_began = now
        return True

    def _waiting(self) -> list[int]:
        """Return epochs to capture; none while the checkpoint is still empty."""
        checkpoint = self._capturer.checkpoint
        with checkpoint.read_once():
            checkpoint.look_ahead()
            committed = checkpoint.committed()
            if not committed:
                return []
            waiting = self._capturer.behind()
        newest = self._capturer.manifest.newest
        known: dict[str, object] = {}
        if newest is not None and newest.epoch != self._status.epoch:
            known = {"epoch": newest.epoch, "committed_at": newest.committed_at, **_state_of(newest)}
        self._update(committed=committed[-1], behind=len(waiting), **known)
        return waiting

    def _show(self, report: CaptureReport, newest: Entry) -> None:
        committed_at = self._capturer.checkpoint.committed_at(newest.epoch)
        freshness = (datetime.now(UTC) - committed_at).total_seconds() if committed_at and report.epochs else None
        before = self.status
        self._update(
            epoch=newest.epoch,
            committed_at=newest.committed_at,
            **_state_of(newest),
            behind=len(self._capturer.behind()),
            rows_per_second=report.rows / report.seconds if report.rows else before.rows_per_second,
            freshness=freshness if freshness is not None else before.freshness,
            gaps=before.gaps + len(report.gaps),
            damaged=before.damaged + report.damaged,
            error=None,
            advice=report.advice or before.advice,
            by_spark=report.by_spark if report.epochs else before.by_spark,
        )

    def _update(self, **fields: object) -> None:
        with self._changed:
            self._status = replace(self._status, **fields)  # type: ignore[arg-type]  # fields by name
            self._changed.notify_all()


def _state_of(entry: Entry) -> dict[str, object]:
    """Return what an epoch's entry says of the state, as fields of :class:`CaptureStatus`."""
    changes = sum(table.changes for table in entry.tables.values())
    return {"watermark": entry.watermark, "rows": entry.rows, "changes": changes}


def _summary(error: Exception) -> str:
    """Return the class of an error and the first line of its message."""
    name, line = type(error).__name__, first_line(error)
    return name if line == name else f"{name}: {line}"


# A capture that is still running when the interpreter exits would call a JVM that is gone.
atexit.register(stop_all)
