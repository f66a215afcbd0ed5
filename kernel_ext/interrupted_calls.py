"""What an interrupt does to a call into the JVM: it ends that call, and nothing else.

py4j 0.10.9.9 closes every connection whose other end is the JVM's port, which is all of them, here and in the JVM
(https://github.com/py4j/py4j/pull/538). After an interrupt the next call may be told "Answer from Java side is empty",
a capture that runs beside may fail, and the traceback of it all is logged into the cell. A call that anything else
cuts short leaves its answer to be taken for that of the next call.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

__all__ = ["spare_other_calls"]


class _Interrupted(BaseException):
    """A KeyboardInterrupt on its way through py4j, which would take the matter into its own hands."""


def spare_other_calls() -> None:
    """Let an interrupted call close its own connection alone; the thread's next call opens another.

    What the call started in the JVM goes on there: whoever started it stops it. Without py4j there is nothing to do.
    """
    if "py4j.clientserver" not in sys.modules:
        return
    from py4j.clientserver import ClientServerConnection, JavaClient

    for owner, mended in (ClientServerConnection, _closing_its_own), (JavaClient, _interrupted_plainly):
        if not hasattr(owner.send_command, "__wrapped__"):
            owner.send_command = mended(owner.send_command)


def _closing_its_own(send_command: Any) -> Any:
    @functools.wraps(send_command)
    def send(connection: Any, command: str) -> Any:
        try:
            return send_command(connection, command)
        except Exception:  # py4j's own to handle
            raise
        except KeyboardInterrupt:
            connection.close()
            raise _Interrupted from None
        except BaseException:
            connection.close()
            raise

    return send


def _interrupted_plainly(send_command: Any) -> Any:
    @functools.wraps(send_command)
    def send(client: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return send_command(client, *arguments, **options)
        except _Interrupted:
            raise KeyboardInterrupt from None

    return send
