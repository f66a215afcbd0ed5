"""A copy of a share that is kept fresh in the background, and how old it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from streamstate.errors import StreamStateError
from streamstate.snapshots.calls.checks import positive_duration
from streamstate.snapshots.capture.background import BackgroundThread


@dataclass(frozen=True)
class Freshness:
    """How old the copy of a share is.

    Attributes:
        name: the query's name here.
        epoch: its newest epoch; None: it has none.
        committed_at: the commit of that, where it was made.
        asked_at: when the server answered last; None: not since the store was opened.
        promised: the seconds within which the contract promises an epoch; None: it promises nothing.
        error: why the newest attempt failed, or that the share has ended; None: neither.
    """

    name: str
    epoch: int | None
    committed_at: datetime | None
    asked_at: datetime | None
    promised: float | None
    error: str | None

    @property
    def age(self) -> timedelta | None:
        """The time since the commit of the newest epoch."""
        return None if self.committed_at is None else datetime.now(UTC) - self.committed_at


class Refreshed(Protocol):
    """A copy that can be brought up to date."""

    def refresh(self) -> object:
        """Copy the epochs that are new."""

    def freshness(self) -> list[Freshness]:
        """Return how old the copy of each query is."""


class Following:
    """A copy that is kept fresh in the background; close it, or use it in a ``with`` block."""

    def __init__(
        self, copy: Refreshed, every: timedelta | float, late: Callable[[Freshness], None] | None = None
    ) -> None:
        seconds = every.total_seconds() if isinstance(every, timedelta) else float(every)
        positive_duration(timedelta(seconds=seconds), f"every={every!r}")
        self._copy, self._seconds, self._late = copy, seconds, late
        self._told: set[str] = set()
        self.error: str | None = None
        """Why the newest attempt failed; None: it did not."""
        self._end = threading.Event()
        self._thread = BackgroundThread(self._run, "streamstate-shared")
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._end.set()
        self._thread.join()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                self._copy.refresh()
                self.error = None
            except StreamStateError as error:
                self.error = str(error)
            self._check()
            self._end.wait(self._seconds)

    def _check(self) -> None:
        for fresh in self._copy.freshness():
            is_late = (
                fresh.promised is not None and fresh.age is not None and fresh.age.total_seconds() > fresh.promised
            )
            if is_late and fresh.name not in self._told and self._late is not None:
                self._late(fresh)
            (self._told.add if is_late else self._told.discard)(fresh.name)
