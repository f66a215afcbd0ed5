"""Serving a store: a Panel app on a separate thread."""

from __future__ import annotations

import logging
import secrets
import ssl
import webbrowser
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from streamstate.errors import InvalidArgumentError, StoreError
from streamstate.snapshots.capture.background import BackgroundThread
from streamstate.state_inspect import Store, open_store
from streamstate.widgets.page.guard import LOCAL, AccessRules, Visitors, guarded
from streamstate.widgets.page.statements import Statements

if TYPE_CHECKING:
    from types import TracebackType

    from bokeh.server.server import BaseServer
    from bokeh.server.tornado import BokehTornado
    from tornado.ioloop import IOLoop

logging.getLogger("bokeh.server.views.ws").addFilter(
    lambda record: "connection was closed" not in str(record.msg)  # closing a tab is not worth a warning
)

_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 (an address that a user may choose)
_LIFETIME, _CHECK = 4_000, 1_000
"""Milliseconds for which a tab without a connection is kept, in case it reconnects, and between two checks."""
_WORKERS = 8
_SERVED = r"/|/ws|/favicon\.ico|/static/.+"
"""The paths that the page needs. Bokeh and Panel also serve ``/autoload.js``, which other sites may embed, and
``/components/``, which imports modules by name; these are not found."""


class Server:
    """A store that is being served; :func:`serve` returns it. As a context manager, it stops at the end of the block.

    Attributes:
        url: the address of the page, with the token.
        owner_url: the address for the owner of the queries, who sees the input behind changes; None without one.
        port: the port.
    """

    def __init__(
        self,
        store: Store,
        host: str,
        port: int,
        token: str | None,
        *,
        origin: str | None = None,
        tls: tuple[str, str] | None = None,
        owner_token: str | None = None,
    ) -> None:
        self._store = store
        self._token = token
        self._owner_token = owner_token
        self._host = host
        self._origin = origin
        self._tls = tls
        self._work = ThreadPoolExecutor(_WORKERS, "streamstate-page")
        self._loop: IOLoop | None = None
        self._visitors = Visitors()
        self._statements = Statements(store)
        started: Future[int] = Future()
        self._thread = BackgroundThread(partial(self._run, port, started), "streamstate-server")
        self._thread.start()
        try:
            self.port = started.result()
        except OSError as error:
            self._work.shutdown()
            raise StoreError(f"Cannot serve at {host}:{port}: {error}\nChoose another port, or 0 for any.") from error
        shown = "127.0.0.1" if host in _EVERYWHERE else f"[{host}]" if ":" in host else host
        address = origin or f"{'https' if tls else 'http'}://{shown}:{self.port}"
        self.url = f"{address}/" + (f"?{urlencode({'token': token})}" if token else "")
        self.owner_url = f"{address}/?{urlencode({'token': owner_token})}" if owner_token else None

    @property
    def viewers(self) -> int:
        """The number of open tabs."""
        return len(self._visitors.tabs)

    def stop(self) -> None:
        """Stop serving; open pages stay as they are. Idempotent."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.add_callback(loop.stop)
        self.wait()
        self._work.shutdown()
        self._statements.close()

    def wait(self) -> None:
        """Wait until the server is stopped, from another thread or by a signal that raises."""
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Server of {self._store.path} at {self.url}>"

    def _run(self, port: int, started: Future[int]) -> None:
        """The thread: its event loop serves until it is stopped."""
        import asyncio

        from tornado.ioloop import IOLoop

        loop = IOLoop(make_current=False)
        asyncio.set_event_loop(loop.asyncio_loop)
        try:
            server, bound = self._server(loop, port)
        except Exception as error:  # noqa: BLE001 (raised again by the thread that waits for the start)
            loop.close(all_fds=True)
            started.set_exception(error)
            return
        self._loop = loop
        server.start()
        loop.add_callback(started.set_result, bound)
        loop.start()
        server.stop(wait=False)
        for viewer in tuple(self._visitors.tabs):
            viewer.close(wait=True)
        loop.close(all_fds=True)

    def _server(self, loop: IOLoop, port: int) -> tuple[BaseServer, int]:
        """Bokeh's server over its Tornado application, and the port."""
        from bokeh.server.server import BaseServer
        from bokeh.server.util import bind_sockets
        from tornado.httpserver import HTTPServer

        sockets, bound = bind_sockets(self._host, port)
        tls = None
        if self._tls is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(*self._tls)
        application = self._application(bound)
        http = HTTPServer(application, ssl_options=tls)
        http.add_sockets(sockets)
        return BaseServer(loop, application, http), bound

    def _application(self, port: int) -> BokehTornado:
        """Panel's handlers, with the guard's before them, and with only the paths that the page needs."""
        from bokeh.core.validation import silence
        from bokeh.core.validation.warnings import EMPTY_LAYOUT
        from bokeh.server.tornado import BokehTornado
        from panel.io.application import build_applications
        from panel.io.resources import DIST_DIR
        from tornado.routing import PathMatches, Rule
        from tornado.web import ErrorHandler

        from streamstate.widgets.page.app import app
        from streamstate.widgets.page.connection import LARGEST, SecurityHeaders, TabConnection
        from streamstate.widgets.page.head import Catalogue

        silence(EMPTY_LAYOUT)  # the place of the view is empty until the view is open
        catalogue = Catalogue(self._store, self._statements)
        pages = build_applications({"/": app(catalogue, self._work, self._visitors)}, "streamstate", location=False)
        application = BokehTornado(
            pages,
            extra_websocket_origins=["*"],  # the guard compares origin and host itself
            secret_key=secrets.token_bytes(32),
            sign_sessions=True,
            include_headers=[],
            include_cookies=[],
            use_index=False,
            ico_path=str(DIST_DIR / "images" / "favicon.ico"),
            unused_session_lifetime_milliseconds=_LIFETIME,
            check_unused_sessions_milliseconds=_CHECK,
            websocket_max_message_size_bytes=LARGEST,
        )
        application.add_transform(SecurityHeaders)
        line = {
            "visitors": self._visitors,
            "application_context": application.applications["/"],
            "bokeh_websocket_path": "/ws",
        }
        application.add_handlers(
            r".*",
            [
                guarded(self._access(port), self._visitors),
                Rule(PathMatches(r"/ws"), TabConnection, line),
                Rule(PathMatches(rf"(?!(?:{_SERVED})$).*"), ErrorHandler, {"status_code": 404}),
            ],
        )
        return application

    def _access(self, port: int) -> AccessRules:
        named = urlsplit(self._origin).hostname if self._origin else None
        hosts = None if named is None and self._host not in LOCAL else LOCAL | {self._host, *([named] if named else [])}
        secure = self._tls is not None or (self._origin or "").startswith("https:")
        return AccessRules(self._token, self._owner_token, hosts, self._origin, port, secure)


def serve(
    store: Store | str | Path,
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    token: str | None = None,
    open_browser: bool = False,
    allow_origin: str | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    why: bool = False,
) -> Server:
    """Show a store as a page in the browser: read-only, for several viewers at once, without Spark.

    Args:
        store: an open store, or its path.
        port: the port; 0 for any free port.
        host: the address to serve at; by default, only this machine can reach it.
        token: the token that viewers need; by default, a random one. An empty token admits everyone, which is only
            allowed if no other machine can reach the page.
        open_browser: open the page in a browser.
        allow_origin: the address at which browsers see the page behind a proxy, such as
            ``https://state.example.com``.
        tls_cert: a PEM file with the certificate and its chain, to serve HTTPS.
        tls_key: the PEM file with its private key.
        why: offer a second address, :attr:`Server.owner_url`, on which **Why?** shows the input rows behind a change,
            for queries whose plan this process knows: they were started here, or described with
            :meth:`streamstate.History.describe`. Whoever has it can make Spark read the input again.

    Returns:
        The running server.

    Raises:
        NotAStoreError: the path is not a store.
        StoreError: the port is in use.
        InvalidArgumentError: the token is empty although other machines can reach the page, the origin is invalid,
            or the certificate cannot be used.

    Example:
        >>> with serve("store") as server:
        ...     print(server.url)
        http://127.0.0.1:.../?token=...
    """
    origin = None if allow_origin is None else _origin(allow_origin)
    if token == "" and (host not in LOCAL or origin is not None):
        raise InvalidArgumentError(
            f"Without a token, everyone who can reach {origin or host} could read the state.\n"
            "Serve at 127.0.0.1, or leave out the token to use a random one."
        )
    tls = _certificate(tls_cert, tls_key)
    opened = store if isinstance(store, Store) else open_store(store)
    chosen = secrets.token_urlsafe(24) if token is None else token or None
    owner = secrets.token_urlsafe(24) if why else None
    server = Server(opened, host, port, chosen, origin=origin, tls=tls, owner_token=owner)
    if open_browser:
        webbrowser.open(server.url)
    return server


def _origin(text: str) -> str:
    """Scheme, name and port, as browsers write them."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    plain = not (parts.username or parts.query or parts.fragment or parts.path.strip("/"))
    if parts.scheme not in {"http", "https"} or not parts.hostname or not plain:
        raise InvalidArgumentError(
            f"Invalid allow_origin {text!r}: expected the address at which browsers see the page, without a path,"
            " such as 'https://state.example.com'."
        )
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{name}" + (f":{port}" if port not in (None, default) else "")


def _certificate(cert: str | Path | None, key: str | Path | None) -> tuple[str, str] | None:
    """Return both files, after checking that they can be used."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise InvalidArgumentError("HTTPS needs both files: tls_cert with the certificate and tls_key with its key.")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except OSError as error:  # includes SSLError
        raise InvalidArgumentError(
            f"Cannot use the certificate {cert} with the key {key}: {error}\n"
            "Expected matching PEM files that this user can read."
        ) from error
    return str(cert), str(key)
