"""Renaming and exchanging folders: the only steps of a promotion that others can see."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamstate.errors import PromotionError
from streamstate.snapshots.checkpoint.filesystem import Files, local_path
from streamstate.snapshots.checkpoint.local_files import LocalFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATOMIC = {"hdfs", "viewfs"}
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def exists(files: Files, folder: str) -> bool:
    """Check that a folder exists and is not empty."""
    return bool(files.names(folder))


def move(files: Files, source: str, target: str, spark: SparkSession | None) -> None:
    """Rename a folder.

    Raises:
        PromotionError: the target exists, or the file system refuses.
    """
    if exists(files, target):
        raise PromotionError(f"{target} already exists.\nMove it away, then try again.")
    if isinstance(files, LocalFiles) or spark is None:
        Path(source).rename(target)
        return
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    paths = [jvm.org.apache.hadoop.fs.Path(path) for path in (source, target)]
    system = paths[0].getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not system.rename(*paths):
        raise PromotionError(f"{source} could not be renamed to {target}.\nCheck that you may write both folders.")


def exchanged(one: str, other: str) -> bool:
    """Exchange two local folders in one step; False if this system cannot, as all but Linux."""
    rename: ctypes._NamedFuncPointer | None = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None or local_path(one) is None:
        return False
    done: int = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return done == 0


def check_atomic(checkpoint: str) -> None:
    """Refuse a file system in which renaming a folder is not one step."""
    if local_path(checkpoint) is None and (scheme := urlsplit(checkpoint).scheme) not in _ATOMIC:
        raise PromotionError(
            f"{checkpoint} is on {scheme}, where a folder is not renamed in one step: a promotion could be seen half"
            " done.\nStart the fork's code on the fork itself, with a sink of its own, and move the readers there."
        )
