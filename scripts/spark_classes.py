"""Load Spark's classes once and keep them for the JVMs to come: ``python scripts/spark_classes.py ARCHIVE``.

Half of what Spark's start takes is reading thousands of classes. Java's class data sharing
(https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html) maps them from an archive instead; a JVM whose
version or class path is another ignores the archive and starts as ever.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SECONDS_TO_WRITE = 300


def write(archive: Path) -> None:
    """Capture a small query with a JVM that writes down, when it ends, which classes it loaded."""
    from pyspark.sql import functions as F

    import streamstate as ss

    part = archive.with_name(f"{archive.name}.{os.getpid()}.part")  # another process may write one at the same time
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={part} -Xlog:disable"
    with tempfile.TemporaryDirectory() as folder:
        spark = ss.session(**{"spark.driver.extraJavaOptions": options, "spark.sql.shuffle.partitions": "2"})
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 (PySpark gives no other way to its JVM)
        spark.range(20).selectExpr("id % 7 AS k", "id AS v").repartition(2).write.parquet(f"{folder}/input")
        stream = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).parquet(f"{folder}/input")
        counts = stream.groupBy("k").agg(F.count("*").alias("n"), F.avg("v").alias("mean"))
        writer = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
        ss.Checkpoint(f"{folder}/checkpoint").capture(f"{folder}/store", "counts", spark=spark)
        ss.Checkpoint(f"{folder}/checkpoint").fork(f"{folder}/fork", at=0)
        spark.stop()
        # The JVM ends when its standard input does.
        java = gateway.proc
        java.stdin.close()
        java.wait(SECONDS_TO_WRITE)
    part.replace(archive)


if __name__ == "__main__":
    began = time.monotonic()
    write(Path(sys.argv[1]))
    size = Path(sys.argv[1]).stat().st_size / 2**20
    print(f"{sys.argv[1]}: {size:.0f} MiB in {time.monotonic() - began:.0f} s")
