"""Spark settings that make tests faster."""

from __future__ import annotations

from importlib.metadata import version

_PACKAGE = "org.apache.spark.sql.execution.streaming"
_BEFORE_4_1 = version("pyspark").startswith(("3.", "4.0."))
PLAIN_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_PACKAGE}{'' if _BEFORE_4_1 else '.checkpointing'}.FileSystemBasedCheckpointFileManager"
    ),
}
"""Hadoop's FileSystem API. The default, FileContext, starts a readlink process for each rename of a local file."""

SHARED = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
    "spark.sql.streaming.minBatchesToRetain": "100",
    # Most code runs only a few times, so C2 does not pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Generating code for the queries does not pay off either. Tests with a separate Spark process, such as
    # notebooks and crash tests, keep Spark's defaults.
    "spark.sql.codegen.wholeStage": "false",
    **PLAIN_FILES,
}
"""The settings of the session that tests share."""
