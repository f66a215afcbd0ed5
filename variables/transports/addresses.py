"""From an address to its transport."""

from __future__ import annotations

import functools

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.variables.transports.files import FilesTransport
from streamstate.variables.transports.transport import Transport


@functools.lru_cache(maxsize=64)
def transport_at(address: str) -> Transport:
    """Return the transport at an address: a folder, ``redis://…``, or ``grpc+tls://…`` for one that a driver serves.

    Raises:
        InvalidArgumentError: there is no such transport.
        TransportError: it cannot be reached.
    """
    scheme = address.partition("://")[0]
    if scheme in ("redis", "rediss", "valkey", "valkeys"):
        from streamstate.variables.transports.redis_server import RedisTransport

        return RedisTransport(address)
    if scheme == "grpc+tls":
        from streamstate.variables.transports.flight import FlightTransport

        return FlightTransport(address)
    folder = local_path(address)
    if folder is None:
        raise InvalidArgumentError(
            f"Invalid transport {address!r}.\nExpected a local folder, or a server: redis://host:6379/0. A store in an"
            " object store needs one of them: transport=…."
        )
    return FilesTransport(folder)
