"""Captures of many queries into one store, in one process and on a few threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from streamstate.errors import CheckpointError, StreamStateError
from streamstate.snapshots.capture.capture import capturer_for
from streamstate.snapshots.capture.change_feed import Verify, check_verify
from streamstate.snapshots.capture.epoch_commit import Capturer, CaptureReport
from streamstate.snapshots.capture.follow import Capture, CaptureStatus
from streamstate.snapshots.capture.pass_plan import CaptureInterval, Every
from streamstate.snapshots.capture.shared_threads import SharedThreads
from streamstate.snapshots.checkpoint.default_names import distinct_default_names
from streamstate.snapshots.checkpoint.filesystem import local_path, location
from streamstate.snapshots.store.delta.maintenance import merge_small_files, sweep
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.registry import Branch, NewQuery, check_store, register_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Find: TypeAlias = "Callable[[], Iterable[str | os.PathLike[str]]]"
"""Returns the checkpoints to capture as they are now."""
OnFleetPass: TypeAlias = "Callable[[str, CaptureReport | Exception], object]"
"""Receives the name of a query, or the path of a checkpoint that cannot be captured, and what its pass did."""

# How often to look for new checkpoints, and to try those again that could not be captured.
_LOOK_SECONDS = 60.0
# On the local disk passes compute most of the time, one at a time: more threads would only take turns more often.
_THREADS = 2
# Those that read from or write to an object store wait.
_REMOTE_THREADS = 12


@dataclass(frozen=True)
class FleetReport:
    """The result of one capture of many queries."""

    reports: tuple[CaptureReport, ...]
    """A report for each query, including those that were up to date."""
    failed: Mapping[str, str]
    """The error of each checkpoint that could not be captured, or not up to its newest epoch, by its path."""


class Fleet:
    """Captures of many queries that run in the background; :meth:`Checkpoints.follow` starts them.

    They share a few threads, whose number does not depend on that of the queries. A capture that fails does not stop
    the others. Every minute, new checkpoints are taken up, those that are gone are left, and those that failed are
    tried again.

    Args:
        find: returns the checkpoints.
        store: the store, as for :meth:`Checkpoint.follow`; and so the other arguments.
        on_pass: receives what each pass did.
        look_seconds: seconds between two looks for new checkpoints.
    """

    def __init__(
        self,
        find: Find,
        store: str | Path,
        *,
        every: Every = 1,
        verify: Verify = "first",
        spark: SparkSession | None = None,
        storage_options: Mapping[str, str] | None = None,
        on_pass: OnFleetPass | None = None,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        check_verify(verify)
        self._find, self._interval, self._look_seconds = find, CaptureInterval.of(every), look_seconds
        self._layout = Layout.at(store, storage_options)
        self._open = partial(
            capturer_for, store=store, name=None, spark=spark, verify=verify, storage_options=storage_options
        )
        self._on_pass = on_pass or (lambda _name, _outcome: None)
        self._captures = dict[str, Capture]()
        self._paths = dict[str, str]()
        self._refused = dict[str, Exception]()
        self._error: Exception | None = None
        self._ending = False
        self._lock = threading.RLock()
        paths = self._found()
        known = check_store(self._layout)  # raises here if the path cannot be a store
        is_local = all(local_path(path) is not None for path in (self._layout.root, *paths))
        self._threads = SharedThreads("streamstate-captures", _THREADS if is_local else _REMOTE_THREADS)
        try:
            self._take_up(paths, known)
        except BaseException:
            self._threads.close()
            raise
        self._threads.add(self, look_seconds)

    @property
    def store(self) -> str:
        """The store's path."""
        return self._layout.root

    @property
    def captures(self) -> list[Capture]:
        """The captures that have been started, by the paths of their checkpoints; also those that failed since."""
        with self._lock:
            return [capture for _path, capture in sorted(self._captures.items())]

    @property
    def status(self) -> dict[str, CaptureStatus]:
        """The status of each capture, by the name of its query."""
        return {capture.name: capture.status for capture in self.captures}

    def behind(self, name: str) -> int:
        """Return how many committed epochs of a query are not captured yet."""
        with self._lock:
            capture = self._captures.get(self._paths.get(name, ""))
        return 0 if capture is None else capture.status.behind

    @property
    def failed(self) -> dict[str, str]:
        """The error of each checkpoint that is not being captured, or whose last pass failed, by its path."""
        with self._lock:
            refused = {path: f"{error}" for path, error in self._refused.items()}
            statuses = {path: capture.status for path, capture in self._captures.items()}
        return refused | {path: status.error for path, status in statuses.items() if status.error is not None}

    @property
    def error(self) -> Exception | None:
        """The last error while looking for checkpoints; None once that has succeeded again."""
        return self._error

    def wait(self, timeout: float | None = None) -> None:
        """Wait until every epoch is captured that is committed now.

        Raises:
            CaptureError: a capture failed, or was stopped before.
            WaitTimeoutError: it took longer than ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for capture in self.captures:
            capture.wait(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))

    def stop(self, *, catch_up: bool = True) -> None:
        """Capture what is committed, then end. Stopping again does nothing.

        Args:
            catch_up: False to finish only the passes under way. The next captures take the epochs that are left.
        """
        with self._lock:
            self._ending = True
        for capture in self.captures:
            capture.end(catch_up=catch_up)
        for capture in self.captures:
            capture.join()
        self._threads.close()

    def turn(self) -> float | None:
        """Look for new checkpoints. Returns the seconds until the next look; None if the fleet has ended."""
        if self._ending:
            return None
        try:
            paths = self._found()
            self._leave(set(paths))
            if any(not self._is_captured(path) for path in paths):
                self._take_up(paths, check_store(self._layout))
            self._error = None
        except Exception as error:  # noqa: BLE001 (shown, and tried again)
            self._error = error
            self._on_pass(self.store, error)
        return self._look_seconds

    def __repr__(self) -> str:
        states = [status.state for status in self.status.values()]
        return f"<Fleet of {len(states)} queries into {self.store}: {len(self.failed)} failed>"

    def _found(self) -> list[str]:
        return [*dict.fromkeys(location(path) for path in self._find())]

    def _leave(self, found: set[str]) -> None:
        """End the captures whose checkpoints are gone, and forget them."""
        with self._lock:
            gone = [self._captures.pop(path) for path in [*self._captures] if path not in found]
            self._refused = {path: error for path, error in self._refused.items() if path in found}
        for capture in gone:
            capture.end(catch_up=False)

    def _take_up(self, found: Sequence[str], known: Mapping[str, Branch]) -> None:
        """Start the captures of checkpoints that have none, or whose capture has failed."""
        opened, refused = self._opened(found, known)
        refused |= self._copies(opened)
        capturers = {path: capturer for path, capturer in opened.items() if path not in refused}
        refused |= self._registered(capturers)
        for path, capturer in capturers.items():
            if path not in refused:
                self._start(path, capturer)
        with self._lock:
            self._refused |= refused
        for path, error in refused.items():
            self._on_pass(path, error)

    def _opened(
        self, found: Sequence[str], known: Mapping[str, Branch]
    ) -> tuple[dict[str, Capturer], dict[str, Exception]]:
        """Open checkpoints that are not being captured; those that cannot be opened are returned with their errors."""
        opened, refused = dict[str, Capturer](), dict[str, Exception]()
        for path, name in zip(found, distinct_default_names(found), strict=True):
            if not self._is_captured(path):
                try:
                    capturer = self._open(path, fallback=name, known=known)
                    capturer.checkpoint.query_id  # noqa: B018 (raises if there is no checkpoint)
                    opened[path] = capturer
                except (StreamStateError, OSError) as error:
                    refused[path] = error
        return opened, refused

    def _is_captured(self, path: str) -> bool:
        with self._lock:
            capture = self._captures.get(path)
        return capture is not None and capture.status.state != "failed"

    def _copies(self, opened: Mapping[str, Capturer]) -> dict[str, Exception]:
        """Return errors for checkpoints of a query that another checkpoint has, such as a copy beside the original."""
        owners = {capture.query_id: capture.checkpoint for capture in self.captures if capture.checkpoint not in opened}
        copies = dict[str, Exception]()
        for path, capturer in opened.items():
            owner = owners.setdefault(capturer.checkpoint.query_id, path)
            if owner != path:
                copies[path] = CheckpointError(
                    f"{path} is a copy of {owner}: both belong to the same query.\nCapture only one of them."
                )
        return copies

    def _registered(self, capturers: Mapping[str, Capturer]) -> dict[str, Exception]:
        """Register the queries that have committed anything, in one commit; returns the errors by checkpoint."""
        refused, new = dict[str, Exception](), dict[str, NewQuery]()
        for path, capturer in capturers.items():
            try:
                if capturer.checkpoint.committed():
                    new[path] = capturer.registration()
            except (StreamStateError, OSError) as error:
                refused[path] = error
        if new:
            taken = register_all(self._layout, [*new.values()])
            merge_small_files(self._layout.queries, "format")
            sweep(self._layout.queries)
            refused |= {path: taken[query.query_id] for path, query in new.items() if query.query_id in taken}
            for path in new:
                capturers[path].prepared()
        return refused

    def _start(self, path: str, capturer: Capturer) -> None:
        with self._lock:
            if not self._ending:
                self._refused.pop(path, None)
                self._paths[capturer.name] = path
                report = partial(self._on_pass, capturer.name)
                self._captures[path] = Capture(capturer, self._interval, None, report, threads=self._threads)


def capture_all(
    find: Find,
    store: str | Path,
    *,
    verify: Verify = "first",
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    on_pass: OnFleetPass | None = None,
) -> FleetReport:
    """Bring a store up to date with many checkpoints, once.

    :meth:`streamstate.Checkpoints.capture` describes the arguments and errors.
    """
    passes = dict[str, CaptureReport]()
    lock = threading.Lock()

    def took(name: str, outcome: CaptureReport | Exception) -> None:
        if isinstance(outcome, CaptureReport):
            with lock:
                passes[name] = passes[name] + outcome if name in passes else outcome
        if on_pass is not None:
            on_pass(name, outcome)

    fleet = Fleet(find, store, verify=verify, spark=spark, storage_options=storage_options, on_pass=took)
    try:
        fleet.stop()
    except BaseException:
        fleet.stop(catch_up=False)
        raise
    done = [(capture.name, capture.status) for capture in fleet.captures]
    nothing = {name: CaptureReport(name, fleet.store, committed=status.committed) for name, status in done}
    return FleetReport(tuple(passes.get(name, nothing[name]) for name in sorted(nothing)), fleet.failed)
