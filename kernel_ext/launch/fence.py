"""The fence of a query that runs here: its lease is renewed, and the query is stopped once the lease is lost."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from streamstate.errors import NotOwnerError, StreamStateError, first_line
from streamstate.operations.availability.lease import FAILED, NOT_RENEWED, STOPPED, Lease
from streamstate.snapshots.capture.background import BackgroundThread
from streamstate.snapshots.spark.stop_timer import StopTimer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OVER = {"finished": STOPPED, "stopped": STOPPED, "failed": FAILED}


class Watched(Protocol):
    """The parts of a query's handle that the fence uses."""

    @property
    def state(self) -> str:
        """As that of :class:`QueryStatus`."""

    def stop(self) -> None:
        """Stop the query, and release the lease."""


class Fence:
    """Keeps a process from running a query that another one owns. Without a lease, everything is allowed.

    It belongs to the launch of a query, and is kept when the query is restarted or rescaled.
    """

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.lost: str | None = None
        """The reason that the query was stopped here, as another process may own it; None if it was not stopped."""
        self.error: str | None = None
        """The error of the last renewal; None if it succeeded."""
        self.watched: Watched | None = None
        """The handle of the run that the lease is held for; None while there is none."""
        self._timer: StopTimer | None = None
        self._ended = threading.Event()
        self._thread: BackgroundThread | None = None

    @property
    def token(self) -> int | None:
        """The number of the lease's term that this process holds; None if it holds none."""
        return None if self.lease is None else self.lease.token

    def check(self) -> None:
        """Raise unless the query may run an epoch here at this moment.

        Raises:
            NotOwnerError: this process had a lease on it, and does not hold that any more.
        """
        if self.lost is not None:
            raise NotOwnerError.lost(self.lost)
        if self.lease is not None:
            self.lease.check()

    def hold(self, lease: Lease) -> None:
        """Renew a lease that was acquired, until it is released or lost."""
        self.lease, self.lost = lease, None
        self._ended = threading.Event()
        self._thread = BackgroundThread(self._keep, "streamstate-lease")
        self._thread.start()

    def guard(self, spark: SparkSession | None, query_id: str) -> None:
        """Stop the query from the JVM too, if the lease is not renewed in time.

        Raises:
            NotOwnerError: the lease was lost meanwhile.
        """
        if self.lease is None or self._timer is not None or spark is None:
            return
        timer = StopTimer(spark, query_id)
        timer.keep(timer.set(self.lease.held_for))
        self._timer = timer
        self.check()

    def watch(self, running: Watched) -> None:
        """Hold the lease for a run: release it at the end of the query, and stop the query if the lease is lost."""
        self.watched = running
        if self.lost is not None:
            running.stop()

    def release(self, why: str = STOPPED, *, to: str | None = None) -> None:
        """Give the lease back, now that the query has ended here: to any process, or to the one with a name."""
        lease, self.lease = self.lease, None
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        timer, self._timer = self._timer, None
        if timer is not None:
            with suppress(Exception):  # without Java, there is nothing to end
                timer.end()
        if lease is not None:
            try:
                lease.release(why if self.lost is None else FAILED, to=to)
            except (OSError, StreamStateError) as error:  # it runs out
                self.error = f"The lease could not be released: {first_line(error)}"

    def _keep(self) -> None:
        lease, ended = self.lease, self._ended
        assert lease is not None
        while not ended.wait(lease.renewed_every):
            stopped_by_timer = not self._renew(lease)
            if ended.is_set():
                return
            if stopped_by_timer or not lease.holds:
                self.lost = lease.lost or NOT_RENEWED
                ended.set()
                self._stop_watched()
            elif (why := self._over()) is not None:
                self.release(why)

    def _stop_watched(self) -> None:
        try:
            if self.watched is not None:
                self.watched.stop()
        except Exception as error:  # noqa: BLE001 (the handle shows it; without Java, the query has ended)
            self.error = f"The query could not be stopped: {first_line(error)}"

    def _renew(self, lease: Lease) -> bool:
        """Renew the lease, if the store and the JVM allow it; False if the timer has stopped the query."""
        # The timer is set before the lease is renewed, so that no pause between the two makes it late.
        timer, handle = self._timer, None
        try:
            handle = None if timer is None else timer.set(lease.held_for)
            renewed = lease.renew()
            in_time = timer is None or (timer.keep(handle) if renewed else timer.unset(handle))
        except Exception as error:  # noqa: BLE001 (the disk, the network or the JVM is gone; the lease runs out)
            self.error = f"The lease could not be renewed: {first_line(error)}"
            if timer is not None and handle is not None:
                with suppress(Exception):
                    timer.unset(handle)
            return True
        self.error = None
        return in_time

    def _over(self) -> str | None:
        """Return why the query has ended by itself; None if it has not, or that cannot be known now."""
        with suppress(Exception):  # without Java; then the lease cannot be renewed either
            return None if self.watched is None else _OVER.get(self.watched.state)
        return None
