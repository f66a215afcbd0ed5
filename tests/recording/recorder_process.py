"""A process that records numbers until it is killed: ``python -m recording.recorder_process FOLDER [POINT] [EPOCH]``.

With a point, it kills itself and its JVM at that point of an epoch of the recorder.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from spark_settings import SHARED

import streamstate as ss
from streamstate.snapshots.capture.recording.recording import Recording
from streamstate.snapshots.store.delta import commits

ROWS = 20
"""Rows of each epoch."""
POINTS = {
    "rows are written": (Recording, "_written"),
    "rows are committed": (commits, "_sync_and_seal"),
    "batch is recorded": (Recording, "append"),
}
"""After which call the process kills itself."""


def killing(call: Callable[..., Any], after: int) -> Callable[..., Any]:
    """A call after whose ``after``-th time everything is killed."""
    calls = 0

    def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        found = call(*arguments, **named)
        calls += 1
        if calls > after:
            os.killpg(0, signal.SIGKILL)
        return found

    return wrapped


def main(folder: str, point: str = "", after: str = "0") -> NoReturn:
    """Record until it is killed."""
    if point:
        owner, name = POINTS[point]
        setattr(owner, name, killing(getattr(owner, name), int(after)))
    spark = ss.session(**SHARED)
    frame = ss.record(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load(), folder)
    assert frame.recorder.query is not None
    frame.recorder.query.awaitTermination()
    raise SystemExit(frame.recorder.error)


if __name__ == "__main__":
    main(*sys.argv[1:])
