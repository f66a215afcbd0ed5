"""The query that a chain of owners runs, and the process that starts it: ``python chained.py FOLDER LEASE``.

Each result is a file that names its epoch and the process that wrote it. Each process notes the epochs that it has
committed in ``FOLDER/committed``.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import drilled
import psutil
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQueryListener
from spark_settings import PLAIN_FILES

import streamstate as ss

NAME = "counts"
WRITER = f"{os.getpid()}.{psutil.Process().create_time():.2f}"
"""This process; a process id alone is used again after a while."""


class Commits(StreamingQueryListener):
    """Notes the epochs that this process has committed, of the query and not of forks of it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "committed" / WRITER

    def onQueryStarted(self, event: object) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: StreamingQueryListener.QueryProgressEvent) -> None:  # type: ignore[name-defined]
        """Note an epoch, after its commit."""
        progress = event.progress
        if "addBatch" in progress.durationMs and progress.sink.description.startswith("ForeachBatch"):
            with self._file.open("a") as file:
                file.write(f"{progress.batchId}\n")

    def onQueryTerminated(self, event: object) -> None:
        """Nothing to do."""


_listening: list[Commits] = []


def build(folder: Path) -> DataFrame:
    """The query; the process that builds it notes its commits."""
    frame = drilled.counts(folder / "input")
    if not _listening:
        _listening.append(Commits(folder))
        frame.sparkSession.streams.addListener(_listening[0])
    return frame


def write_rows(folder: Path, rows: DataFrame, epoch: int) -> None:
    """Write the results of an epoch."""
    file = folder / "out" / f"{epoch}-{WRITER}-{uuid.uuid4().hex[:8]}.json"
    draft = file.with_suffix(".draft")
    rows.toPandas().sort_values("k").to_json(draft, orient="records")
    draft.rename(file)


def main(given: str, lease: str) -> None:
    """Run the query as its owner, until it ends."""
    folder = Path(given)
    ss.session(**PLAIN_FILES, **{"spark.sql.shuffle.partitions": "2"})
    running = ss.start(
        build(folder),
        NAME,
        folder / "store",
        checkpoint=folder / "checkpoint",
        sink=partial(write_rows, folder),
        trigger="200ms",
        lease=float(lease),
    )
    while running.state == "running":
        time.sleep(0.05)
    running.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
