"""Redis or Valkey as the transport: a group is a hash, in which HSETNX adds a field only once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from streamstate.errors import InvalidArgumentError, require_extra
from streamstate.variables.transports.transport import unreachable

PASSWORD, SERVER = "STREAMSTATE_REDIS_PASSWORD", "STREAMSTATE_REDIS_SERVER"
"""The environment variables with a password and the server that it is for, such as ``rediss://cache.example.org:6379``;
on the driver and on executors. Stores name servers too, and whoever wrote a store must not be sent the password."""
_TIMEOUT = 5
_PORT = 6379
_PLAIN, _TLS = ("redis", "valkey"), ("rediss", "valkeys")


class RedisTransport:
    """A Redis or Valkey server.

    Args:
        address: ``redis://host:6379/0``, or ``rediss://…`` for TLS, without a password, because checkpoints hold the
            address; ``#prefix`` at its end keeps several stores apart.
    """

    def __init__(self, address: str) -> None:
        place, user, database, prefix = _parsed(address)
        require_extra("variables")
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self.address = address
        self._prefix = f"streamstate:{prefix}:" if prefix else "streamstate:"
        self._errors: Any = (redis.RedisError, OSError)
        secure, host, port = place
        # No call is repeated: a name that was added by a call whose answer got lost would count as taken.
        self._server: Any = redis.Redis(
            host=host,
            port=port,
            db=database,
            username=user,
            password=_password_for(place),
            ssl=secure,
            ssl_cert_reqs="required",
            ssl_check_hostname=True,
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
        """Return a field's bytes."""
        with self._reached() as server:
            found: bytes | None = server.hget(self._prefix + group, name)
            return found

    def get_all(self, group: str, names: list[str]) -> list[bytes]:
        """Return the bytes of some fields."""
        if not names:
            return []
        with self._reached() as server:
            return [data for data in server.hmget(self._prefix + group, names) if data is not None]

    def names(self, group: str) -> list[str]:
        """Return the fields of a group."""
        with self._reached() as server:
            return [name.decode(errors="replace") for name in server.hkeys(self._prefix + group)]

    def remove(self, group: str, names: list[str]) -> None:
        """Remove fields."""
        if names:
            with self._reached() as server:
                server.hdel(self._prefix + group, *names)


Place = tuple[bool, str, int]
"""A server: whether by TLS, its host in lower case, its port."""


def _parsed(address: str) -> tuple[Place, str | None, int, str]:
    """Return the server of an address, the user, the number of the database, and the prefix."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port or _PORT
    except ValueError:
        raise _invalid(address.partition("@")[2] or address) from None
    if parts.password:
        raise InvalidArgumentError(
            f"The address of {host} has a password, and checkpoints would hold it.\n"
            f"Leave it out, and set the environment variables {PASSWORD} and {SERVER}."
        )
    database = parts.path.strip("/") or "0"
    if parts.query or not host or not re.fullmatch(r"[0-9]{1,5}", database):
        raise _invalid(f"{parts.scheme}://{host}")
    return (parts.scheme in _TLS, host, port), parts.username, int(database), parts.fragment


def _invalid(shown: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Invalid address of a Redis server: {shown}…\n"
        "Expected redis://host:6379/0, or rediss://host:6379/0 for TLS, without a query (?…)."
    )


def _password_for(place: Place) -> str | None:
    """Return the password, if the user has named this server for it."""
    password, named = os.environ.get(PASSWORD), os.environ.get(SERVER)
    if password is None:
        return None
    if not named:
        raise InvalidArgumentError(
            f"{PASSWORD} is set without its server.\n"
            f"Name it: {SERVER}={_spelled(place)}, on the driver and on the executors."
        )
    return password if _parsed(named)[0] == place else None


def _spelled(place: Place) -> str:
    secure, host, port = place
    return f"{(_TLS if secure else _PLAIN)[0]}://{host}:{port}"
