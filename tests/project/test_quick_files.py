"""The tests' file system for Spark sets the same permissions as Hadoop's, without a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o755, 0o1777])
def test_permissions_are_those_asked_for(spark: SparkSession, tmp_path: Path, mode: int) -> None:
    """Hadoop itself sets what Java cannot, such as a sticky bit."""
    jvm, context = spark._jvm, spark._jsc
    assert jvm is not None
    assert context is not None
    path = jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/é 1")
    files = path.getFileSystem(context.hadoopConfiguration())
    assert files.getClass().getName() == "QuickFiles"
    permission = jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:o}")
    files.create(path).close()
    files.setPermission(path, permission)
    assert (tmp_path / "é 1").stat().st_mode & 0o7777 == mode
