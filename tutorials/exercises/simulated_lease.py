"""The lease of streamstate in a simulation: files in memory, and clocks that the simulation sets."""

from __future__ import annotations

from collections.abc import Callable

from streamstate.operations.availability.lease import Lease

LASTS = 6.0
"""Seconds."""


class Files:
    """A store's files, in memory."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self.before_next: list[Callable[[], object]] = []
        """What happens just before the next file is created."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return [name.removeprefix(f"{path}/") for name in self._texts]

    def text(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        return self._texts.get(path)

    def create(self, path: str, text: str) -> None:
        """Create a file.

        Raises:
            FileExistsError: it exists.
        """
        while self.before_next:
            self.before_next.pop()()
        if path in self._texts:
            raise FileExistsError(path)
        self._texts[path] = text

    def replace(self, path: str, text: str) -> None:
        """Write a file, which may exist."""
        self._texts[path] = text


class Owned:
    """A query with an owner that holds its lease."""

    def __init__(self) -> None:
        self.files = Files()
        self.now = 0.0
        self.owner = self.process()
        self.owner.try_acquire()

    def process(self, *, ahead: float = 0.0) -> Lease:
        """Return the lease as a process sees it whose clock is so many seconds ahead."""
        return Lease(self.files, "lease", lasts=LASTS, clock=lambda: self.now + ahead)


def still_owner(seconds: str, *, ahead: float | None = 0.0) -> bool:
    """Check that the first owner still owns the query after some seconds.

    Args:
        seconds: a letter for each second: ``r`` if the owner renews the lease in it, else a dot.
        ahead: how far the clock of the standby is ahead, in seconds; None: there is no standby.
    """
    query = Owned()
    standby = None if ahead is None else query.process(ahead=ahead)
    for second in seconds:
        query.now += 1
        if second == "r":
            query.owner.renew()
        if standby:
            standby.try_acquire()
    return query.owner.holds


def owners_after_two_claims() -> int:
    """Return how many of two standbys own the query if both see at the same moment that they may claim it."""
    query = Owned()
    one, other = query.process(), query.process()
    for standby in (one, other):
        standby.try_acquire()  # the first look, from which it counts
    query.now += LASTS
    query.files.before_next.append(other.try_acquire)
    one.try_acquire()
    return one.holds + other.holds
