"""Unpack recorded checkpoints to a folder of a test."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from recorded.make import HERE, REQUIREMENTS, ROOT

VERSIONS = tuple(REQUIREMENTS)
"""The earlier versions of Spark."""
CURRENT = "4.3"
"""The version whose recording stands for the installed Spark in tests that do not start it."""


def unpacked(version: str, folder: Path) -> Path:
    """Unpack all checkpoints of a version of Spark, and rewrite the paths of the input in their source logs.

    Returns the folder that has a folder for each provider and the folder ``input``; that of the current version has a
    folder for each query.
    """
    with tarfile.open(HERE / f"spark-{version}.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    recorded = folder / version
    for log in recorded.glob("*/*/sources/*/[0-9]*"):
        text = log.read_text(encoding="utf-8")
        log.write_text(text.replace(f"file://{ROOT}/{version}", recorded.as_uri()), encoding="utf-8")
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    return recorded


def copied(checkpoint: Path, folder: Path) -> Path:
    """Copy a recorded checkpoint, so that a test can change it; its input is not copied."""
    return Path(shutil.copytree(checkpoint, folder))
