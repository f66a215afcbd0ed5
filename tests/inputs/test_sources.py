"""Sources other than files are asked again for what they delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

import streamstate as ss
from streamstate.errors import NotReplayableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SOURCES = {
    "rate-micro-batch": {"rowsPerBatch": "50"},
    "rate": {"rowsPerSecond": "50"},
    "numbers": {},
}


def with_numbers(spark: SparkSession) -> None:
    """Register a source that is written in Python, ``numbers``."""

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": 0}

        def read(self, start: dict[str, int]) -> Any:
            return self.readBetweenOffsets(start, end := {"at": start["at"] + 10}), end

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:  # noqa: N802
            return iter([(value,) for value in range(start["at"], end["at"])])

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers"

        def schema(self) -> str:
            return "value long"

        def simpleStreamReader(self, schema: StructType) -> Reader:  # noqa: N802
            return Reader()

    spark.dataSource.register(Numbers)


def counted(rows: DataFrame) -> DataFrame:
    """Counts by the remainder of a number."""
    return rows.groupBy((F.col("value") % 5).alias("k")).agg(F.count("*").alias("n"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SOURCES)
def test_every_epoch_is_asked_for_again(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """As many rows as Spark's progress says, and those of the key."""
    with_numbers(spark)
    running = ss.start(counted(spark.readStream.format(name).options(**SOURCES[name]).load()), "q", tmp_path / "store")
    running.wait(epoch=2, timeout=300)
    running.stop()
    assert running.query is not None
    said = {int(one["batchId"]): int(one["numInputRows"]) for one in running.query.recentProgress}
    history = ss.open_store(tmp_path / "store")["q"]
    for epoch in range(3):
        assert history.inputs(epoch).count() == said[epoch]
        why = history.why(epoch, k=3)
        assert sorted(row for row in why.rows["value"] if row % 5 == 3) == sorted(why.rows["value"])
        assert why.count() == history.inputs(epoch).where("value % 5 = 3").count()


def test_what_is_not_kept_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """A query over a socket says so; it needs no socket to be described."""
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    running = ss.start(counted(numbers), "q", tmp_path / "store")
    running.wait(epoch=0, timeout=300)
    running.stop()

    def build_query() -> DataFrame:
        lines = spark.readStream.format("socket").option("host", "localhost").option("port", "9").load()
        return counted(lines.select(F.col("value").cast("long")))

    ss.open_store(tmp_path / "store")["q"].describe(build_query)
    with pytest.raises(NotReplayableError, match="a socket, which does not keep its input"):
        ss.open_store(tmp_path / "store")["q"].inputs(0)
