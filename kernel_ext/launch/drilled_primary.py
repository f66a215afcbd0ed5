"""The owner of a query that is drilled: ``python -m streamstate.launch.drilled_primary TASK EVENTS``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from streamstate.operations.drill.drilled_process import main
from streamstate.operations.drill.task import Task

_POLL_SECONDS = 0.05


def run(task: Task, say: Callable[..., None]) -> None:
    """Start the query as anybody would, and report until it ends, or is to be stopped."""
    import streamstate as ss
    from streamstate.launch.query_status import status_line
    from streamstate.operations.drill.drilled_query import DrilledQuery
    from streamstate.snapshots.spark.session import session

    assert task.store is not None
    assert task.drilled is not None
    say("began")
    session(**task.settings)
    say("spark")
    query = DrilledQuery(**task.drilled)
    running = ss.start(
        query.build(),
        "drilled",
        task.store,
        checkpoint=task.checkpoint,
        mode=task.mode,
        sink=query.write,
        storage_options=task.storage_options,
        lease=task.lease,
    )
    say("started")
    stop, noticed = Path(task.checkpoint).parent / "stop", False
    while running.state == "running" and not stop.exists():
        status = running.status()
        if status.error and not noticed and running.state == "running":
            say("noticed", status=status_line(status))
            noticed = True
        time.sleep(_POLL_SECONDS)
    if not stop.exists():
        say("ended", state=running.state, error=running.status().error)
    running.stop()
    say("stopped")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:], run=run))
