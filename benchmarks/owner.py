"""The process that owns a query: ``python -m benchmarks.owner FOLDER LEASE [handover]``; no standby if LEASE is 0."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import streamstate as ss
from benchmarks.recovering import count_by_key

UPLOADED_EVERY = 5
"""Seconds between two uploads of the state."""
_STEADY = 12
"""Epochs before a handover, so that the usual time between two commits is known."""


def main(folder: str, lease: float, then: str = "") -> None:
    """Run the query until the process is killed, or hand it over."""
    place = Path(folder)
    # As in a query that has run for a while, there is a snapshot of the state; the default interval is a minute.
    upload = {"spark.sql.streaming.stateStore.maintenanceInterval": f"{UPLOADED_EVERY}s"}
    ss.session(**{"spark.sql.shuffle.partitions": "2"}, **upload)
    build = partial(count_by_key, place)
    running = ss.start(build(), "counts", place / "store", checkpoint=place / "checkpoint", trigger="200ms")
    if then == "handover":
        running.wait(epoch=_STEADY)
        report = running.hand_over(build, lease=lease)
        (place / "standby").write_text(str(report.owner.process.pid))
        print(report, flush=True)  # into the log
        (place / "handed").write_text(f"{report.epoch} {report.usual}")
        return
    if lease:
        standby = running.standby(build, lease=lease)
        (place / "standby").write_text(str(standby.process.pid))
        while standby.status().epoch is None:
            time.sleep(0.1)
        (place / "ready").touch()
    while running.state == "running":
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
