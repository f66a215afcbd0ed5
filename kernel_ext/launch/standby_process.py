"""The process that stands by: ``python -m streamstate.launch.standby_process``, with its task as standard input.

It is warm: it has forked the query's checkpoint and run an epoch of the fork a few times, so that Java has compiled
what the epochs run, and Python's workers are there. It does so again when the query has moved on, for a small share of
a core. When it acquires the lease, it starts the query as the owner before had started it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamstate.errors import QueryError, StreamStateError, first_line
from streamstate.launch.claiming import remove_drafts
from streamstate.launch.fence import Fence
from streamstate.operations.availability.lease import FAILED as RELEASED_FAILED
from streamstate.operations.availability.lease import LASTS, STOPPED, Lease, Term
from streamstate.operations.availability.local_processes import have_ended, of_this_query
from streamstate.operations.availability.standby import (
    ENDED,
    FAILED,
    OWNER,
    READY,
    STATUS_PREFIX,
    TAKING_OVER,
    StandbyStatus,
    StandbyTask,
    StatusFile,
)
from streamstate.operations.supervision.restart_policy import BackOff, waits
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import files_for
from streamstate.snapshots.store.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from streamstate.launch.launch import Launch
    from streamstate.launch.running import Running

_POLL_SECONDS = 0.2
_LOOKS, _LOOKS_OFTEN = 12, 0.02
_UNREAD = "the lease cannot be read"
_CODE = "code"
"""The key of the code's name in the record of a lease. The record of the first owner does not have it."""
_REPLACED = 60.0
"""Seconds after which a standby ends if other code runs the query."""
_SHARE = 0.02
"""The share of a core that keeping warm may take."""
_NEVER, _LONG = 1_000_000, 60.0
"""Epochs until a fork is captured, and seconds that its lease lasts."""
_MOVED_ON = 20
"""Epochs after which it is worth it."""
_FIRST_RUNS, _FIRST_SECONDS = 5, 15.0
"""The runs of the first epoch, in which Java compiles what it calls often, and the seconds after which none begins."""
_CAPTURE_WAITS = 10.0
"""Seconds for which the capture leaves the processors to the first epoch."""


def main() -> int:
    """Stand by, and return the exit status."""
    task: StandbyTask = pickle.load(sys.stdin.buffer)  # noqa: S301 (the process that started this one wrote it)
    standby = _Standby(task)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: standby.asked.set())
    try:
        standby.run()
    except Exception as error:  # noqa: BLE001 (who asks for the status sees it)
        standby.report(state=FAILED, error=first_line(error))
        return 1
    standby.report(state=ENDED)
    return 0


class _Standby:
    """One standby."""

    def __init__(self, task: StandbyTask) -> None:
        from pyspark import cloudpickle

        self.task = task
        self.asked = threading.Event()
        self.layout = Layout.at(task.store, task.storage_options)
        self._lease = Lease.of(self.layout, task.name, name=task.status)
        self._build: Callable[[], DataFrame] = cloudpickle.loads(task.build_query)
        self._prepared: Launch | None = None
        self._first: Term | None = None
        self._replaced: float | None = None
        self._next_beat = 0.0
        self._file = StatusFile(self.layout, task.name, task.status)
        self.status = StandbyStatus(process=os.getpid())
        self._lock = threading.Lock()
        self.report()

    @property
    def records_input(self) -> bool:
        """True if the query's owner records its input."""
        return bool(self._lease.launch.get("record_input"))

    def report(self, **changes: Any) -> None:
        """Write the status, with changes."""
        with self._lock:
            self.status = replace(self.status, **changes)
            with suppress(OSError, StreamStateError):  # the store may be away for a while
                self._file.write(self.status)

    def has_ended(self, status: str) -> bool:
        """Check that the processes of another standby, by the name of its status, have ended."""
        with suppress(OSError, StreamStateError):
            return have_ended(StatusFile(self.layout, self.task.name, status).read().processes)
        return False

    def run(self) -> None:
        """Stand by until it is asked to end, the query is stopped, or it has taken over and the query has ended."""
        from streamstate.snapshots.spark.session import session

        spark = session(**self.task.settings)
        for number in (signal.SIGTERM, signal.SIGINT):  # Spark has taken the second for itself
            signal.signal(number, lambda *_: self.asked.set())
        self._lease.processes = of_this_query()
        self.report(processes=self._lease.processes)
        warm = _Warmth(self, spark, self._build)
        if self.task.term is not None:  # it will not be old when the query starts
            frame = self._build()
            self._build = lambda: frame
        try:
            if self._acquired(warm):
                self._own(warm, spark)
        finally:
            warm.remove()

    def _acquired(self, warm: _Warmth) -> bool:
        """Wait until the lease is acquired; False if there is nothing to stand by for any more."""
        while not self.asked.is_set():
            newest = None
            try:
                newest = self._lease.newest()
                if newest is not None and self._has_ended(newest):
                    return False
                if newest is not None:
                    self._lease.lasts, self._lease.launch = newest.lasts or LASTS, dict(newest.launch)
                    if self.task.term is not None:
                        self._lease.launch[_CODE] = self.task.status
                    if self._replaced is None and self._lease.try_acquire():
                        return True
            except (OSError, StreamStateError) as error:  # what cannot be seen now does not count as silence
                self.report(error=f"{_UNREAD}: {first_line(error)}")
            else:
                if newest is not None:
                    self._beat()
                elif self._lease.seen:
                    self.report(error=f"{_UNREAD}: the store is away")
                else:
                    raise QueryError(
                        f"{self.task.name} has no lease in {self.task.store}.\n"
                        "Start it with a lease, ss.start(…, lease=6), or its standby with running.standby(…)."
                    )
            warm.refresh(self._lease.launch.get("mode", "update"))
            self.asked.wait(self._lease.lasts / _LOOKS if self.task.term is None else _LOOKS_OFTEN)
        return False

    def _beat(self) -> None:
        """Say that this process lives, once in the time to live."""
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + self._lease.lasts
            error = self.status.error
            self.report(beats=self.status.beats + 1, error=None if error and error.startswith(_UNREAD) else error)

    def _has_ended(self, newest: Term) -> bool:
        """Check that there is nothing to stand by for: the query was stopped, or other code runs it for good."""
        if newest.released == STOPPED:
            return True
        if self.task.term is not None:
            return newest.number > self.task.term
        self._first = self._first or newest
        if newest.launch.get(_CODE) == self._first.launch.get(_CODE):
            self._replaced = None
        elif self._replaced is None:
            self._replaced = time.monotonic()
        return self._replaced is not None and time.monotonic() - self._replaced > _REPLACED

    def _own(self, warm: _Warmth, spark: SparkSession) -> None:
        """Start the query, and keep it going until it ends."""
        fence = Fence() if self._prepared is None else self._prepared.fence
        fence.hold(self._lease)
        try:
            self.report(state=TAKING_OVER)
            warm.settle()
            remove_drafts(self.task.checkpoint, spark)
            before = self._committed(spark)
            running = self._started(self._prepared or self._checked(fence))
        except BaseException:
            fence.release(RELEASED_FAILED)
            raise
        try:
            self._keep(running, warm, lambda: self._committed(spark) > before)
        except BaseException:
            running.end_run()
            fence.release(RELEASED_FAILED)
            raise
        running.stop()

    def _keep(self, running: Running, warm: _Warmth, has_committed: Callable[[], bool]) -> None:
        """Keep the query going until it ends; it is owned once it has committed an epoch, or waits for input."""
        from streamstate.launch.running import RUNNING

        held_until: float | None = time.monotonic() + _CAPTURE_WAITS
        committed = False
        while not self.asked.wait(_POLL_SECONDS if self.status.state == OWNER else _LOOKS_OFTEN):
            state = running.state
            committed = committed or has_committed()
            if self.status.state != OWNER:
                if committed or (state == "running" and running.query is not None and waits(running.query)):
                    self.report(state=OWNER, takeovers=self.status.takeovers + 1)
                    warm.remove()
                elif state == "restarting" and self.task.term is not None:
                    raise QueryError(str(running.status().error))  # who hands the query over takes it back
            if held_until is not None and (committed or time.monotonic() > held_until):
                running.capture.resume(None)
                held_until = None
            if state == "failed":
                raise QueryError(str(running.status().error))
            if state not in RUNNING:
                return

    def _committed(self, spark: SparkSession) -> int:
        return max(CheckpointFiles(self.task.checkpoint, spark).committed(), default=-1)

    def prepare(self) -> None:
        """Check the query before its start, if that follows soon, as in a planned handover."""
        if self.task.term is not None:
            self._prepared = self._checked(Fence())

    def _checked(self, fence: Fence) -> Launch:
        """Return the query as its last owner started it; it is supervised, since that one may still wake up."""
        from pyspark import cloudpickle

        from streamstate.launch.launch import Launch
        from streamstate.launch.sink import Sink
        from streamstate.launch.starting import check_launch, check_options, streaming_frame

        task, known = self.task, self._lease.launch
        sink = cloudpickle.loads(task.sink) if isinstance(task.sink, bytes) else task.sink or known.get("sink")
        if sink is None:
            raise QueryError(
                f"The sink of {task.name} is a function or has options, which the lease does not keep.\n"
                "Start the standby where the query runs: running.standby(build_query)."
            )
        launch = Launch(
            task.name,
            streaming_frame(self._build(), "build_query's value"),
            task.checkpoint,
            known.get("mode", "update"),
            Sink.parse(sink, task.sink_options),
            known.get("trigger"),
            restart=BackOff(**(known.get("restart") or {})),
            fence=fence,
        )
        check_options(task.name, self.layout, mode=launch.mode, trigger=launch.trigger, sink=launch.sink)
        check_launch(launch, self.layout)
        return launch

    def _started(self, launch: Launch) -> Running:
        """Start the query; its capture waits for :meth:`_keep`."""
        from streamstate.launch.recorded_input import with_recorded_input
        from streamstate.launch.shared_variables import chosen_variables, with_shared_variables
        from streamstate.launch.starting import STARTED, start_launch

        known, store, options = self._lease.launch, self.layout.root, self.task.storage_options
        variables = chosen_variables(store, known.get("shared", ()), options)
        launch = with_recorded_input(launch, self.layout, record_input=self.records_input)
        launch = with_shared_variables(launch, variables, store, options)
        return start_launch(
            launch, store, STARTED, every=known.get("every", 1), storage_options=options, capture_paused=True
        )


class _Warmth:
    """Runs epochs of forks of the query, in the background."""

    def __init__(self, standby: _Standby, spark: SparkSession, build: Callable[[], DataFrame]) -> None:
        self._standby, self._spark, self._build = standby, spark, build
        self._checkpoint = CheckpointFiles(standby.task.checkpoint, spark)
        self._place, _, name = self._checkpoint.path.rpartition("/")
        self._prefix = f".{name}-"
        self._folder = f"{self._place}/{self._prefix}{standby.task.status}"
        self._files = files_for(spark, self._folder)
        self._remove_left()
        self._thread: threading.Thread | None = None
        self._settling = threading.Event()
        self._epoch = -1
        self._next = 0.0

    def refresh(self, mode: str) -> None:
        """Begin to run an epoch again, if it is worth it by now."""
        if (self._thread is not None and self._thread.is_alive()) or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 1
        committed = self._checkpoint.committed()
        if len(committed) < 2 or (self._epoch >= 0 and committed[-1] < self._epoch + _MOVED_ON):
            self._standby_ready()
            return
        self._thread = threading.Thread(target=self._run, args=(committed[-2:], mode), daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait until nothing is run any more; what is run now is the last."""
        self._settling.set()
        if self._thread is not None:
            self._thread.join()

    def remove(self) -> None:
        """Delete the fork."""
        self.settle()
        self._files.remove_tree(self._folder)

    def _remove_left(self) -> None:
        """Delete the forks of standbys that were killed on this machine."""
        for name in self._files.names(self._place):
            status = name.removeprefix(self._prefix)
            if name.startswith(f"{self._prefix}{STATUS_PREFIX}") and self._standby.has_ended(status):
                self._files.remove_tree(f"{self._place}/{name}")

    def _run(self, epochs: list[int], mode: str) -> None:
        """Fork the query before its newest epoch, and run that, for the first time more than once."""
        before = _processor_seconds()
        began = time.monotonic()
        runs = 1 if self._epoch >= 0 else _FIRST_RUNS
        self._epoch, error = epochs[-1], None
        try:
            for run in range(runs):
                if run and (self._settling.is_set() or time.monotonic() - began > _FIRST_SECONDS):
                    break
                self._step(epochs[0], mode)
            # Starting it would record the input a second time.
            if not (self._standby.records_input or self._settling.is_set()):
                self._start_fork(mode)
            self._standby.prepare()
        except Exception as failure:  # noqa: BLE001 (a takeover is slower then)
            error = f"not warm: {first_line(failure)}"
        took = max(_processor_seconds() - before, time.monotonic() - began)
        self._next = time.monotonic() + took / _SHARE
        self._standby_ready(error, None if error else epochs[-1])

    def _step(self, epoch: int, mode: str) -> None:
        """Fork the query after an epoch, and run the next."""
        from streamstate.replay.forks.make_fork import fork
        from streamstate.replay.stepping.step import step

        self._files.remove_tree(self._folder)
        fork(self._checkpoint.path, self._folder, at=epoch, spark=self._spark)
        build = self._recorded if self._standby.records_input else self._build
        step(build, self._folder, mode=mode, spark=self._spark)

    def _recorded(self) -> DataFrame:
        """Return the query's frame over the input that its owner records."""
        from streamstate.launch.launch import Launch
        from streamstate.launch.recorded_input import with_recorded_input

        launch = Launch(self._standby.task.name, self._build(), self._standby.task.checkpoint)
        return with_recorded_input(launch, self._standby.layout, record_input=True).frame

    def _start_fork(self, mode: str) -> None:
        """Start the fork as the query would be, and stop it: the second start in a process is much quicker.

        It cannot start without what the store has of the query, such as shared variables.
        """
        import streamstate as ss
        from streamstate.launch.starting import STARTED

        with tempfile.TemporaryDirectory() as folder, suppress(QueryError):
            running = ss.start(
                self._build(),
                self._standby.task.name,
                f"{folder}/store",
                checkpoint=self._folder,
                mode=mode,
                trigger="1h",
                every=_NEVER,
                restart=ss.BackOff(),
                lease=_LONG,
            )
            running.capture.stop(catch_up=False)
            running.stop()
            del STARTED[running.name]

    def _standby_ready(self, error: str | None = None, epoch: int | None = None) -> None:
        status = self._standby.status
        if status.state == READY and epoch is None and error is None:
            return
        since = status.ready_since or datetime.now(UTC)
        state = READY if status.state != OWNER else OWNER
        self._standby.report(state=state, ready_since=since, epoch=epoch or status.epoch, error=error)


def _processor_seconds() -> float:
    """Return the processor time of this process, its Java and Python's workers."""
    import psutil

    total = time.process_time()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = child.cpu_times()
            total += times.user + times.system
    return total


if __name__ == "__main__":
    sys.exit(main())
