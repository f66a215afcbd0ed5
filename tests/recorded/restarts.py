"""Record the checkpoints that tests damage, with the installed Spark: ``PYTHONPATH=tests python -m recorded.restarts``.

Each is of a query of six epochs (``long``: twelve), which goes on with the file :data:`NEXT` of its input.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from input_files import in_turn
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from spark_settings import SHARED

import streamstate as ss
from recorded.make import ROOT, archived, report
from recorded.unpacked import unpacked

RESTARTS = "restarts"
STORE = "spark.sql.streaming.stateStore"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
_ROCKSDB = {f"{STORE}.providerClass": f"{_PACKAGE}.RocksDBStateStoreProvider"}
_CHANGELOG = f"{STORE}.rocksdb.changelogCheckpointing.enabled"
_FORMAT = f"{STORE}.checkpointFormatVersion"
PROVIDERS: Mapping[str, Mapping[str, str]] = {
    "HDFS": {f"{STORE}.providerClass": f"{_PACKAGE}.HDFSBackedStateStoreProvider", _FORMAT: "1"},
    "RocksDB": {**_ROCKSDB, _CHANGELOG: "false", _FORMAT: "1"},
    "changelog-1": {**_ROCKSDB, _CHANGELOG: "true", _FORMAT: "1"},
    "changelog-2": {**_ROCKSDB, _CHANGELOG: "true", _FORMAT: "2"},
}
"""Settings of the state store: changelogs in checkpoint format 1 or 2."""

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # for Python workers


@dataclass(frozen=True)
class Restarted:
    """A query whose checkpoint is recorded."""

    build: Callable[[DataFrame], DataFrame]
    mode: str = "update"
    epochs: int = 6
    snapshot: bool = False
    """Whether each store has a snapshot of version 4."""


def _sums(rows: DataFrame) -> DataFrame:
    return rows.groupBy("id").agg(F.sum("v").alias("total"))


def _joined(rows: DataFrame) -> DataFrame:
    return rows.join(rows.select(F.col("id").alias("other"), F.col("v").alias("w")), F.expr("id = other AND v = w"))


class Total(StatefulProcessor):
    """Counts the rows of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the variable."""
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Count the rows."""
        import pandas as pd

        before = self.total.get()
        count = sum(len(frame) for frame in rows) + (before[0] if before else 0)
        self.total.update((count,))
        yield pd.DataFrame({"id": [key[0]], "n": [count]})

    def close(self) -> None:
        """Nothing to close."""


QUERIES: Mapping[str, Restarted] = {
    "plain": Restarted(_sums),
    "snapshot": Restarted(_sums, snapshot=True),
    "long": Restarted(_sums, epochs=12),
    "single": Restarted(lambda rows: rows.agg(F.sum("v").alias("total"))),
    "join": Restarted(_joined, mode="append"),
    "stateless": Restarted(lambda rows: rows.where("v > 3"), mode="append"),
    "processor": Restarted(
        lambda rows: rows.groupBy("id").transformWithStateInPandas(Total(), "id string, n long", "Update", "None")
    ),
}
CHECKPOINTS = (
    *(f"{provider}/plain" for provider in PROVIDERS),
    *(f"{provider}/snapshot" for provider in ("HDFS", "changelog-1", "changelog-2")),
    *("HDFS/long", "HDFS/single", "HDFS/stateless", "changelog-2/join", "changelog-2/processor"),
)
"""The recorded checkpoints: a provider, and a query."""
NEXT = max(query.epochs for query in QUERIES.values())
"""The number of the input file that a query goes on with."""


def query_of(checkpoint: str) -> Restarted:
    """The query of a recorded checkpoint."""
    return QUERIES[checkpoint.rpartition("/")[2]]


def rows(epoch: int) -> list[dict[str, Any]]:
    """The input of one epoch."""
    return [{"id": f"k{(row + epoch) % 5}", "v": 10 * epoch + row} for row in range(8)]


def add_input(folder: Path, epoch: int) -> None:
    """Write the input of one epoch."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{epoch:05}.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(epoch)), encoding="utf-8")
    in_turn(file, epoch)


def configured(spark: SparkSession, checkpoint: str) -> SparkSession:
    """A session of its own with the state store of a recorded checkpoint."""
    session = spark.newSession()
    for name, value in PROVIDERS[checkpoint.partition("/")[0]].items():
        session.conf.set(name, value)
    return session


def run(spark: SparkSession, checkpoint: str, folder: Path, at: Path, *, trigger: Mapping[str, Any]) -> Any:
    """Start the query of a recorded checkpoint, over the input in a folder."""
    query = query_of(checkpoint)
    reader = spark.readStream.schema("id string, v long").option("maxFilesPerTrigger", 1)
    writer = query.build(reader.json(str(folder))).writeStream.format("noop").outputMode(query.mode)
    return writer.option("checkpointLocation", str(at)).trigger(**trigger).start()


def record(spark: SparkSession, folder: Path) -> None:
    """Run every query; those with snapshots slowly enough for Spark's maintenance, which writes them."""
    for checkpoint in CHECKPOINTS:
        spark = configured(spark, checkpoint)
        query, at = query_of(checkpoint), folder / checkpoint
        source = folder / "input" / str(query.epochs)
        for epoch in range(query.epochs):
            add_input(source, epoch)
        spark.conf.set(
            f"{STORE}.minDeltasForSnapshot", ("3" if "HDFS" in checkpoint else "4") if query.snapshot else "99"
        )
        trigger = {"processingTime": "2 seconds"} if query.snapshot else {"availableNow": True}
        running = run(spark, checkpoint, source, at, trigger=trigger)
        while query.snapshot and not (at / "commits" / str(query.epochs - 1)).exists():
            time.sleep(0.1)
        if query.snapshot:
            running.stop()
        else:
            running.awaitTermination()
        for leftover in at.rglob("*.tmp*"):
            leftover.unlink()


def restarts(folder: Path) -> Path:
    """Unpack the recorded checkpoints; the full paths in the metadata of the processor lead to the unpacked files."""
    recorded = unpacked(RESTARTS, folder)
    for metadata in recorded.glob("*/*/state/0/_metadata/v2/[0-9]*"):
        text = metadata.read_text(encoding="utf-8")
        metadata.write_text(text.replace(f"{ROOT}/{RESTARTS}", str(recorded)), encoding="utf-8")
        metadata.with_name(f".{metadata.name}.crc").unlink(missing_ok=True)
    return recorded


def main() -> None:
    """Record with the settings of the tests' session."""
    folder = Path(ROOT) / RESTARTS
    shutil.rmtree(folder, ignore_errors=True)
    spark = ss.session(**SHARED, **{f"{STORE}.maintenanceInterval": "300ms"})
    record(spark, folder)
    spark.stop()
    report(archived(RESTARTS, folder))


if __name__ == "__main__":
    main()
