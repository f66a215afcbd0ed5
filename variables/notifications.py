"""Hearing of new versions: each once and in order, also after the process that listens was killed."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streamstate.errors import InvalidArgumentError, TransportError
from streamstate.variables.transports.transport import number_in
from streamstate.variables.version_bytes import VersionEntry
from streamstate.variables.version_log import VersionLog


@dataclass(frozen=True)
class Change:
    """A new version of a shared variable.

    Attributes:
        name: the variable.
        version: its number.
        value: its value.
        added: what was added, such as the items of a list since the version before; None if it was set.
        kind: ``set`` or ``merge``.
        by: who set it, or the id of the query.
        epoch: the epoch whose contributions were merged; None if it was set.
        at: when.
    """

    name: str
    version: int
    value: Any
    added: Any
    kind: str
    by: str
    epoch: int | None
    at: datetime


class Subscription:
    """Calls a function for each new version; :meth:`SharedVariable.on_change` returns it.

    Attributes:
        error: what the function raised, after which it is no longer called, or why the transport cannot be reached;
            None if nothing.
        missed: how many versions it did not hear of, because the transport had forgotten them before it began.
    """

    def __init__(
        self, log: VersionLog, callback: Callable[[Change], object], *, name: str | None, interval: Any
    ) -> None:
        if not callable(callback):
            raise InvalidArgumentError(f"Invalid callback {callback!r}: expected a function of the change.")
        if isinstance(interval, bool) or not isinstance(interval, (int, float)) or not 0 < interval < math.inf:
            raise InvalidArgumentError(f"Invalid interval={interval!r}: expected a number of seconds above 0.")
        self._interval = float(interval)
        # A log of its own: another thread reads the variable's.
        self._log = VersionLog(log.transport, log.declaration, log.branch, log.recorded)
        self._callback = callback
        self._name = name
        self._ended = threading.Event()
        self._heard = self._begin()
        self.error: BaseException | None = None
        self.missed = 0
        self._thread = threading.Thread(target=self._listen, name=f"streamstate-shared-{log.name}", daemon=True)
        self._thread.start()

    @property
    def _group(self) -> str:
        return f"heard/{self._log.declaration.key}"

    def _begin(self) -> int:
        kept = None if self._name is None else self._log.transport.get(self._group, self._name)
        if kept is None:
            return self._log.head()
        return number_in(kept, self._log.transport, f"the position of {self._name!r}")

    def stop(self) -> None:
        """Stop listening; the call under way ends first."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                self._hear()
            except TransportError as error:
                self.error = error  # it may come back
            except BaseException as error:  # noqa: BLE001 (the handle reports it)
                self.error = error
                return
            self._ended.wait(self._interval)

    def _hear(self) -> None:
        head = self._log.head()
        self.error = None
        while self._heard < head and not self._ended.is_set():
            oldest = min(self._log.numbers(), default=0)
            if oldest > self._heard + 1:
                self.missed += oldest - self._heard - 1
                self._heard = oldest - 1
            entry = self._log.entry(self._heard + 1)
            self._callback(self._change(entry))
            self._heard = entry.number
            if self._name is not None:
                self._log.transport.put(self._group, self._name, str(entry.number).encode())

    def _change(self, entry: VersionEntry) -> Change:
        value = self._log.value(entry.number)
        value = dict(value) if self._log.declaration.type.is_map and value is not None else value
        return Change(self._log.name, entry.number, value, entry.change, entry.kind, entry.by, entry.epoch, entry.at)
