"""The process of the streaming query: ``python -m benchmarks.linear_road FOLDER PAST PARTITIONS STORE``.

It obeys lines on standard input: ``rescale N``, which it answers with the seconds of the stand-still, and ``stop``.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.linear_road.query import answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SETTINGS = {
    "spark.driver.memory": "6g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.sql.streaming.minBatchesToRetain": "100000",
    "spark.sql.streaming.fileSource.log.deletion": "false",
}
_WAIT = 3600.0


def main(folder: Path, past: Path, partitions: int, store: str) -> None:
    """Run the query in a folder until a line says to stop; capture it if ``store`` is a path."""
    spark = ss.session(**_SETTINGS, **{"spark.sql.shuffle.partitions": str(partitions)})
    frame, checkpoint = answers(spark, folder / "input", past), folder / "checkpoint"
    sink = partial(_write, folder / "answers")
    running = query = None
    if store:
        running = ss.start(
            frame, "linear_road", store, checkpoint=checkpoint, mode="append", sink=sink, partitions=partitions
        )
        query = running.query
    else:
        writer = frame.writeStream.foreachBatch(sink).outputMode("append")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
    assert query is not None
    for line in sys.stdin:
        if line.startswith("rescale") and running is not None:
            report = running.rescale(int(line.split()[1]))
            query = running.query
            print(f"{report.seconds_standing or 0.0:.2f}", flush=True)
        elif line.startswith("stop"):
            break
    assert query is not None
    query.processAllAvailable()
    if running is not None:
        running.wait(timeout=_WAIT)
        running.stop()
    query.stop()
    spark.stop()


def _write(folder: Path, rows: DataFrame, epoch: int) -> None:
    """Write an epoch's answers; those of an epoch that runs again replace the first ones."""
    rows.write.mode("overwrite").parquet(str(folder / f"{epoch:06d}"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
