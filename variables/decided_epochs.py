"""Up to which epoch a query's controller has decided: the planning of the next epoch waits for it, for a bounded time.

The two are different processes, perhaps of different machines. So they compare epochs, and each its own clock only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.parse import quote

from streamstate.variables.transports.transport import Transport

LONGEST_WAIT, LONGEST_HOLD = 0.2, 10.0
"""Seconds that an epoch waits at most for a decision, and for which a decision holds it back at most."""
_POLL = 0.002
_MARK = "epoch"


@dataclass(frozen=True)
class Mark:
    """What a controller leaves for the planning of the next epoch.

    Attributes:
        epoch: the newest epoch that it has decided on.
        wait: seconds for which a later epoch's decision is worth waiting for.
        hold: seconds by which the next epoch is held back.
    """

    epoch: int
    wait: float = 0.0
    hold: float = 0.0

    def data(self) -> bytes:
        """Return it as the transport keeps it."""
        return f"{self.epoch} {self.wait:.3f} {self.hold:.3f}".encode()

    @classmethod
    def of(cls, data: bytes | None) -> Mark | None:
        """Return the mark in some bytes; None if there is none."""
        try:
            epoch, wait, hold = (data or b"").decode().split()
            return cls(int(epoch), float(wait), float(hold))
        except ValueError:
            return None


class DecidedEpochs:
    """The mark of one query's controller, in the transport of its shared variables."""

    def __init__(self, transport: Transport, query: str) -> None:
        self._transport = transport
        self._group = f"decided/{quote(query, safe='')}"
        self._missed: Mark | None = None
        self._held = -1

    def publish(self, mark: Mark) -> None:
        """Replace the mark."""
        self._transport.put(self._group, _MARK, mark.data())

    def withdraw(self) -> None:
        """Remove the mark: no epoch waits from now on."""
        self._transport.remove(self._group, [_MARK])

    def wait_for(self, committed: int) -> None:
        """Wait for the decision on a committed epoch, as long as the mark says.

        If the decision does not come, later epochs do not wait until the controller gives another sign of life.
        """
        began = time.monotonic()
        while True:
            mark = Mark.of(self._transport.get(self._group, _MARK))
            if mark is None or mark == self._missed:
                return
            if mark.epoch >= committed:
                break
            if time.monotonic() - began >= min(mark.wait, LONGEST_WAIT):
                self._missed = mark
                return
            time.sleep(_POLL)
        if mark.hold and self._held < committed:
            self._held = committed
            time.sleep(min(mark.hold, LONGEST_HOLD))
