"""Where versions and contributions are kept while queries run: files, or Redis; tasks on executors reach them too.

A transport is a small store of bytes in named groups. It adds what nothing else decides: that of two who add the same
name, one does. The history that users read is in the store's Delta tables, not here.
"""

from __future__ import annotations

import functools
from typing import Protocol
from urllib.parse import urlsplit

from streamstate.errors import InvalidArgumentError, TransportError
from streamstate.snapshots.filesystem import local_path

BINDINGS = "bindings"
"""The group in which a driver's server answers for a checkpoint: ``12/<path>`` is its offset log of epoch 12,
``committed/<path>`` its newest epoch, ``id/<path>`` the query's id."""


class Transport(Protocol):
    """A store of bytes in groups, which several processes use at once. Every method raises a TransportError."""

    address: str
    """Where it is, without secrets: a folder, or a URL."""

    def add(self, group: str, name: str, data: bytes) -> bool:
        """Add bytes under a name, whole or not at all; False if the name is taken."""

    def put(self, group: str, name: str, data: bytes) -> None:
        """Set the bytes under a name, whole or not at all."""

    def get(self, group: str, name: str) -> bytes | None:
        """The bytes under a name; None if there is none."""

    def names(self, group: str) -> list[str]:
        """The names in a group, in no particular order."""

    def get_all(self, group: str, names: list[str]) -> list[bytes]:
        """The bytes under some names, in their order, without those that are gone."""

    def remove(self, group: str, names: list[str]) -> None:
        """Remove names; those that are gone are fine."""


@functools.lru_cache(maxsize=64)
def transport_at(address: str) -> Transport:
    """The transport at an address: a folder, ``redis://…``, or ``grpc://…`` for one that a driver serves.

    Raises:
        InvalidArgumentError: there is no such transport.
        TransportError: it cannot be reached.
    """
    scheme = urlsplit(address).scheme
    if scheme in ("redis", "rediss", "valkey", "valkeys"):
        from streamstate.variables.transports.redis_server import RedisTransport

        return RedisTransport(address)
    if scheme in ("grpc", "grpc+tcp"):
        from streamstate.variables.transports.flight import FlightTransport

        return FlightTransport(address)
    folder = local_path(address)
    if folder is None:
        raise InvalidArgumentError(
            f"Invalid transport {address!r}.\nExpected a local folder, or a server: redis://host:6379/0. A store in an"
            " object store needs one of them: transport=…."
        )
    from streamstate.variables.transports.files import FilesTransport

    return FilesTransport(folder)


def unreachable(address: str, error: object) -> TransportError:
    """The error for a transport that does not answer."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return TransportError(
        f"The shared variables at {address} cannot be reached: {reason}\n"
        "Nothing was read or written. Start the server, or make the folder reachable, then run the query again."
    )
