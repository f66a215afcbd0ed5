"""Up to which epoch a query's controller has decided: the planning of the next epoch waits for it, for a bounded time.

The two are different processes, perhaps of different machines. So they compare epochs, and each its own clock only.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from statistics import median
from urllib.parse import quote

from streamstate.variables.transports.transport import Transport

LONGEST_WAIT = 0.2
"""Seconds that an epoch waits at most for a decision."""
_POLL = 0.002
_EPOCHS, _UNUSUAL = 10, 1.5
"""An epoch is unusual if it took so many times as long as the median of the last ones."""
_MARK = "epoch"


@dataclass(frozen=True)
class Mark:
    """What a controller leaves for the planning of the next epoch.

    Attributes:
        epoch: the newest epoch that it has decided on.
        wait: seconds for which a later epoch's decision is worth waiting for.
    """

    epoch: int
    wait: float = 0.0

    def data(self) -> bytes:
        """Return it as the transport keeps it."""
        return f"{self.epoch} {self.wait:.3f}".encode()

    @classmethod
    def of(cls, data: bytes | None) -> Mark | None:
        """Return the mark in some bytes; None if there is none."""
        try:
            epoch, wait = (data or b"").decode().split()
            return cls(int(epoch), float(wait))
        except ValueError:
            return None


class DecidedEpochs:
    """The mark of one query's controller, in the transport of its shared variables."""

    def __init__(self, transport: Transport, query: str) -> None:
        self._transport = transport
        self._group = f"decided/{quote(query, safe='')}"
        self._missed: Mark | None = None
        self._planned: tuple[int, float] | None = None
        self._usual: deque[float] = deque(maxlen=_EPOCHS)

    def publish(self, mark: Mark) -> None:
        """Replace the mark."""
        self._transport.put(self._group, _MARK, mark.data())

    def withdraw(self) -> None:
        """Remove the mark: no epoch waits from now on."""
        self._transport.remove(self._group, [_MARK])

    def wait_for(self, committed: int) -> None:
        """Wait for the decision on a committed epoch, as long as the mark says.

        After an epoch that was unusually long, a decision is likely: it is waited for as long as possible. If it does
        not come, later epochs do not wait until the controller gives another sign of life.
        """
        began = time.monotonic()
        unusual = self._unusual(committed, began)
        while True:
            mark = Mark.of(self._transport.get(self._group, _MARK))
            if mark is None or mark == self._missed or mark.epoch >= committed:
                break
            if time.monotonic() - began >= (LONGEST_WAIT if unusual else min(mark.wait, LONGEST_WAIT)):
                self._missed = mark
                break
            time.sleep(_POLL)
        self._planned = committed, time.monotonic()

    def _unusual(self, committed: int, now: float) -> bool:
        """Return whether the epoch that was committed took much longer than those before it."""
        if self._planned is None or committed <= self._planned[0]:
            return False
        seconds = now - self._planned[1]
        unusual = bool(self._usual) and seconds > _UNUSUAL * median(self._usual)
        self._usual.append(seconds)
        return unusual
