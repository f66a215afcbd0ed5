"""Runs what might end the process in a child of it, and returns how that ended."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from streamstate.errors import StreamStateError

_MEMORY = 6 * 2**30
_SECONDS = 60


def survives(run: Callable[[Any], object], inputs: Iterable[Any]) -> str:
    """Run a function on inputs, in groups; the input that ended a child, and how. Empty if none did.

    An error of the library is fine; any other is not.
    """
    given = list(inputs)
    for at in range(0, len(given), 100):
        if group := _ended(run, given[at : at + 100]):
            return next((f"{how}: {one!r:.2000}" for one in given[at : at + 100] if (how := _ended(run, [one]))), group)
    return ""


def _ended(run: Callable[[Any], object], inputs: list[Any]) -> str:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.alarm(_SECONDS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            for one in inputs:
                with suppress(StreamStateError):
                    run(one)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 (it is told to the parent)
            os.write(writer, repr(error).encode()[:500])
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "" if status == 0 else said or f"signal {-status}"
