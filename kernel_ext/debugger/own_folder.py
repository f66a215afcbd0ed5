"""Folders for checkpoints and stores that nobody asked to keep."""

from __future__ import annotations

import atexit
import shutil
import tempfile

__all__ = ["own_folder"]


def own_folder(what: str) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder for a checkpoint; gone when it is cleaned up, or at the latest when Python ends.

    Spark's maintenance looks after a state for a minute after its query has ended. What it writes meanwhile comes
    after the folder was removed, and makes it anew; so it is removed once more at the end.

    Args:
        what: a part of its name, such as ``audit``.
    """
    folder = tempfile.TemporaryDirectory(prefix=f"streamstate-{what}-", ignore_cleanup_errors=True)
    atexit.register(shutil.rmtree, folder.name, ignore_errors=True)
    return folder
