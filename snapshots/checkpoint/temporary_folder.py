"""Temporary folders for checkpoints."""

from __future__ import annotations

import atexit
import shutil
import tempfile


def temporary_folder(purpose: str) -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder for checkpoints and stores, deleted on cleanup, and at the latest when Python exits.

    Spark's maintenance thread handles a state for up to a minute after its query has ended. If it writes after the
    folder was deleted, it creates the folder again; so the folder is deleted once more at exit.
    """
    folder = tempfile.TemporaryDirectory(prefix=f"streamstate-{purpose}-", ignore_cleanup_errors=True)
    atexit.register(shutil.rmtree, folder.name, ignore_errors=True)
    return folder
