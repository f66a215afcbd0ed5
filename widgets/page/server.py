"""Serving a store: a Panel app on a thread of its own."""

from __future__ import annotations

import logging
import secrets
import threading
import webbrowser
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError, StoreError
from streamstate.state_inspect import Store, open_store

if TYPE_CHECKING:
    from types import TracebackType

    from tornado.ioloop import IOLoop

logging.getLogger("bokeh.server.views.ws").addFilter(
    lambda record: "connection was closed" not in str(record.msg)  # a tab that was closed is no news to anyone
)

__all__ = ["LOCAL", "Server", "serve"]

LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
"""Addresses that only this machine can reach."""
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 (what a person may ask for)
_LIFETIME, _LOOK = 4_000, 1_000
"""Milliseconds for which a tab that is gone is kept, should it only have lost its connection, and between two looks."""
_WORKERS = 4


class Server:
    """A store that is being served; :func:`serve` gives it. As a context manager it stops at the end of the block.

    Attributes:
        url: where to look, with the token.
        port: the port.
    """

    def __init__(self, store: Store, host: str, port: int, token: str | None) -> None:
        self._store = store
        self._token = token
        self._host = host
        self._work = ThreadPoolExecutor(_WORKERS, "streamstate-page")
        self._loop: IOLoop | None = None
        self._viewers: set[Any] = set()
        started: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(port, started), name="streamstate-server", daemon=True)
        self._thread.start()
        try:
            self.port = started.result()
        except OSError as error:
            self._work.shutdown()
            raise StoreError(f"{host}:{port} cannot be served: {error}\nChoose another port, or 0 for any.") from error
        shown = "127.0.0.1" if host in _EVERYWHERE else f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}/" + (f"?token={token}" if token else "")

    @property
    def viewers(self) -> int:
        """Tabs that look now."""
        return len(self._viewers)

    def stop(self) -> None:
        """Stop serving; pages that are open stay as they are. Idempotent."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.add_callback(loop.stop)
        self._thread.join()
        self._work.shutdown()

    def wait(self) -> None:
        """Wait until it is stopped, from another thread or by a signal that raises."""
        while self._thread.is_alive():
            self._thread.join(0.5)  # so that a signal is handled

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Server of {self._store.path} at {self.url}>"

    def _run(self, port: int, started: Future[int]) -> None:
        """The thread: its loop serves until it is told to stop."""
        from tornado.ioloop import IOLoop

        loop = IOLoop(make_current=False)
        try:
            server = self._server(loop, port)
        except Exception as error:  # noqa: BLE001 (raised again by whoever waits for the start)
            loop.close(all_fds=True)
            started.set_exception(error)
            return
        self._loop = loop
        server.start()
        loop.add_callback(started.set_result, server.port)
        loop.start()
        server.stop(wait=False)
        for viewer in tuple(self._viewers):
            viewer.close()
        loop.close(all_fds=True)

    def _server(self, loop: IOLoop, port: int) -> Any:
        from panel.io.server import get_server
        from panel.io.state import state

        from streamstate.widgets.page.guard import rules

        name = secrets.token_hex(8)
        server = get_server(
            {"/": self._app()},
            port=port,
            address=self._host,
            loop=loop,
            title="streamstate",
            location=False,
            unused_session_lifetime_milliseconds=_LIFETIME,
            check_unused_sessions_milliseconds=_LOOK,
            server_id=name,
            use_index=False,
        )
        state._servers.pop(name, None)  # noqa: SLF001 (Panel would keep it and stop it a second time)
        server._tornado.websocket_origins.add("*")  # noqa: SLF001 (the guard compares origin and host itself)
        hosts = LOCAL if self._host in LOCAL else None
        server._tornado.default_router.rules[:0] = rules(self._token, hosts)  # noqa: SLF001 (Bokeh shows it nowhere else)
        return server

    def _app(self) -> Any:
        from streamstate.widgets.page.app import app

        return app(self._store, self._work, self._viewers)


def serve(
    store: Store | str | Path,
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    token: str | None = None,
    open_browser: bool = False,
) -> Server:
    """Show a store as a page in the browser: read-only, for several viewers at once, without Spark.

    Args:
        store: an open store, or where one is.
        port: the port; 0 takes one that is free.
        host: the address to serve at; the default is reached from this machine only.
        token: what viewers must know; left out, one is made up; empty, none is needed, which only this machine may.
        open_browser: open a browser at the page.

    Raises:
        NotAStoreError: there is no store.
        StoreError: the port is taken.
        InvalidArgumentError: no token is to be needed at an address that other machines reach.

    Example:
        >>> with serve("store") as server:  # doctest: +SKIP
        ...     print(server.url)
        http://127.0.0.1:43211/?token=…
    """
    if token == "" and host not in LOCAL:
        raise InvalidArgumentError(
            f"Without a token, everyone who reaches {host} could read the state.\n"
            "Serve at 127.0.0.1, or leave the token as it is."
        )
    opened = store if isinstance(store, Store) else open_store(store)
    server = Server(opened, host, port, secrets.token_urlsafe(24) if token is None else token or None)
    if open_browser:
        webbrowser.open(server.url)
    return server
