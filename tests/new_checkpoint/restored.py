"""Compare a checkpoint that was made from rows with the one whose state the rows are."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from operators.running import Query, Run, with_settings
from pyspark.sql import SparkSession

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.operator_metadata import recorded_stores
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences
from streamstate.snapshots.spark.state_reader import StateReader


def stored(spark: SparkSession, checkpoint: str | PathLike[str], epoch: int) -> dict[str, list[Any]]:
    """Every row of every state store, as bytes, with its column family and its partition."""
    opened = CheckpointFiles(checkpoint, spark)
    session = StateReader(spark, opened).session(epoch)
    found = {}
    for store in recorded_stores(opened, epoch):
        options = {"operatorId": str(store.operator), "storeName": store.name, "batchId": str(epoch)}
        rows = session.read.format("statestore").options(**options, _readAllColumnFamilies="true").load(opened.path)
        place = "spark_partition_id() AS partition"
        chosen = rows.selectExpr("column_family_name", "key_bytes", "value_bytes", place).collect()
        found[f"{store.operator} {store.name}"] = sorted(
            (row[0] or "", bytes(row[1]), bytes(row[2]), row[3]) for row in chosen
        )
    return found


def gone_on(run: Run, query: Query, checkpoint: PathLike[str], *settings: Mapping[str, str]) -> int:
    """Run the query from a checkpoint over the rest of the input; returns its newest epoch."""
    session = with_settings(run.spark, query.conf, *settings)
    writer = query.build(run.inputs.stream(session)).writeStream.format("noop").outputMode(query.mode)
    writer.option("checkpointLocation", fspath(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return CheckpointFiles(checkpoint, run.spark).committed()[-1]


def check_goes_on(run: Run, query: Query, checkpoint: PathLike[str], *settings: Mapping[str, str]) -> None:
    """After the rest of the input, the state is that of the run that the checkpoint continues."""
    newest = gone_on(run, query, checkpoint, *settings)
    original = StateAt(str(run.checkpoint), newest)
    assert not state_differences(run.spark, original, StateAt(fspath(checkpoint), newest))
