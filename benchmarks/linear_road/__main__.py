"""The process of the streaming query: ``python -m benchmarks.linear_road FOLDER PAST PARTITIONS STORE``.

It obeys lines on standard input:

- ``rescale N``; it answers with the seconds of the stand-still.
- ``standby``; it answers with the process that stands by, once that is warm.
- ``handover``; it answers with the new process and the seconds between the two commits, and ends.
- ``stop``.
"""

from __future__ import annotations

import sys
import time
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
_LEASE = 2.0


def _query(folder: Path, past: Path) -> DataFrame:
    return answers(ss.session(), folder / "input", past)


def main(folder: Path, past: Path, partitions: int, store: str) -> None:
    """Run the query in a folder until a line says to stop; capture it if ``store`` is a path."""
    spark = ss.session(**_SETTINGS, **{"spark.sql.shuffle.partitions": str(partitions)})
    build, checkpoint = partial(_query, folder, past), folder / "checkpoint"
    frame = build()
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
        elif line.startswith("standby") and running is not None:
            standby = running.standby(build, lease=_LEASE)
            while (status := standby.wait()).epoch is None and status.error is None:
                time.sleep(0.1)
            assert status.error is None, status.error
            print(standby.process.pid, flush=True)
        elif line.startswith("handover") and running is not None:
            handed = running.hand_over(build, lease=_LEASE, timeout=_WAIT)
            print(handed.owner.process.pid, handed.seconds, flush=True)
            return
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
