"""Keep a store up to date in the background, out of the query's way."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.snapshots.capture import Capturer, capturer_for
from streamstate.snapshots.capture_report import CaptureReport
from streamstate.snapshots.errors import (
    CaptureError,
    CheckpointError,
    InvalidArgumentError,
    NameTakenError,
    WaitTimeoutError,
)
from streamstate.snapshots.filesystem import local_path
from streamstate.snapshots.pace import Every, Pace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

# How often the commit log is looked at: a directory listing, cheap on a disk and not on an object store.
_LOCAL_POLL, _REMOTE_POLL = 0.05, 1.0
_LONGEST_RETRY = 30.0
# Looking whether keyframes or merging are due costs some milliseconds a table: more than this often gains nothing.
_TIDY_PAUSE = 5.0

_running: weakref.WeakSet[Capture] = weakref.WeakSet()


@dataclass(frozen=True)
class CaptureStatus:
    """How a background capture stands."""

    name: str
    """The query's name in the store."""
    state: str
    """``waiting`` (nothing committed yet), ``running``, ``stopped`` or ``failed``."""
    epoch: int | None = None
    """The newest captured epoch."""
    committed: int | None = None
    """The newest committed epoch."""
    behind: int = 0
    """Committed epochs that are not captured yet."""
    rows_per_second: float | None = None
    """Change rows captured a second, in the last pass that wrote any."""
    freshness: float | None = None
    """Seconds from the newest captured epoch's commit to when it could be queried."""
    gaps: int = 0
    """Epochs that Spark purged before this capture could read them."""
    error: str | None = None
    """The last error; None once a pass has succeeded again."""
    advice: tuple[str, ...] = ()
    """Settings that would make capture cheaper."""
    tidy_error: str | None = None
    """The last error of writing keyframes or merging files; None once that has succeeded again. Epochs are captured
    all the same."""


class Capture:
    """A capture that goes on in the background; :func:`streamstate.follow` starts one.

    An error delays snapshots and shows in :attr:`status`; the capture tries again, less and less often. Only what
    cannot heal, such as a name that is another query's, ends it. So does the end of a query that it was given: what
    that committed is captured first.

    Args:
        capturer: captures the query.
        pace: how often.
        ended: whether the query has ended, after which it commits nothing more.
    """

    def __init__(self, capturer: Capturer, pace: Pace, ended: Callable[[], bool] = lambda: False) -> None:
        self._capturer = capturer
        self._pace = pace
        self._ended = ended
        self._began = self._tidied = -float("inf")
        self._untidy = self._left = False
        self._status = CaptureStatus(capturer.name, "waiting")
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=f"streamstate-capture-{capturer.name}", daemon=True)
        _running.add(self)
        self._thread.start()

    @property
    def name(self) -> str:
        """The query's name in the store."""
        return self._capturer.name

    @property
    def store(self) -> str:
        """The store's path."""
        return self._capturer.layout.root

    @property
    def checkpoint(self) -> str:
        """The checkpoint that is followed."""
        return self._capturer.checkpoint.path

    @property
    def status(self) -> CaptureStatus:
        """How the capture stands now."""
        with self._changed:
            return self._status

    def wait(self, epoch: int | None = None, timeout: float | None = None) -> int:
        """Wait until an epoch is captured, or without one until all that is committed now is.

        Args:
            epoch: the epoch to wait for.
            timeout: seconds; without it there is no limit.

        Returns:
            The newest captured epoch (−1 where nothing has been committed yet).

        Raises:
            CaptureError: where the capture failed, or was stopped before it got there.
            WaitTimeoutError: where it takes longer than ``timeout``.
        """
        wanted = epoch if epoch is not None else max(self._capturer.checkpoint.committed(), default=-1)
        with self._changed:
            reached = self._changed.wait_for(lambda: self._there(wanted) or self._over(), timeout)
            status = self._status
        newest = -1 if status.epoch is None else status.epoch
        if self._there(wanted):
            return newest
        if reached:
            raise CaptureError(
                f"The capture of {self.name!r} {status.state} at epoch {newest}, before epoch {wanted}"
                + (f": {status.error}" if status.error else ".")
            )
        raise WaitTimeoutError(
            f"Epoch {wanted} of {self.name!r} was not captured within {timeout} s; the newest captured is {newest}"
            + (f". Last error: {status.error}" if status.error else ".")
        )

    def stop(self) -> None:
        """Capture what is committed, then end. Stopping again does nothing."""
        self.end()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def end(self) -> None:
        """Begin to stop, and return at once."""
        self._ending.set()

    def __repr__(self) -> str:
        status = self.status
        return f"<Capture {self.name!r}: {status.state}, epoch {status.epoch}, {status.behind} behind>"

    def _there(self, wanted: int) -> bool:
        return wanted < 0 or (self._status.epoch is not None and self._status.epoch >= wanted)

    def _over(self) -> bool:
        return self._status.state in ("stopped", "failed")

    def _loop(self) -> None:
        poll = _LOCAL_POLL if local_path(self.checkpoint) is not None else _REMOTE_POLL
        pause = poll
        while not self._ending.wait(pause):
            over = self._query_ended()  # asked first, so that everything it committed is seen
            done = self._attempt(Pace() if over else self._pace)
            pause = poll if done else min(_LONGEST_RETRY, max(0.5, pause * 2))
            if self._over():
                return
            if done and over:
                break
            if done:
                self._tidy(_TIDY_PAUSE)
        else:
            self._attempt(Pace())
        if not self._over():
            self._tidy(0)
            self._tell(state="stopped")

    def _query_ended(self) -> bool:
        try:
            return self._ended()
        except Exception as error:  # noqa: BLE001 (shown; whether it has ended is then not known)
            self._tell(error=_first_line(error))
            return False

    def _tidy(self, pause: float) -> None:
        """Keyframes and merging where they are due, at most every ``pause`` seconds."""
        if not self._untidy or time.monotonic() - self._tidied < pause:
            return
        try:
            self._capturer.tidy()
        except Exception as error:  # noqa: BLE001 (shown, and tried again; epochs are captured all the same)
            self._tell(tidy_error=_first_line(error))
        else:
            self._untidy = False
            self._tell(tidy_error=None)
        self._tidied = time.monotonic()

    def _attempt(self, pace: Pace) -> bool:
        """Capture where that is due; False where it failed and is to be tried again."""
        try:
            while self._pass(pace):
                pass
        except (NameTakenError, CheckpointError, InvalidArgumentError) as error:
            self._tell(state="failed", error=str(error))
        except Exception as error:  # noqa: BLE001 (whatever goes wrong in the background is shown, and tried again)
            self._tell(error=_first_line(error))
            return False
        return True

    def _pass(self, pace: Pace) -> bool:
        waiting = self._waiting()
        if not waiting:
            self._left = False
        if not waiting or not self._due(pace, len(waiting)):
            return False
        self._tell(state="running")
        report = self._capturer.run()
        newest = self._capturer.manifest.newest
        if newest is not None:
            self._advanced(report, newest.epoch)
        self._untidy = self._untidy or bool(report.epochs)
        self._left = bool(report.epochs) and waiting[-1] > report.epochs[-1]
        return bool(report.epochs)

    def _due(self, pace: Pace, waiting: int) -> bool:
        """Whether a pass is due; one that took part of what waits is followed by the next at once."""
        now = time.monotonic()
        if self._left:
            return True
        if not pace.due(waiting, now - self._began):
            return False
        self._began = now
        return True

    def _waiting(self) -> list[int]:
        """Epochs to capture; an empty checkpoint is waited for."""
        committed = self._capturer.checkpoint.committed()
        if not committed:
            return []
        waiting = self._capturer.behind()
        newest = self._capturer.manifest.newest
        known = {} if newest is None else {"epoch": newest.epoch}  # of a capture before this one
        self._tell(committed=committed[-1], behind=len(waiting), **known)
        return waiting

    def _advanced(self, report: CaptureReport, epoch: int) -> None:
        committed_at = self._capturer.checkpoint.committed_at(epoch)
        freshness = (datetime.now(UTC) - committed_at).total_seconds() if committed_at and report.epochs else None
        before = self.status
        self._tell(
            epoch=epoch,
            behind=len(self._capturer.behind()),
            rows_per_second=report.rows / report.seconds if report.rows else before.rows_per_second,
            freshness=freshness if freshness is not None else before.freshness,
            gaps=before.gaps + len(report.gaps),
            error=None,
            advice=report.advice or before.advice,
        )

    def _tell(self, **facts: object) -> None:
        with self._changed:
            self._status = replace(self._status, **facts)  # type: ignore[arg-type]  # fields by name
            self._changed.notify_all()


def follow(
    query_or_checkpoint: StreamingQuery | str | os.PathLike[str],
    store: str | Path,
    name: str | None = None,
    *,
    every: Every = 1,
    spark: SparkSession,
    storage_options: Mapping[str, str] | None = None,
) -> Capture:
    """Keep the store up to date with a query in the background; see :func:`streamstate.follow`."""
    pace, ended = Pace.of(every), _never
    if isinstance(query_or_checkpoint, (str, os.PathLike)):
        capturer = capturer_for(os.fspath(query_or_checkpoint), store, name, spark, storage_options=storage_options)
    else:
        query = query_or_checkpoint
        capturer = capturer_for(
            checkpoint_of(query), store, name, spark, fallback=query.name, storage_options=storage_options
        )
        ended = partial(_has_ended, query)
    # Looked at before the thread starts, so that what cannot work is raised here.
    if capturer.checkpoint.committed():
        capturer.register()
    return Capture(capturer, pace, ended)


def _never() -> bool:
    """Of a checkpoint alone nobody knows whether its query goes on."""
    return False


def _has_ended(query: StreamingQuery) -> bool:
    return not query.isActive


def checkpoint_of(query: StreamingQuery) -> str:
    """The checkpoint location of a query of this process."""
    return str(query._jsq.streamingQuery().resolvedCheckpointRoot())


def stop_all() -> None:
    """End every capture of this process without waiting for what they could still read."""
    for capture in list(_running):
        capture.end()


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


# A capture that goes on while the interpreter ends would talk to a JVM that is gone.
atexit.register(stop_all)
