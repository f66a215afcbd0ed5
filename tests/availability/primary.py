"""The first owner of a query, in a process of its own: ``python primary.py FOLDER LEASE``; it imports little.

It reports to ``FOLDER/events``, and stops the query once ``FOLDER/stop`` exists. Each result is a file that names its
epoch and the process that wrote it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import drilled
from pyspark.sql import DataFrame
from spark_settings import PLAIN_FILES

import streamstate as ss


def write_rows(folder: Path, rows: DataFrame, epoch: int) -> None:
    """Write the results of an epoch."""
    file = folder / "out" / f"{epoch}-{os.getpid()}.json"
    draft = file.with_suffix(".draft")
    rows.toPandas().sort_values("k").to_json(draft, orient="records")
    draft.rename(file)


def main(given: str, lease: str) -> None:
    """Run the query with a standby until it is stopped."""
    folder = Path(given)

    def say(what: str, **facts: Any) -> None:
        with (folder / "events").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, **facts}) + "\n")

    build = partial(drilled.counts, folder / "input")
    ss.session(**PLAIN_FILES, **{"spark.sql.shuffle.partitions": "2"})
    checkpoint = folder / "checkpoint"
    sink = partial(write_rows, folder)
    running = ss.start(build(), "counts", folder / "store", checkpoint=checkpoint, sink=sink, trigger="300ms")
    standby = running.standby(build, lease=float(lease))
    say("standby", pid=standby.process.pid)
    ready = False
    while running.state == "running" and not (folder / "stop").exists():
        status = standby.status()
        if status.state == "ready" and status.epoch is not None and not ready:
            say("ready", epoch=status.epoch)
            ready = True
        if status.state == "failed":
            say("standby failed", error=status.error)
            break
        time.sleep(0.05)
    while running.state == "running" and not (folder / "stop").exists():
        time.sleep(0.05)
    progress = None if running.query is None else running.query.lastProgress
    say("end", state=running.state, error=running.status().error, epoch=progress["batchId"] if progress else None)
    running.stop()
    say("stopped")


if __name__ == "__main__":
    main(*sys.argv[1:])
