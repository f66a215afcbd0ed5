"""A query can start from the rows of an epoch in the store."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import spark_rows
from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import streamstate as ss
from streamstate.errors import EpochGoneError
from streamstate.reports import Store

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Counts(StatefulProcessor):
    """Counts the rows of each key, starting from an initial count."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the count."""
        self.n = handle.getValueState("n", "n long")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Set the initial count."""
        self.n.update((initialState["count"],))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Add the number of rows."""
        state = self.n.get()
        count = (state[0] if state else 0) + len(list(rows))
        self.n.update((count,))
        yield Row(k=key[0], n=count)

    def close(self) -> None:
        """Nothing to close."""


def test_a_query_continues_from_a_snapshot(
    spark: SparkSession, counted: tuple[Path, Path], store: Store, tmp_path: Path
) -> None:
    """Started from a snapshot and given the later input, it has the counts of the query that never stopped."""
    later = tmp_path / "later"
    later.mkdir()
    for number in (3, 4):
        shutil.copy(counted[0].parent / f"input/{number:05}.parquet", later)
    rows = store.sql("SELECT k, count FROM counts VERSION AS OF 2", engine="spark", spark=spark)
    initial = rows.to_spark().groupBy("k")
    stream = spark.readStream.schema("k string, v long").parquet(str(later)).groupBy("k")
    counts = stream.transformWithState(Counts(), "k string, n long", "update", "none", initialState=initial)
    writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    actual = {row[0]: row[1] for row in map(json.loads, spark_rows(spark, tmp_path / "c", "op0_n", 0))}
    live = store["counts"].live().table().to_pandas()
    assert actual == dict(zip(live["k"], live["count"], strict=True))


def test_the_error_for_a_missing_epoch_suggests_to_restore_it(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """The store may have captured an epoch that the checkpoint does not hold."""
    with pytest.raises(EpochGoneError, match=r"Snapshot\.restore"):
        ss.Checkpoint(counted[0]).fork(tmp_path / "fork", at=77)
