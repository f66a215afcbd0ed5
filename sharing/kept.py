"""A value that is kept for as long as what it was computed from has no newer version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class KeptByVersion(Generic[Value]):
    """A value, with the version that it was computed from. Safe from any thread.

    A version is an object that never changes, such as the rows of a table as it was read: a newer version is another
    object. So an old value is never returned for a new version.
    """

    def __init__(self) -> None:
        self._kept: tuple[object, Value] | None = None

    def of(self, version: object, made: Callable[[], Value]) -> Value:
        """Return the value of a version, which is made unless it is kept."""
        known = self._kept
        if known is None or known[0] is not version:  # two threads may both make it
            self._kept = known = version, made()
        return known[1]
