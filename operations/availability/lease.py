"""A fenced lease: of all processes that may run a query, one owns it at a time.

The lease stands in the store, in numbered terms. A term is a file that is created exclusively, so its number is a
fencing token: it only grows, and no two processes have the same (Gray & Cheriton, SOSP 1989; Burrows, OSDI 2006). The
holder renews its term by counting up in a second file. A challenger may begin the next term once the holder has
released its own, or once the challenger has seen the same count for the whole time to live, by its own clock. Clocks of
different machines are never compared. On the holder's own machine, a challenger need not wait if it sees that the
holder's Python and Java have ended.

The holder stops itself in time. A renewal counts from the moment before it was written, for two thirds of the time to
live, by the holder's own clock; and only if it ended before the last one ran out. So every renewal that counts was
written before any challenger's last look, and no two processes hold the lease at the same moment as long as no clock
runs more than 1.5 times as fast as another. The clocks go on while a machine sleeps. They stand still, unnoticed, in a
virtual machine that its host freezes: that is outside the bound.

What an epoch is fenced by
--------------------------

A process may still lose the lease between its check and its act. So there are three fences, each behind the other:

1. A holder whose time is up stops its query, and calls no sink function any more. A timer in the JVM stops the query
   too, in case only Python was paused.
2. Spark creates ``offsets/N`` and ``commits/N`` exclusively. A paused owner that wakes up in epoch N finds the file
   that its successor has written, and fails with ``CONCURRENT_STREAM_LOG_UPDATE``. If it was first, the successor
   fails, starts again and continues after what was committed. Each epoch has one plan and one commit, from one owner.
3. On a local disk, Spark looks for the file and then renames a temporary one over it. A new owner deletes these
   temporary files, so that an owner that was paused between the two fails as well.

State files of the loser do no harm in checkpoint format 2, which :func:`streamstate.session` sets: they have names of
their own, and only those that ``commits/N`` lists are read. In format 1 and with the HDFS provider, a late writer of
version N + 1 replaces the file of its successor. Both have read the same offsets, so a deterministic query writes the
same rows; one that is not may then load a state that no process has computed.

Outside remains the sink of an owner that is paused in the middle of a write: it may go on writing epoch N when its
successor already does. A sink that replaces what it has of an epoch, or skips an epoch that it has, is not affected.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamstate.errors import InvalidArgumentError, NotOwnerError
from streamstate.operations.availability.lease_files import LeaseFiles, lease_files
from streamstate.operations.availability.local_processes import have_ended
from streamstate.snapshots.store.layout import Layout

LASTS = 6.0
"""The usual time to live, in seconds."""
NOT_RENEWED = "its lease was not renewed in time"
"""The reason for losing a lease after a pause, a full disk or a network failure."""
STOPPED, FAILED, HANDED_OVER = "stopped", "failed", "handed over"
"""Reasons for releasing a lease: the query was stopped, it failed here, or it was handed to another process."""

_HELD = 2 / 3
_RENEWALS = 6
_RENEWED = "renewed"


def boot_time() -> float:
    """Return the seconds since the machine was started, those in which it slept included where that is known."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True)
class Term:
    """A term of a lease, as of one look."""

    number: int
    lasts: float | None
    """Its time to live in seconds; None if its file does not say."""
    holder: str
    launch: Mapping[str, Any]
    """The options with which the holder started the query."""
    renewal: str | None
    """The text of the newest renewal."""
    processes: Mapping[str, Any]
    """The processes of the holder, as :func:`identified` names them; empty if it does not say."""

    @property
    def released(self) -> str | None:
        """Why the holder has released it; None if it has not."""
        found = _object(self.renewal).get("released")
        return None if found is None else str(found)

    @property
    def handed_to(self) -> str | None:
        """The name of the process that alone may begin the next term now; None if the holder named none."""
        found = _object(self.renewal).get("to")
        return None if found is None else str(found)

    @property
    def free(self) -> bool:
        """True if any process may begin the next term at once."""
        return self.released is not None and self.handed_to is None


class Lease:
    """The lease on one query, as one process sees it. Safe from any thread.

    Args:
        files: where it stands.
        folder: its folder.
        lasts: its time to live in seconds, for the terms that this process begins.
        launch: how this process starts the query, for whoever takes over.
        name: what a holder calls this process when it hands the lease over to it.
        processes: all processes that run the query here, as :func:`identified` names them; None: others cannot know.
        clock: seconds, by a clock that never goes back.
    """

    def __init__(
        self,
        files: LeaseFiles,
        folder: str,
        *,
        lasts: float = LASTS,
        launch: Mapping[str, Any] | None = None,
        name: str | None = None,
        processes: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        if not 0 < lasts < float("inf"):
            raise InvalidArgumentError(f"Invalid lease {lasts!r}: expected its time to live in seconds, above 0.")
        self.folder = folder
        self.files = files
        self.lasts = lasts
        self.launch = dict(launch or {})
        self.name = name
        self.processes = processes
        self.lost: str | None = None
        """Why this process does not hold it any more; None if it does, never did, or has released it."""
        self._clock = clock
        self._count = self._file = 0
        self._held: tuple[int, float] | None = None
        self._watched: tuple[tuple[int, str | None], float] | None = None
        self._known: dict[int, dict[str, Any]] = {}
        self._lock = threading.RLock()

    @classmethod
    def of(cls, layout: Layout, query: str, **options: Any) -> Lease:
        """Return the lease on a query of a store; nothing is read yet."""
        return cls(lease_files(layout), layout.lease(query), **options)

    @property
    def held_for(self) -> float:
        """Seconds for which a renewal counts."""
        return self.lasts * _HELD

    @property
    def renewed_every(self) -> float:
        """Seconds between two renewals, and between two looks of a challenger."""
        return self.lasts / _RENEWALS

    @property
    def token(self) -> int | None:
        """The number of the term that this process holds; None if it holds none."""
        held = self._held
        return None if held is None else held[0]

    @property
    def seen(self) -> bool:
        """True if this process has seen a term; if there is none any more, the store is away."""
        return bool(self._known)

    @property
    def holds(self) -> bool:
        """True if this process owns the query at this moment."""
        held = self._held
        return held is not None and self._clock() < held[1]

    def check(self) -> None:
        """Raise unless this process owns the query at this moment.

        Raises:
            NotOwnerError: it does not.
        """
        if not self.holds:
            raise NotOwnerError.lost(self.lost or NOT_RENEWED)

    def newest(self) -> Term | None:
        """Return the newest term; None if there is none."""
        names = self.files.names(self.folder)
        number = _newest(names)
        if number == 0:
            return None
        renewed = [int(name.rpartition(".")[2]) for name in names if name.startswith(f"{number}.{_RENEWED}.")]
        renewal = self.files.text(self._renewals(number, max(renewed))) if renewed else None
        record = self._known.get(number) or _object(self.files.text(f"{self.folder}/{number}"))
        self._known = {number: record}
        lasts = record.get("lasts")
        return Term(
            number,
            float(lasts) if isinstance(lasts, int | float) else None,
            str(record.get("holder", "another process")),
            _object(json.dumps(record.get("launch"))),
            renewal,
            _object(json.dumps(record.get("processes"))),
        )

    def try_acquire(self) -> bool:
        """Begin the next term if that is allowed now.

        The lease is new, or released, or its holder has ended on this machine, or was silent for the time to live.
        Silence is what this object has seen itself, so call it again and again, and more often than the holder renews.
        """
        with self._lock:
            began = self._clock()
            newest = self.newest()
            if newest is None and self.seen:
                return False
            if newest is not None and not self._is_given(newest) and not self._silent(newest, began):
                return False
            return self._begin(1 if newest is None else newest.number + 1)

    def renew(self) -> bool:
        """Renew the lease; False if this process does not hold it any more, for the reason in ``lost``.

        If it raises, the lease lasts until its time is up.

        Raises:
            OSError, CaptureError: the store cannot be written or read.
        """
        with self._lock:
            began = self._clock()
            if self._held is None:
                return False
            token, until = self._held
            if began < until:
                self._write(token, {})
                if (newest := _newest(self.files.names(self.folder))) != token:
                    return self._lose(f"term {newest} of the lease has begun, this process had term {token}")
                if self._clock() < until:  # or the renewal may have been too late for a challenger to see
                    self._held = token, began + self.held_for
                    return True
            return self._lose(NOT_RENEWED)

    def release(self, why: str, *, to: str | None = None) -> None:
        """Give the lease back. What it protects must have ended: a challenger may begin the next term at once.

        Args:
            why: the reason, for those that wait.
            to: the name of the process that may begin it; the others wait for the time to live, in case that one dies.

        Raises:
            OSError, CaptureError: the store cannot be written; the lease then runs out.
        """
        with self._lock:
            held, self._held = self._held, None  # before the write, which may arrive even if it fails
            if held is not None:
                self._write(held[0], {"released": why} if to is None else {"released": why, "to": to})

    def _is_given(self, newest: Term) -> bool:
        if newest.released is None:
            return have_ended(newest.processes)
        return newest.handed_to in (None, self.name)

    def _silent(self, newest: Term, began: float) -> bool:
        """Check that a term was not renewed for its time to live, up to a look that began then."""
        seen = newest.number, newest.renewal
        if self._watched is None or self._watched[0] != seen:
            self._watched = seen, self._clock()
            return False
        return began - self._watched[1] >= (newest.lasts or self.lasts)

    def _begin(self, number: int) -> bool:
        began = self._clock()
        record = {
            "lasts": self.lasts,
            "holder": f"process {os.getpid()} on {socket.gethostname()}",
            "launch": dict(self.launch),
            "processes": self.processes,
        }
        try:
            self.files.create(f"{self.folder}/{number}", json.dumps(record))
        except FileExistsError:
            return False
        self._held, self._count, self.lost = (number, began + self.held_for), 0, None
        self._file, self._known = 0, {number: record}
        if self.holds:
            return True
        self.release(FAILED)  # it took so long that the next one may have begun
        return False

    def _lose(self, why: str) -> bool:
        self._held, self.lost = None, why
        return False

    def _write(self, term: int, renewal: Mapping[str, Any]) -> None:
        self._count += 1
        try:
            self.files.replace(self._renewals(term, self._file), json.dumps({"count": self._count, **renewal}))
        except BaseException:
            self._file += 1  # the write may still arrive, and must not hide a later one
            raise

    def _renewals(self, term: int, file: int) -> str:
        return f"{self.folder}/{term}.{_RENEWED}.{file}"


def _newest(names: Iterable[str]) -> int:
    """Return the number of the newest term among the names of a lease's files; 0 if there is none."""
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=0)


def _object(text: str | None) -> dict[str, Any]:
    """Return a JSON object; an empty one if the text is none."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
