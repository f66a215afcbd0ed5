"""Processes that contend for a lease, interleaved at each of their steps, with pauses, failed writes and own clocks."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from streamstate.operations.availability.lease import FAILED, HANDED_OVER, STOPPED, Lease

LASTS = 6.0


class _Ended(BaseException):
    """Unwinds a process at the end of a simulation."""


@dataclass
class World:
    """Runs contending processes one step at a time; a step is a look at the clock, or an access to a file."""

    seed: int
    drift: float = 1.4
    """How much faster one clock may run than another."""
    broken: float = 0.03
    """The share of writes that fail, and may arrive later."""
    now: float = 0.0
    files: dict[str, str] = field(default_factory=dict)
    late: list[tuple[float, str, str, bool]] = field(default_factory=list)
    """Writes that failed, and arrive all the same: when, the file, its text, and if the file must be new."""
    tokens: list[int] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Create three processes."""
        self.random = random.Random(self.seed)
        self.turn = threading.Semaphore(0)
        self.processes = [Process(self, number) for number in range(3)]

    def run(self, steps: int) -> World:
        """Run some steps."""
        for process in self.processes:
            process.start()
            self.turn.acquire()
        for _ in range(steps):
            self._step()
        for process in self.processes:
            process.ended = True
            process.go.release()
            process.join()
        return self

    def _step(self) -> None:
        self.now += self.random.choice((0.001, 0.02, 0.1, 0.3))
        self._deliver()
        ready = [process for process in self.processes if process.frozen_until <= self.now]
        if not ready:
            return
        process = self.random.choice(ready)
        if self.random.random() < 0.01:
            process.frozen_until = self.now + self.random.uniform(0, 3 * LASTS)
            return
        process.go.release()
        self.turn.acquire()
        holding = [process.number for process in self.processes if process.lease.holds]
        if len(holding) > 1:
            self.overlaps.append(f"at {self.now:.2f} s of seed {self.seed}: processes {holding}")

    def _deliver(self) -> None:
        while self.late and self.late[0][0] <= self.now:
            _, path, text, new = self.late.pop(0)
            if not (new and path in self.files):
                self.files[path] = text


class Process(threading.Thread):
    """A process that acquires the lease when it can, then renews it, and sometimes releases it."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(name=f"process {number}", daemon=True)
        self.world, self.number = world, number
        self.go = threading.Semaphore(0)
        self.ended = False
        self.frozen_until = 0.0
        self.rate: float = world.random.uniform(1, world.drift) / world.drift**0.5
        self.offset: float = world.random.uniform(-1000, 1000)
        self.lease = Lease(self, "lease", lasts=LASTS, name=str(number), clock=self.clock)

    def run(self) -> None:
        """Contend until the end."""
        try:
            with suppress(_Ended):
                self.pause()
                while True:
                    self._contend()
        finally:  # also if it fails, which the world must not wait for
            self.frozen_until = math.inf
            self.world.turn.release()

    def _contend(self) -> None:
        with suppress(OSError):
            if self.lease.token is None:
                if self.lease.try_acquire():
                    self.note()
            elif self.world.random.random() < 0.02:
                to = self.world.random.choice((None, "0", "1", "2"))
                self.lease.release(self.world.random.choice((STOPPED, FAILED)) if to is None else HANDED_OVER, to=to)
            else:
                self.lease.renew()

    def note(self) -> None:
        """Note the token of a lease that was acquired."""
        token = self.lease.token
        assert token is not None
        self.world.tokens.append(token)

    def pause(self) -> None:
        """Let the world choose who continues, and when."""
        self.world.turn.release()
        self.go.acquire()
        if self.ended:
            raise _Ended

    def clock(self) -> float:
        """The time, by this process's clock."""
        if threading.current_thread() is self:
            self.pause()
        now: float = self.offset + self.rate * self.world.now
        return now

    def names(self, path: str) -> list[str]:
        """As LeaseFiles."""
        self.pause()
        return [name.removeprefix(f"{path}/") for name in self.world.files]

    def text(self, path: str) -> str | None:
        """As LeaseFiles."""
        self.pause()
        return self.world.files.get(path)

    def create(self, path: str, text: str) -> None:
        """As LeaseFiles."""
        self.pause()
        if path in self.world.files:
            raise FileExistsError(path)
        self._write(path, text, new=True)

    def replace(self, path: str, text: str) -> None:
        """As LeaseFiles."""
        self.pause()
        self._write(path, text, new=False)

    def _write(self, path: str, text: str, *, new: bool) -> None:
        """Write at once; or fail, and write later or not at all."""
        if self.world.random.random() >= self.world.broken:
            self.world.files[path] = text
            self.pause()
            return
        if self.world.random.random() < 0.7:
            arrives = self.world.now + self.world.random.uniform(0, 2 * LASTS)
            self.world.late.append((arrives, path, text, new))
            self.world.late.sort()
        raise OSError("the connection was reset")


def worlds(count: int, *, drift: float) -> Iterator[World]:
    """Worlds with different seeds."""
    for seed in range(count):
        yield World(seed, drift)
