"""A store that cannot be reached for a time: on the local disk, or behind a proxy in front of an object store.

The proxy stops forwarding, in both directions, and goes on later: what a process has sent meanwhile may still arrive,
as behind a real network. It needs no privileges, unlike a network namespace, works on every machine, and cuts one
process off while another on the same machine reaches the store.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from streamstate.errors import InvalidArgumentError

_ENDPOINT = "endpoint"
_CHUNK = 65536


class LocalOutage:
    """The folder of a store on disk is renamed, and a file stands in its place."""

    means = "its folder was renamed, with a file in its place"

    def __init__(self, store: Path) -> None:
        self._store, self._away = store, store.with_name(f"{store.name}.away")

    def begin(self) -> None:
        """Take the store away."""
        self._store.rename(self._away)
        self._store.touch()

    def end(self) -> None:
        """Put it back."""
        if self._away.exists():
            self._store.unlink()
            self._away.rename(self._store)


class Proxy:
    """A TCP proxy in front of a store's server, on this machine."""

    means = "a TCP proxy before its server stopped forwarding"

    def __init__(self, options: Mapping[str, str]) -> None:
        self._upstream = urlsplit(options[_endpoint_name(options)])
        self._open, self._ended = threading.Event(), threading.Event()
        self._open.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.options = {**options, _endpoint_name(options): f"http://127.0.0.1:{self._server.getsockname()[1]}"}
        """The options of the store, through the proxy."""
        threading.Thread(target=self._accept, name="streamstate-drill-proxy", daemon=True).start()

    def begin(self) -> None:
        """Stop forwarding."""
        self._open.clear()

    def end(self) -> None:
        """Go on."""
        self._open.set()

    def close(self) -> None:
        """End the proxy."""
        self._ended.set()
        self._open.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._ended.is_set():
                client, _ = self._server.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._open.wait()
        try:
            server = socket.create_connection((self._upstream.hostname or "", self._upstream.port or 80))
        except OSError:
            client.close()
            return
        threading.Thread(target=self._forward, args=(server, client), daemon=True).start()
        self._forward(client, server)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not self._ended.is_set() and (content := source.recv(_CHUNK)):
                self._open.wait()
                target.sendall(content)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def proxy(options: Mapping[str, str]) -> Iterator[Proxy]:
    """Run a proxy."""
    made = Proxy(options)
    try:
        yield made
    finally:
        made.close()


def check_cuttable(store: str | None, options: Mapping[str, str]) -> None:
    """Refuse a store that no proxy can stand before.

    Raises:
        InvalidArgumentError: it is not an object store, or its server is not reached with ``http://``.
    """
    if store is None or "://" not in store:
        raise InvalidArgumentError(
            "A store on the local disk is not reached over a network, which could be cut.\n"
            "Give store='s3://…' with storage_options, or use kill='store'."
        )
    try:
        reached = options[_endpoint_name(options)].startswith("http://")
    except KeyError:
        reached = False
    if not reached:
        raise InvalidArgumentError(
            f"{store} cannot be cut off: that needs a server whose address is http://….\n"
            "Give it as storage_options, such as AWS_ENDPOINT_URL='http://localhost:9000' with AWS_ALLOW_HTTP='true'. "
            "With https, the proxy that cuts the network would have to know the server's certificate."
        )


def _endpoint_name(options: Mapping[str, str]) -> str:
    """Return the name of the option with the server's address.

    Raises:
        KeyError: there is none.
    """
    for name in options:
        if _ENDPOINT in name.lower():
            return name
    raise KeyError(_ENDPOINT)
