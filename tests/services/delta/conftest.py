"""Tables of Delta for Spark, and queries over them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="session")
def service_settings() -> dict[str, str]:
    """Settings of Delta for Spark; VACUUM may delete files that were replaced just now."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # VACUUM lists a table with so many tasks: by default ten thousand.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }


@dataclass(frozen=True)
class Table:
    """A Delta table with a key and a number in each row."""

    spark: SparkSession
    path: str

    def append(self, first: int, last: int, files: int = 1) -> None:
        """Append numbers up to another, in some files of one commit."""
        numbers = self.spark.range(first, last, 1, files).selectExpr("concat('k', id % 3) AS k", "id AS v")
        numbers.write.format("delta").mode("append").save(self.path)

    def sql(self, statement: str) -> None:
        """Run a statement with the table for ``{}``."""
        self.spark.sql(statement.format(f"delta.`{self.path}`")).collect()

    def vacuum(self) -> None:
        """Delete the files that are not in the table any more."""
        self.sql("VACUUM {} RETAIN 0 HOURS")

    def totals(self, **options: str | int) -> DataFrame:
        """Totals by key, of the table as a stream."""
        files = self.spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
        rows = files.options(**options).load(self.path)
        return rows.groupBy("k").agg({"v": "sum", "*": "count"})

    def files(self, version: int) -> list[set[int]]:
        """The numbers in each file that a commit added, in the order of the log."""
        log = Path(self.path, "_delta_log", f"{version:020}.json").read_text()
        added = [json.loads(line)["add"]["path"] for line in log.splitlines() if '"add"' in line]
        read = self.spark.read.format("parquet")
        return [{row.v for row in read.load(f"{self.path}/{path}").collect()} for path in added]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """A table without rows yet."""
    return Table(spark, str(tmp_path / "table"))


@pytest.fixture
def new_table(spark: SparkSession, tmp_path: Path) -> Callable[[str], Table]:
    """A table by its name, empty until it is written to."""
    return lambda name: Table(spark, str(tmp_path / name))
