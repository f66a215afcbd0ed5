"""A few threads that many captures share."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from typing import Protocol

from streamstate.snapshots.capture.background import BackgroundThread


class Turns(Protocol):
    """Work in the background that is done in turns."""

    def turn(self) -> float | None:
        """Do what is due. Returns the seconds until the next turn; None if there is none."""


class SharedThreads:
    """Threads that run the turns of any number of captures, those that are due first.

    Each capture has at most one turn at a time, so that memory is bounded by the number of threads, not of captures.

    Args:
        name: the name of the threads.
        count: how many there are.
    """

    def __init__(self, name: str, count: int) -> None:
        self._due: list[tuple[float, int, Turns]] = []
        self._order = itertools.count()
        self._members: dict[Turns, int] = {}
        self._woken: set[Turns] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [BackgroundThread(self._run, f"{name}-{number}") for number in range(count)]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Return the number of captures that have a next turn."""
        return len(self._members)

    def __contains__(self, thread: object) -> bool:
        """Return whether a thread is one of these."""
        return thread in self._threads

    def add(self, member: Turns, after: float = 0.0) -> None:
        """Run the turns of a capture, the first after some seconds."""
        with self._changed:
            self._schedule(member, after)

    def wake(self, member: Turns) -> None:
        """Run the next turn of a capture at once, or as soon as the turn under way is over."""
        with self._changed:
            if member in self._members:
                self._woken.add(member)
                if self._members[member] >= 0:
                    self._schedule(member, 0.0)

    def close(self) -> None:
        """End the threads, each after its turn, and wait for that."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _schedule(self, member: Turns, after: float) -> None:
        self._members[member] = number = next(self._order)  # what is scheduled under another number is void
        heapq.heappush(self._due, (time.monotonic() + after, number, member))
        self._changed.notify()

    def _run(self) -> None:
        while (member := self._next()) is not None:
            pause = member.turn()
            with self._changed:
                if pause is None:
                    self._members.pop(member)
                else:
                    self._schedule(member, 0.0 if member in self._woken else pause)
                self._woken.discard(member)

    def _next(self) -> Turns | None:
        """Wait for the next turn that is due; None once the threads are to end."""
        with self._changed:
            while not self._closed:
                while self._due and self._members.get(self._due[0][2]) != self._due[0][1]:
                    heapq.heappop(self._due)
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    member = heapq.heappop(self._due)[2]
                    self._members[member] = -1  # its turn is under way
                    return member
                self._changed.wait(wait)
        return None
