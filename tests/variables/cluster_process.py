"""A process with a local cluster of two executors, which share a variable with it: ``FOLDER TEMPORARY``."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.snapshots.checkpoint.bindings import RUN
from streamstate.snapshots.spark.child_settings import spark_settings
from streamstate.variables.transports.driver_key import own_key

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def main(folder: Path, temporary: Path) -> None:
    """Run a query whose tasks read and add on two executors, then look for the driver's key in all that Spark keeps."""
    (folder / "events").mkdir(parents=True)
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(folder / "events")}
    settings |= {"spark.eventLog.compress": "false", "spark.ui.port": "0"}
    builder = SparkSession.builder
    for key, value in (spark_settings(2, temporary, cluster=True) | settings).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    limit = ss.shared(folder / "store", "limit", "double", init=2.0)
    seen = ss.shared(folder / "store", "seen", "counter", access="write-mostly")

    @F.udf("boolean")
    def above(value: int) -> bool:
        seen.add(1)
        return bool(value >= limit.get())

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2).load()
    frame = rows.where(above("value")).groupBy((F.col("value") % 2).alias("k")).count()
    running = ss.start(frame, "q", folder / "store", shared=(limit, seen), trigger="100ms")
    running.wait(1, timeout=400)
    assert seen.get() >= 10, seen.get()
    assert running.query is not None
    texts = kept(spark, running.query)
    running.stop()
    spark.stop()
    texts |= {
        str(path): path.read_bytes().decode(errors="replace")
        for path in (folder / "events").rglob("*")
        if path.is_file()
    }
    assert any(RUN in text for name, text in texts.items() if "events" in name), "the event log has the properties"
    for name, text in texts.items():
        for secret in secrets():
            assert secret not in text, name
    sys.stdout.write("shared\n")


def secrets() -> list[str]:
    """Return the secrets of the driver and its tasks."""
    return [line for line in own_key().private.decode().splitlines() if "PRIVATE" not in line]


def kept(spark: SparkSession, query: StreamingQuery) -> dict[str, str]:
    """Return what Spark keeps and shows of a session and of a query, by its place."""
    execution: Any = query._jsq.streamingQuery().lastExecution()
    context = spark.sparkContext
    found = {
        "settings": json.dumps(context.getConf().getAll()),
        "property": str(context.getLocalProperty(RUN)),
        "plan": str(execution.toString()),
        "plan as JSON": str(execution.analyzed().toJSON()) + str(execution.executedPlan().toJSON()),
    }
    page = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
    for part in ("environment", "jobs", "stages?details=true", "sql?details=true&planDescription=true", "executors"):
        with urllib.request.urlopen(f"{page}/{part}") as answer:
            found[f"page {part}"] = answer.read().decode()
    return found


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
