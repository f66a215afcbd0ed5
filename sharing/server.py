"""The server of the Delta Sharing protocol, on tornado.

It writes nothing but what it hands out, what was read, and what recipients suggest.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.ioloop import PeriodicCallback
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from streamstate.errors import InvalidArgumentError, StreamStateError
from streamstate.sharing.api_handlers import LARGEST, ListsHandler, TableHandler, TermsHandler
from streamstate.sharing.contracts import Contracts
from streamstate.sharing.file_handler import FileHandler
from streamstate.sharing.metering import Meter
from streamstate.sharing.recipients import Recipients
from streamstate.sharing.request_handler import LOG, Limits, NothingHandler, Served
from streamstate.sharing.shared_files import SharedFiles
from streamstate.sharing.shares import Shares
from streamstate.snapshots.capture.background import BackgroundThread
from streamstate.state_inspect.store import Store

ENDPOINT = "/delta-sharing"
PORT = 8720
"""The port if none is given."""
_METER_EVERY, _SWEEP_EVERY = 5.0, 600.0


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
        files = SharedFiles(store.layout, store.__getitem__)
        served = Served(
            Shares(contracts, store.__getitem__, files),
            recipients,
            files,
            Meter(store.layout),
            limits or Limits(),
            self.url,
            key=recipients.link_key(),
        )
        self._served, self._socket, self._certificate = served, socket, certificate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started, self._stop = threading.Event(), asyncio.Event()
        self._thread = BackgroundThread(self._run, "streamstate-share")
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

    def wait(self) -> None:
        """Wait until it is closed."""
        self._thread.join()

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
            self._started.set()

    async def _serve(self) -> None:
        self._loop, served = asyncio.get_running_loop(), self._served
        context = None
        if self._certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*self._certificate)
        server = HTTPServer(_application(served), ssl_options=context, max_body_size=LARGEST, max_header_size=LARGEST)
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
            LOG.warning("%s", error)

    def _sweep(self) -> None:
        self._served.files.sweep(self._served.shares.grants())


def _application(served: Served) -> Application:
    given, part = {"served": served}, "([^/]+)"
    table = f"{ENDPOINT}/shares/{part}/schemas/{part}/tables/{part}/(version|metadata|query|changes)"
    return Application(
        [
            (f"{ENDPOINT}/shares/?", ListsHandler, given),
            (f"{ENDPOINT}/shares/{part}", ListsHandler, given),
            (f"{ENDPOINT}/shares/{part}/(schemas|all-tables)", ListsHandler, given),
            (f"{ENDPOINT}/shares/{part}/(schemas)/{part}/tables", ListsHandler, given),
            (f"{ENDPOINT}/shares/{part}/terms", TermsHandler, given),
            (table, TableHandler, given),
            (f"{ENDPOINT}/files/([A-Za-z0-9_-]+)\\.parquet", FileHandler, given),
        ],
        default_handler_class=NothingHandler,
        default_handler_args=given,
        log_function=_logged,
    )


def _logged(handler: RequestHandler) -> None:
    """Log a request without its query, which may hold a signature."""
    LOG.info("%s %s %s", handler.get_status(), handler.request.method, handler.request.path)


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
