"""The calls that need a classic Spark session, and how they get one beside Spark Connect."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from streamstate.errors import SparkConnectError
from streamstate.snapshots.spark.connect import needing_spark, require_spark, uses_connect

_P = ParamSpec("_P")
_R = TypeVar("_R")

FORWARDED: set[str] = set()
"""The marked functions that are loaded, each as ``module:qualified name``."""

CLIENT_QUERIES: set[str] = set()
"""In a worker process, the ids of the queries that run in its client's session."""


def worker_runs() -> bool:
    """Return whether a worker process runs for this one; none is started."""
    client = sys.modules.get("streamstate.snapshots.spark.worker.client")
    return client is not None and client.has_worker()


def classic_spark(*, unless_local: bool = False) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Mark a function that needs a classic Spark session: beside Spark Connect it runs in the worker process.

    The arguments and the result then travel between the processes; progress, output, warnings, errors and interrupts
    do too. Without Spark Connect the function runs here.

    Args:
        unless_local: some of its calls need no Spark. Call it here first, and in the worker process only if it refuses
            Spark Connect, which it does before it changes anything.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        FORWARDED.add(f"{function.__module__}:{function.__qualname__}")

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            __tracebackhide__ = True
            with needing_spark():
                if not unless_local:
                    require_spark()
                beside_connect = uses_connect()
                if not beside_connect:
                    return function(*args, **kwargs)
            if unless_local:
                try:
                    return function(*args, **kwargs)
                except (SparkConnectError, ModuleNotFoundError):
                    pass  # the thin client lacks the modules of classic sessions
            from streamstate.snapshots.spark.worker.client import call_in_worker

            result: _R = call_in_worker(function.__module__, function.__qualname__, args, kwargs)
            return result

        return call

    return decorate
