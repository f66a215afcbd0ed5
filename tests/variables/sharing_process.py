"""A process that runs two queries until it is killed, or they have run enough: ``python -m variables.sharing_process``.

Its environment says what it does: see :class:`variables.sharing.Life`.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operators.running import HDFS
from spark_settings import SHARED

import streamstate as ss
from streamstate.variables import version_pump
from streamstate.variables.query_with_variables import bound_run, with_variables
from streamstate.variables.version_pump import VersionPump
from variables import sharing
from variables.sharing import QUERIES, Life, Variables, frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SETTINGS = {
    **SHARED,
    "spark.master": "local[2,4]",  # a task may fail three times
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    **HDFS,  # whose small states are committed sooner
}


def started(spark: SparkSession, life: Life, query: str) -> tuple[StreamingQuery, VersionPump]:
    """Start a query, and what records its variables."""
    variables, checkpoint = Variables.declared(life), life.checkpoint(query)
    frame = frame_of(spark, life, variables, query, counted=query == "a")
    bound = with_variables(frame, variables.all(), checkpoint)
    writer = bound.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
    with bound_run(bound, checkpoint):
        running = writer.start()
    return running, VersionPump(variables.all(), checkpoint, spark, lambda: running.isActive)


def wait(life: Life, running: list[StreamingQuery]) -> None:
    """Wait until each query has committed as many epochs as it should; raises if one fails."""
    last = [Path(life.checkpoint(query), "commits", str(life.goal - 1)) for query in QUERIES]
    while not all(commit.exists() for commit in last):
        for query in running:
            if not query.isActive:
                query.awaitTermination()
        time.sleep(0.05)


def step(spark: SparkSession, life: Life) -> None:
    """Run three epochs of the first query again, in forks of it."""
    build: Any = partial(frame_of, spark, life, Variables.declared(life), counted=True)
    for number in range(life.steps):
        at = (number + 1) * life.goal // (life.steps + 1) - 3
        fork = ss.Checkpoint(life.checkpoint("a")).fork(f"{life.folder}/fork {at}", at=at)
        fork.step(partial(build, f"fork {at}"), epochs=3)


def main() -> None:
    """Run both queries."""
    sharing.in_driver = True
    version_pump._INTERVAL = 2  # the default keeps a core busy that the queries need
    life = Life.here()
    spark = ss.session(**SETTINGS)
    jvm: Any = spark._jvm
    java = jvm.java.lang.ProcessHandle.current().pid()
    Path(life.folder, "processes").write_text(f"{java} {os.getpid()}", encoding="utf-8")
    running = [started(spark, life, query) for query in QUERIES]
    wait(life, [query for query, _ in running])
    for query, _ in running:
        query.stop()
    for _, pump in running:
        pump.stop()
        if pump.error:
            raise RuntimeError(pump.error)
    step(spark, life)
    spark.stop()


if __name__ == "__main__":
    main()
