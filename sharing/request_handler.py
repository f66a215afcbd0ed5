"""What all handlers of requests share: the served objects, the limits of recipients, and the form of errors."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tornado.web import RequestHandler

from streamstate.errors import StreamStateError
from streamstate.sharing.metering import Granted, Meter
from streamstate.sharing.protocol import AskedError, LinkedFile
from streamstate.sharing.recipients import Recipients
from streamstate.sharing.shared_files import SharedFile, SharedFiles
from streamstate.sharing.shares import SharedTable, Shares
from streamstate.snapshots.store.consistent_read import consistent_read

LOG = logging.getLogger("streamstate.sharing")
_LINK_LASTS = timedelta(minutes=15)


@dataclass
class Limits:
    """The limits of each recipient.

    Attributes:
        requests: requests a second, on average; ten times as many at once.
        rows: rows that are handed out in a day; None: any number.
    """

    requests: float = 50.0
    rows: int | None = None


@dataclass
class Served:
    """The objects that the handlers of requests share."""

    shares: Shares
    recipients: Recipients
    files: SharedFiles
    meter: Meter
    limits: Limits
    url: str
    key: bytes
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "streamstate-share"))
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the next two change."""
    asked: dict[str, tuple[float, float]] = field(default_factory=dict)
    handed: dict[tuple[str, str], int] = field(default_factory=dict)

    def take(self, recipient: str) -> None:
        """Count a request of a recipient against its rate (a token bucket)."""
        now, rate = time.monotonic(), self.limits.requests
        with self.lock:
            left, since = self.asked.get(recipient, (10 * rate, now))
            left = min(10 * rate, left + rate * (now - since)) - 1
            if left >= 0:
                self.asked[recipient] = left, now
        if left < 0:
            raise AskedError(429, f"More than {rate:g} requests a second.")

    def hand_out(self, recipient: str, shared: SharedTable, file: SharedFile, epoch: int, kind: str) -> LinkedFile:
        """Return a file with a URL for a recipient, and count it."""
        day = recipient, f"{datetime.now(UTC):%Y-%m-%d}"
        with self.lock:
            rows = self.handed.get(day, 0) + file.rows
            if self.limits.rows is not None and rows > self.limits.rows:
                raise AskedError(429, f"More than {self.limits.rows:,} rows today.")
            self.handed = {known: count for known, count in self.handed.items() if known[1] == day[1]} | {day: rows}
        contract = shared.contract
        self.meter.count(
            Granted(recipient, contract.name, contract.version, shared.granted.name, epoch, kind, file.rows)
        )
        expires = datetime.now(UTC) + _LINK_LASTS
        asked = [recipient, contract.name, file.grant, file.name, epoch, int(expires.timestamp())]
        text = base64.urlsafe_b64encode(json.dumps(asked).encode()).decode().rstrip("=")
        link = f"{self.url}/files/{text}.parquet?X-Amz-Signature={self.sign(recipient, text)}"
        return LinkedFile(file, link, expires, epoch, shared.epochs.at(epoch))

    def sign(self, recipient: str, text: str) -> str:
        """Return the signature of a link. It changes with the recipient's tokens, so that revoking them ends links."""
        tokens = sorted(token for token, (owner, _) in self.recipients.valid().items() if owner == recipient)
        secret = hmac.digest(self.key, json.dumps([recipient, tokens]).encode(), "sha256")
        return hmac.new(secret, text.encode(), "sha256").hexdigest()


class ServedHandler(RequestHandler):
    """A request of any kind; it answers errors in the protocol's form."""

    served: Served

    def initialize(self, served: Served) -> None:
        """Take what all handlers share."""
        self.served = served

    def set_default_headers(self) -> None:
        """Set the headers of every answer."""
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    def write_error(self, status_code: int, **_about: Any) -> None:
        """Answer a request that tornado itself refuses."""
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish({"errorCode": str(status_code), "message": self._reason})

    async def answered(self, answer: Callable[[], Any]) -> Any:
        """Return what a function gives that may read the store, each table once; what fails is an answer too."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.served.threads, consistent_read()(answer))
        except AskedError as error:
            self.refuse(error.status, error.message)
        except StreamStateError as error:  # its message may name what is not granted
            LOG.warning("%s: %s", self.request.path, error)
            self.refuse(400, "This version cannot be read.")
        return None

    def refuse(self, status: int, message: str) -> None:
        """Answer that something is wrong."""
        self.set_status(status)
        if status == 401:
            self.set_header("WWW-Authenticate", "Bearer")
        if status == 429:
            self.set_header("Retry-After", "1")
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish({"errorCode": str(status), "message": message})


class NothingHandler(ServedHandler):
    """A request for an address at which there is nothing."""

    async def prepare(self) -> None:
        """Refuse."""
        self.refuse(404, "There is nothing at this address.")
