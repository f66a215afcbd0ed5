"""Checkpoints whose paths Spark's state reader escapes, and then does not find."""

from __future__ import annotations

import hashlib
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.snapshots.checkpoint.filesystem import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ESCAPED = re.compile(r'[\s"#<>?{}|\\^`%\[\]]')


def escaped_in(path: str) -> list[str]:
    """Return the characters of a path that Spark's state reader escapes."""
    return sorted({*_ESCAPED.findall(path)})


def path_for_reader(spark: SparkSession, checkpoint: str) -> str:
    """Return the path at which Spark's state reader finds a checkpoint: if need be, a link to it on this machine."""
    local = local_path(checkpoint)
    if local is None or not escaped_in(checkpoint) or not str(spark.sparkContext.master).startswith("local"):
        return checkpoint
    link = Path(_links().name, hashlib.sha256(checkpoint.encode()).hexdigest()[:32])
    if not link.is_symlink():
        link.symlink_to(local)
    return str(link)


@cache
def _links() -> tempfile.TemporaryDirectory[str]:
    """Return the process's folder of links: Spark may read as long as the process runs."""
    return tempfile.TemporaryDirectory(prefix="streamstate-")
