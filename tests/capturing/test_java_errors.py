"""What messages say of an error of Java's; tests/services/s3 has those of a server that refuses."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streamstate.errors import CaptureError, first_line
from streamstate.snapshots.checkpoint.hadoop_files import HadoopFiles
from streamstate.snapshots.spark.failures import innermost


def test_it_is_the_innermost_cause(spark: SparkSession) -> None:
    """Py4J's own first line says only which object was called."""
    jvm: Any = spark._jvm
    with pytest.raises(Py4JJavaError) as raised:
        jvm.java.util.concurrent.CompletableFuture.failedFuture(jvm.java.io.IOException("the disk is gone")).get()
    assert first_line(raised.value) == innermost(raised.value) == "IOException: the disk is gone"


def test_a_file_system_that_cannot_be_reached(spark: SparkSession) -> None:
    """The message names the path, the reason, and Spark's settings."""
    with pytest.raises(
        CaptureError, match=r"^nowhere://bucket/c cannot be .*: UnsupportedFileSystemException.*\nCheck"
    ):
        HadoopFiles(spark).names("nowhere://bucket/c")
