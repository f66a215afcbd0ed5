"""How often a background capture captures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from streamstate.snapshots.durations import duration, positive
from streamstate.snapshots.errors import InvalidArgumentError

Every = int | timedelta | str
"""A number of epochs, or a span of time such as ``timedelta(seconds=10)`` or "10s"."""


@dataclass(frozen=True)
class Pace:
    """When what waits is captured; each epoch of it becomes a snapshot all the same."""

    epochs: int = 1
    """Once so many epochs wait."""
    seconds: float = 0.0
    """And once so many seconds have passed since the last capture began."""

    @classmethod
    def of(cls, every: Every) -> Pace:
        """The pace that an ``every`` means.

        Raises:
            InvalidArgumentError: where it cannot be meant.
        """
        if isinstance(every, int) and not isinstance(every, bool) and every >= 1:
            return cls(epochs=every)
        span = duration(every) if isinstance(every, str) else every
        if isinstance(span, timedelta):
            return cls(seconds=positive(span, f"every={every!r}").total_seconds())
        raise InvalidArgumentError(
            f"every={every!r} cannot be meant: give a whole number of epochs, 1 or more, or a span of time such as 10s,"
            " 2m or a timedelta."
        )

    @property
    def waits(self) -> bool:
        """Whether what is committed may wait although the capture is not behind."""
        return self != Pace()

    def due(self, waiting: int, elapsed: float) -> bool:
        """Whether to capture now.

        Args:
            waiting: epochs that are committed and not captured.
            elapsed: seconds since the last capture began.
        """
        return waiting >= self.epochs and elapsed >= self.seconds
