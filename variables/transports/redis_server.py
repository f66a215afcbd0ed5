"""Redis or Valkey as the transport: a group is a hash, in which HSETNX adds a field only once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from streamstate.errors import InvalidArgumentError, require_extra
from streamstate.variables.transports.transport import unreachable

PASSWORD = "STREAMSTATE_REDIS_PASSWORD"  # noqa: S105 (the name of a variable)
"""The environment variable with the server's password, on the driver and on executors."""
_TIMEOUT = 5


class RedisTransport:
    """A Redis or Valkey server.

    Args:
        address: ``redis://host:6379/0``, without a password, because checkpoints hold the address; ``#prefix`` at its
            end keeps several stores apart.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.password:
            raise InvalidArgumentError(
                f"The address of {parts.hostname} has a password, and checkpoints would hold it.\n"
                f"Leave it out, and set the environment variable {PASSWORD}."
            )
        require_extra("variables")
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self.address = address
        self._prefix = f"streamstate:{parts.fragment}:" if parts.fragment else "streamstate:"
        url = address.partition("#")[0].replace("valkey", "redis", 1)
        self._errors: Any = (redis.RedisError, OSError)
        # No call is repeated: a name that was added by a call whose answer got lost would count as taken.
        self._server: Any = redis.Redis.from_url(
            url,
            password=os.environ.get(PASSWORD),
            socket_timeout=_TIMEOUT,
            socket_connect_timeout=_TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        )

    @contextmanager
    def _reached(self) -> Iterator[Any]:
        try:
            yield self._server
        except self._errors as error:
            raise unreachable(self.address, error) from error

    def add(self, group: str, name: str, data: bytes) -> bool:
        """Add a field; False if there is one of the name."""
        with self._reached() as server:
            return bool(server.hsetnx(self._prefix + group, name, data))

    def put(self, group: str, name: str, data: bytes) -> None:
        """Set a field."""
        with self._reached() as server:
            server.hset(self._prefix + group, name, data)

    def get(self, group: str, name: str) -> bytes | None:
        """A field's bytes."""
        with self._reached() as server:
            found: bytes | None = server.hget(self._prefix + group, name)
            return found

    def get_all(self, group: str, names: list[str]) -> list[bytes]:
        """The bytes of some fields."""
        if not names:
            return []
        with self._reached() as server:
            return [data for data in server.hmget(self._prefix + group, names) if data is not None]

    def names(self, group: str) -> list[str]:
        """The fields of a group."""
        with self._reached() as server:
            return [name.decode() for name in server.hkeys(self._prefix + group)]

    def remove(self, group: str, names: list[str]) -> None:
        """Remove fields."""
        if names:
            with self._reached() as server:
                server.hdel(self._prefix + group, *names)
