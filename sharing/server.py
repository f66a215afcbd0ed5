"""The server of the Delta Sharing protocol, on tornado: it reads the store.

It writes what it hands out, what was read, and what recipients suggest.

Source: https://github.com/delta-io/delta-sharing/blob/main/PROTOCOL.md
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.ioloop import PeriodicCallback
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from streamstate.errors import InvalidArgumentError, StreamStateError
from streamstate.sharing.contracts import Contracts
from streamstate.sharing.metering import Granted, Meter
from streamstate.sharing.protocol import (
    CAPABILITIES,
    CONTENT_TYPE,
    VERSION,
    AskedError,
    LinkedFile,
    body,
    file_line,
    head_lines,
    moment,
    number,
    response_format,
)
from streamstate.sharing.recipients import Recipients
from streamstate.sharing.shared_files import SharedFile, SharedFiles
from streamstate.sharing.shares import SharedTable, Shares
from streamstate.sharing.suggestions import terms_answer
from streamstate.state_inspect.store import Store

ENDPOINT = "/delta-sharing"
PORT = 8720
"""The port if none is given."""
_LARGEST = 100_000
"""Bytes of a request's body."""
_LINK_LASTS = timedelta(minutes=15)
_METER_EVERY, _SWEEP_EVERY = 5.0, 600.0
_MOST_CHANGES = 500
"""Epochs whose changes one answer has."""
_LOG = logging.getLogger("streamstate.sharing")


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
class _Served:
    """The objects that the handlers share."""

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
        return LinkedFile(file, link, expires, epoch, shared.at(epoch))

    def sign(self, recipient: str, text: str) -> str:
        """Return the signature of a link. It changes with the recipient's tokens, so that revoking them ends links."""
        tokens = sorted(token for token, (owner, _) in self.recipients.valid().items() if owner == recipient)
        secret = hmac.digest(self.key, json.dumps([recipient, tokens]).encode(), "sha256")
        return hmac.new(secret, text.encode(), "sha256").hexdigest()


class _Handler(RequestHandler):
    served: _Served

    def initialize(self, served: _Served) -> None:
        self.served = served

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    def write_error(self, status_code: int, **_about: Any) -> None:
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish({"errorCode": str(status_code), "message": self._reason})

    async def answered(self, answer: Callable[[], Any]) -> Any:
        """Return what a function gives that may read the store; what fails is an answer too."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.served.threads, answer)
        except AskedError as error:
            self.refuse(error.status, error.message)
        except StreamStateError as error:  # its message may name what is not granted
            _LOG.warning("%s: %s", self.request.path, error)
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


class _Api(_Handler):
    """A request of the protocol, of a recipient with a token."""

    def recipient(self) -> str:
        """Return the recipient that asks."""
        scheme, _, secret = self.request.headers.get("Authorization", "").partition(" ")
        found = self.served.recipients.recipient_of(secret) if scheme.lower() == "bearer" else None
        if found is None:
            raise AskedError(401, "The token is not valid, or no longer.")
        self.served.take(found)
        return found

    def argument(self, name: str) -> str | None:
        """Return an argument of the query."""
        values = self.request.query_arguments.get(name, [])
        try:
            return values[-1].decode() if values else None
        except UnicodeDecodeError as error:
            raise AskedError(400, f"Invalid {name}: expected UTF-8.") from error


class _Lists(_Api):
    """The shares, schemas and tables of a recipient."""

    async def get(self, share: str | None = None, what: str | None = None, schema: str | None = None) -> None:
        found = await self.answered(partial(self._listed, share, what, schema))
        if found is not None:
            self.finish(found)

    async def post(self, *_parts: str) -> None:
        self.refuse(405, "Use GET.")

    def _listed(self, share: str | None, what: str | None, schema: str | None) -> dict[str, Any]:
        recipient, shares = self.recipient(), self.served.shares
        if share is None:
            return self._page([{"name": contract.name} for contract in shares.of(recipient)])
        contract = shares.share(recipient, share)
        if what is None:
            return {"share": {"name": contract.name}}
        query = contract.terms.query
        if what == "schemas" and schema is None:
            return self._page([{"name": query, "share": contract.name}])
        if schema is not None and schema.lower() != query.lower():
            raise AskedError(404, "There is no such share, schema or table.")
        names = [table.name for table in contract.terms.tables]
        return self._page([{"name": name, "schema": query, "share": contract.name} for name in names])

    def _page(self, items: list[dict[str, str]]) -> dict[str, Any]:
        size = number(self.argument("maxResults") or 500, "maxResults")
        start = number(self.argument("pageToken") or 0, "pageToken")
        found: dict[str, Any] = {"items": items[start : start + size]}
        return found | ({"nextPageToken": str(start + size)} if size > 0 and start + size < len(items) else {})


class _Terms(_Api):
    """The terms of a share, and others that its recipient suggests."""

    async def get(self, share: str) -> None:
        await self._answer(share, None)

    async def post(self, share: str) -> None:
        await self._answer(share, self.request.body)

    async def _answer(self, share: str, body: bytes | None) -> None:
        found = await self.answered(lambda: terms_answer(self.served.shares, self.recipient(), share, body))
        if found is not None:
            self.set_header("Content-Type", "application/json; charset=utf-8")
            self.finish(found)


class _Table(_Api):
    """A table: its version, metadata, rows and changes."""

    async def get(self, share: str, schema: str, table: str, what: str) -> None:
        await self._answer(share, schema, table, what)

    async def post(self, share: str, schema: str, table: str, what: str) -> None:
        await self._answer(share, schema, table, what)

    async def _answer(self, share: str, schema: str, table: str, what: str) -> None:
        found = await self.answered(partial(self._found, share, schema, table, what))
        if found is None:
            return
        version, form, lines = found
        self.set_header(VERSION, str(version))
        if form is not None:
            self.set_header(CAPABILITIES, f"responseformat={form}")
            self.set_header("Content-Type", CONTENT_TYPE)
        self.finish(body(lines))

    def _found(self, share: str, schema: str, table: str, what: str) -> tuple[int, str | None, list[dict[str, Any]]]:
        recipient = self.recipient()
        if (what == "query") != (self.request.method == "POST"):
            raise AskedError(405, f"Use {'POST' if what == 'query' else 'GET'}.")
        shared = self.served.shares.table(recipient, share, schema, table)
        if what == "version":
            start = self.argument("startingTimestamp")
            return (shared.newest if start is None else shared.at_or_after(moment(start))), None, []
        columns = self.served.files.schema(shared.contract.terms, shared.granted)
        form = response_format(self.request.headers.get(CAPABILITIES, ""), columns)
        if what == "metadata":
            return shared.newest, form, head_lines(shared.name, columns, shared.newest, form)
        asked = self._asked() if what == "query" else {}
        if what == "query" and asked.get("startingVersion") is None:
            version = self._version(shared, asked)
            file = self.served.files.state(shared.contract.terms, shared.granted, version)
            linked = self.served.hand_out(recipient, shared, file, version, "rows")
            return version, form, [*head_lines(shared.name, columns, version, form), file_line(linked, form)]
        version, epochs = self._first(shared, asked), self._epochs(shared, asked)
        lines = head_lines(shared.name, columns, version, form)
        if self._is_own_client:
            lines.append(self._about(shared, epochs))
        changes = self._changes(recipient, shared, epochs)
        return version, form, [*lines, *(file_line(one, form, changes=True) for one in changes)]

    @property
    def _is_own_client(self) -> bool:
        """True if streamstate asks: another client would not know the line with the epochs."""
        return "streamstate" in self.request.headers.get(CAPABILITIES, "")

    def _about(self, shared: SharedTable, epochs: Sequence[int]) -> dict[str, Any]:
        """Return the line for streamstate's own client: the epochs of the answer, and what keeps its copy in order."""
        terms = shared.contract.terms
        return {
            "streamstate": {
                "epochs": [[epoch, shared.at(epoch).isoformat()] for epoch in epochs],
                "newest": shared.newest,
                "keys": self.served.files.keys(terms, shared.granted),
                "freshness": terms.freshness,
                "version": shared.contract.version,
            }
        }

    def _asked(self) -> dict[str, Any]:
        if len(self.request.body) > _LARGEST:
            raise AskedError(413, "The request is too large.")
        try:
            found = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise AskedError(400, "Invalid body: expected JSON.") from error
        if not isinstance(found, dict):
            raise AskedError(400, "Invalid body: expected a JSON object.")
        return found

    def _version(self, shared: SharedTable, asked: dict[str, Any]) -> int:
        if asked.get("version") is not None and asked.get("timestamp") is not None:
            raise AskedError(400, "Give a version or a timestamp, not both.")
        if asked.get("limitHint") is not None:
            number(asked["limitHint"], "limitHint")
        if asked.get("version") is not None:
            version = number(asked["version"], "version")
            shared.at(version)  # raises if it is not granted
            return version
        return shared.newest if asked.get("timestamp") is None else shared.at_or_before(moment(asked["timestamp"]))

    def _given(self, asked: dict[str, Any], name: str) -> Any:
        return asked.get(name, self.argument(name))

    def _first(self, shared: SharedTable, asked: dict[str, Any]) -> int:
        version, at = self._given(asked, "startingVersion"), self._given(asked, "startingTimestamp")
        if version is None and at is None:
            raise AskedError(400, "Give a startingVersion or a startingTimestamp.")
        return shared.at_or_after(moment(at)) if version is None else number(version, "startingVersion")

    def _epochs(self, shared: SharedTable, asked: dict[str, Any]) -> Sequence[int]:
        """Return the epochs whose changes a request asks for; streamstate's own client asks again for what is left."""
        first = self._first(shared, asked)
        version, at = self._given(asked, "endingVersion"), self._given(asked, "endingTimestamp")
        last = shared.newest
        if version is not None:
            last = number(version, "endingVersion")
        elif at is not None:
            last = shared.at_or_before(moment(at))
        if first > last + 1 or (version is not None and first > last):
            raise AskedError(400, "The startingVersion is after the last version.")
        epochs = shared.between(first, last)
        if len(epochs) > _MOST_CHANGES and not self._is_own_client:
            raise AskedError(400, f"More than {_MOST_CHANGES} versions: give an endingVersion.")
        return epochs[:_MOST_CHANGES]

    def _changes(self, recipient: str, shared: SharedTable, epochs: Sequence[int]) -> list[LinkedFile]:
        terms, granted, files = shared.contract.terms, shared.granted, self.served.files
        made = [(epoch, files.changes(terms, granted, shared.before(epoch), epoch)) for epoch in epochs]
        hand_out = self.served.hand_out
        return [hand_out(recipient, shared, file, epoch, "changes") for epoch, file in made if file.rows]


class _Files(_Handler):
    """A file by a signed link."""

    async def get(self, text: str) -> None:
        await self._answer(text)

    async def head(self, text: str) -> None:
        await self._answer(text)

    async def _answer(self, text: str) -> None:
        found = await self.answered(partial(self._content, text))
        if found is None:
            return
        if isinstance(found, str):
            self.redirect(found)
            return
        content, size, start = found
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Accept-Ranges", "bytes")
        self.set_header("Content-Length", str(len(content) if self.request.method == "GET" else size))
        if start is not None:
            self.set_status(206)
            self.set_header("Content-Range", f"bytes {start}-{start + len(content) - 1}/{size}")
        if self.request.method == "GET":
            self.write(content)
        self.finish()

    def _content(self, text: str) -> tuple[bytes, int, int | None] | str:
        """Return a part of the file with its size and place, or the object store's own URL of it."""
        grant, name = self._checked(text)
        size = self.served.files.size(grant, name)
        if size is None:
            raise AskedError(404, "The file is gone. Ask for the table again.")
        if self.request.method == "HEAD":
            return b"", size, None
        if (link := self.served.files.link(grant, name)) is not None:
            return link
        start, end = _range(self.request.headers.get("Range"), size)
        content = self.served.files.read(grant, name, start or 0, end)
        return content or b"", size, start

    def _checked(self, text: str) -> tuple[str, str]:
        """Return the file of a link, if its recipient may still read it."""
        refused = AskedError(403, "The link is not valid, or no longer.")
        try:
            asked = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            recipient, contract, grant, name, epoch, expires = asked
            signature = self.request.query_arguments["X-Amz-Signature"][-1].decode()
            signed = isinstance(recipient, str) and hmac.compare_digest(self.served.sign(recipient, text), signature)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise refused from error
        if not signed or time.time() >= expires or not self._granted(recipient, contract, grant, epoch):
            raise refused
        return grant, name

    def _granted(self, recipient: str, name: str, grant: str, epoch: int) -> bool:
        shares = self.served.shares
        for contract in shares.of(recipient):
            if contract.name == name:
                for table in contract.terms.tables:
                    if contract.terms.grant(table) == grant:
                        shared = shares.table(recipient, name, contract.terms.query, table.name)
                        return bool(shared.between(epoch, epoch))
        return False


def _range(header: str | None, size: int) -> tuple[int | None, int | None]:
    """Return the first byte and the one after the last of a range that a request asks for; None: the whole."""
    if header is None:
        return None, None
    unit, _, spans = header.partition("=")
    first, dash, last = spans.partition("-")
    known = all(part == "" or (part.isascii() and part.isdigit() and len(part) < 19) for part in (first, last))
    if unit.strip() != "bytes" or not dash or not known or not (first or last):
        return None, None  # as the standard says, what is not understood is ignored
    start = int(first) if first else max(size - int(last), 0)
    end = size if not last or not first else min(int(last) + 1, size)
    if start >= size or start >= end:
        raise AskedError(416, "The range is not within the file.")
    return start, end


class ShareServer:
    """Serves what a store shares, in a thread of its own; :func:`serve` returns it.

    Attributes:
        url: the endpoint that profiles name.
    """

    def __init__(
        self,
        store: Store,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        url: str | None = None,
        certificate: tuple[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        contracts, recipients = Contracts(store.layout), Recipients(store.layout)
        [socket] = bind_sockets(port, host)[:1]
        port = socket.getsockname()[1]
        scheme = "http" if certificate is None else "https"
        self.url = url or f"{scheme}://{host}:{port}{ENDPOINT}"
        served = _Served(
            Shares(contracts, store.__getitem__),
            recipients,
            SharedFiles(store.layout, store.__getitem__),
            Meter(store.layout),
            limits or Limits(),
            self.url,
            key=recipients.link_key(),
        )
        self._served, self._socket, self._certificate = served, socket, certificate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started, self._ended, self._stop = threading.Event(), threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="streamstate-share", daemon=True)
        self._errors: list[Exception] = []
        self._thread.start()
        self._started.wait()
        for error in self._errors:
            self._socket.close()
            raise InvalidArgumentError(f"The certificate cannot be used: {error}") from error

    def close(self) -> None:
        """Stop, and write what was metered."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._stop.set)
        self.wait()
        self._thread.join()

    def wait(self) -> None:
        """Wait until it is closed."""
        self._ended.wait()  # an interrupted join would take the thread for ended

    def __enter__(self) -> ShareServer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ShareServer at {self.url}{'' if self._loop else ', closed'}>"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except (OSError, ValueError) as error:
            self._errors.append(error)
        finally:
            self._ended.set()
            self._started.set()

    async def _serve(self) -> None:
        self._loop, served = asyncio.get_running_loop(), self._served
        context = None
        if self._certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*self._certificate)
        server = HTTPServer(_application(served), ssl_options=context, max_body_size=_LARGEST, max_header_size=_LARGEST)
        server.add_socket(self._socket)
        periodic = [
            PeriodicCallback(partial(self._background, served.meter.write), 1000 * _METER_EVERY),
            PeriodicCallback(partial(self._background, self._sweep), 1000 * _SWEEP_EVERY),
        ]
        for callback in periodic:
            callback.start()
        self._started.set()
        await self._stop.wait()
        for callback in periodic:
            callback.stop()
        server.stop()
        await server.close_all_connections()
        served.threads.shutdown()
        with suppress(StreamStateError):
            served.meter.write()

    async def _background(self, work: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._served.threads, work)
        except StreamStateError as error:  # tried again the next time
            _LOG.warning("%s", error)

    def _sweep(self) -> None:
        self._served.files.sweep(self._served.shares.grants())


def _application(served: _Served) -> Application:
    given, part = {"served": served}, "([^/]+)"
    table = f"{ENDPOINT}/shares/{part}/schemas/{part}/tables/{part}/(version|metadata|query|changes)"
    return Application(
        [
            (f"{ENDPOINT}/shares/?", _Lists, given),
            (f"{ENDPOINT}/shares/{part}", _Lists, given),
            (f"{ENDPOINT}/shares/{part}/(schemas|all-tables)", _Lists, given),
            (f"{ENDPOINT}/shares/{part}/(schemas)/{part}/tables", _Lists, given),
            (f"{ENDPOINT}/shares/{part}/terms", _Terms, given),
            (table, _Table, given),
            (f"{ENDPOINT}/files/([A-Za-z0-9_-]+)\\.parquet", _Files, given),
        ],
        default_handler_class=_NotThere,
        default_handler_args=given,
        log_function=_logged,
    )


class _NotThere(_Handler):
    async def prepare(self) -> None:
        self.refuse(404, "There is nothing at this address.")


def _logged(handler: RequestHandler) -> None:
    """Log a request without its query, which may hold a signature."""
    _LOG.info("%s %s %s", handler.get_status(), handler.request.method, handler.request.path)


def serve(
    store: Store | str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    url: str | None = None,
    certificate: tuple[str, str] | None = None,
    limits: Limits | None = None,
) -> ShareServer:
    """Serve what a store shares to those who have a token, until it is closed.

    The server keeps no state but the store's, so several can run behind a proxy.

    Args:
        store: the store, or its path.
        host: the address to listen on; by default only this machine is served.
        port: the port; 0: a free one.
        url: the endpoint as recipients reach it, such as that of a proxy; by default made of host and port.
        certificate: the files with a certificate and its key (PEM), for HTTPS.
        limits: what each recipient may ask for.

    Raises:
        InvalidArgumentError: the store is neither on disk nor in an object store, or the address cannot be listened on.
        NotAStoreError: there is no store.

    Example:
        >>> from streamstate.sharing import serve
        >>> contract = store["delays"].publish("partner")
        >>> with serve("store", port=0) as server:
        ...     profile = contract.profile(server.url)
    """
    opened = store if isinstance(store, Store) else Store(store)
    try:
        return ShareServer(opened, host=host, port=port, url=url, certificate=certificate, limits=limits)
    except OSError as error:
        raise InvalidArgumentError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error
