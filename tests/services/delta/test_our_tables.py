"""The store's tables as Delta for Spark reads them: at a version, and as a stream."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from deltalake import DeltaTable

from services.delta.conftest import Table
from services.delta.test_inputs import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REBUILT = """
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY k ORDER BY _epoch DESC) AS _newest
        FROM log WHERE _change <> 'keyframe' AND _epoch <= {epoch}
    ) AS versions
    WHERE _newest = 1 AND _change <> 'delete'
"""
"""The SQL of the README, for a log without keyframes."""

Rows: TypeAlias = "Counter[tuple[object, ...]]"


def counted(rows: DataFrame) -> Rows:
    """The rows, as often as they are there."""
    return Counter(map(tuple, rows.collect()))


def streamed(table: Table, log: Path, folder: Path) -> Rows:
    """The rows that a stream over a changelog delivers since it last ran."""
    found: Rows = Counter()

    def collect(rows: DataFrame, _epoch: int) -> None:
        found.update(counted(rows))

    changes = table.spark.readStream.format("delta").load(str(log)).where("_change <> 'keyframe'")
    writer = changes.writeStream.foreachBatch(collect).option("checkpointLocation", str(folder))
    writer.trigger(availableNow=True).start().awaitTermination()
    return found


def test_a_changelog(table: Table, tmp_path: Path) -> None:
    """Each version has the rows of its commits, the SQL of the README rebuilds an epoch, and a stream goes on."""
    log, reader = tmp_path / "store" / "totals" / "op0", tmp_path / "reader"
    table.append(0, 6, files=2)
    history = run(table, tmp_path).history
    spark = table.spark
    for version in range(DeltaTable(log).version() + 1):
        ours = DeltaTable(log, version=version).to_pyarrow_table()
        theirs = spark.read.format("delta").option("versionAsOf", version).load(str(log))
        assert theirs.count() == len(ours)
    first = streamed(table, log, reader)
    assert {row[0] for row in first} == {0, 1}

    history.compact()
    table.append(6, 12)
    history = run(table, tmp_path).history
    later = streamed(table, log, reader)
    assert {row[0] for row in later} == {2}
    spark.read.format("delta").load(str(log)).createOrReplaceTempView("log")
    assert first + later == counted(spark.table("log").where("_change <> 'keyframe'"))
    for epoch in range(3):
        rebuilt = spark.sql(REBUILT.format(epoch=epoch))
        state = history.at(epoch).table().to_pandas()
        assert counted(rebuilt.select(*state.columns)) == Counter(state.itertuples(index=False, name=None))
