"""A query over a Delta table, with Delta for Spark in the session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from quick_files import use_quick_files
from spark_settings import SHARED

import streamstate as ss
from versions.queries import aggregated, input_of, recaptured, rows_of, state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JARS = os.environ.get("STREAMSTATE_DELTA_JARS")
"""The jars of Delta for Spark, separated by commas."""

pytestmark = pytest.mark.skipif(JARS is None, reason="STREAMSTATE_DELTA_JARS is not set: scripts/other_sparks.py does.")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with Delta for Spark: these tests run in a process of their own."""
    delta = {
        "spark.jars": JARS,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    session = ss.session(**SHARED | delta)
    use_quick_files(session)
    yield session
    session.stop()


@pytest.mark.versions("a query over a table of Delta for Spark: capture, result, why, fork, step")
def test_a_query_over_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    """Each epoch reads one commit; its state, its input and its steps are those of the batch."""
    table = str(tmp_path / "table")
    for epoch in range(2):
        write_deltalake(table, pa.Table.from_pandas(input_of(epoch)), mode="append")

    def build() -> DataFrame:
        return aggregated(spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(table))

    expected = [
        {
            tuple(row)
            for row in aggregated(spark.read.format("delta").option("versionAsOf", epoch).load(table)).collect()
        }
        for epoch in range(2)
    ]
    running = ss.start(build(), "totals", tmp_path / "store", trigger="available-now", partitions=2)
    running.wait(timeout=300)
    history = running.history
    assert [state(history, epoch) for epoch in range(2)] == expected
    assert rows_of(history.at(1).result().to_pandas()) == expected[1]
    assert history.why(1, k="k1").count() == (input_of(1)["k"] == "k1").sum()
    fork = running.checkpoint.fork(tmp_path / "fork", at=0)
    assert fork.step(build).epoch == 1
    assert recaptured(fork, tmp_path / "again", 1) == expected[1]
