"""Only what an epoch's committed attempt wrote is captured."""

from __future__ import annotations

from pathlib import Path

import pytest
from operators.running import FORMAT_1, HDFS, ROCKSDB, Run, rows, with_settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sampling import sampled

FORMATS = {"format 1": FORMAT_1, "format 2": ROCKSDB, "HDFS": HDFS}


def attempt(running: Run, settings: dict[str, str], number: int, fails_at: int | None = None) -> None:
    """Run the query over its input; an epoch may fail once its state is written and before it is committed."""

    def write(batch: DataFrame, epoch: int) -> None:
        batch.write.format("noop").mode("overwrite").save()
        assert epoch != fails_at

    session = with_settings(running.spark, settings)
    # The state has the attempt's number, so that the files of two attempts differ.
    numbered = running.inputs.stream(session).withColumn("attempt", F.lit(number))
    frame = numbered.groupBy("k").agg(F.max("attempt").alias("attempt"), F.count("*").alias("n"))
    writer = frame.writeStream.foreachBatch(write).outputMode("update")
    query = writer.option("checkpointLocation", str(running.checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled(FORMATS, 1))
def test_an_attempt_that_was_not_committed_is_not_captured(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Its files are there while nothing has replaced them; then those of the next attempt are."""
    running = Run(spark, tmp_path)
    for epoch in range(4):
        running.inputs.add(rows(epoch))
    with pytest.raises(Exception, match="AssertionError"):
        attempt(running, FORMATS[name], 1, fails_at=2)
    state = running.checkpoint / "state" / "0"
    written = [path for path in state.glob("*/3*") if path.suffix in {".changelog", ".delta"}]
    assert written
    contents = {path: path.read_bytes() for path in written}
    assert running.capture().epochs == (0, 1)
    assert running.check() == 2
    attempt(running, FORMATS[name], 2)
    report = running.capture()
    assert (report.epochs, report.by_spark) == ((2, 3), {})
    assert running.check() == 4
    # In format 1 one of the attempts has the file: which one depends on the file system, and Spark reads the same.
    if name == "format 2":
        assert {path: path.read_bytes() for path in written} == contents
        assert {row["max"] for row in running.history.at(3).table().to_arrow().to_pylist()} == {1, 2}
