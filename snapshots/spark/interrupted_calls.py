"""An interrupt ends the call into the JVM that it strikes, and nothing else.

py4j 0.10.9.9 reacts to an interrupt by closing every connection to the JVM's port, on both sides, which is all of them
(https://github.com/py4j/py4j/pull/538). The next call may then fail with "Answer from Java side is empty", so may a
capture that runs beside it, and py4j logs the traceback into the cell. And if another exception cuts a call short, its
answer is taken for the answer to the next call.

No class of py4j is changed. The client of a single gateway gets a subclass that closes the interrupted connection only:
the client of a session that :func:`streamstate.session` starts, or that a magic or a step is waiting for.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any


class _Interrupted(BaseException):
    """A KeyboardInterrupt on its way through py4j, which would otherwise handle it."""


def spare_other_calls() -> None:
    """Make an interrupted call of this process's Spark close only its own connection; the next call opens another.

    What the call started in the JVM goes on there; stopping it is up to the caller. If Spark does not run, or uses
    py4j's other threading model, nothing happens.
    """
    if sys.modules.get("pyspark") is None:
        return
    from py4j.clientserver import JavaClient
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 (there is no public way)
    client = getattr(gateway, "_gateway_client", None)
    if type(client) is JavaClient:
        client.__class__ = _client_class()


@cache
def _client_class() -> Any:
    from py4j.clientserver import ClientServerConnection, JavaClient

    class Connection(ClientServerConnection):  # type: ignore[misc]  # py4j has no annotations
        """Closes itself when anything but an ordinary exception cuts a call short."""

        def send_command(self, command: str) -> Any:
            try:
                return super().send_command(command)
            except Exception:  # py4j handles its own
                raise
            except KeyboardInterrupt:
                self.close()
                raise _Interrupted from None
            except BaseException:
                self.close()
                raise

    class Client(JavaClient):  # type: ignore[misc]
        """Uses such connections, also in place of those that threads opened before."""

        def _get_connection(self) -> Any:
            connection = super()._get_connection()
            if type(connection) is ClientServerConnection:
                connection.__class__ = Connection
            return connection

        def send_command(self, *arguments: Any, **options: Any) -> Any:
            try:
                return super().send_command(*arguments, **options)
            except _Interrupted:
                raise KeyboardInterrupt from None

    return Client
