"""Delta tables that survive crashes, and whose damage is detected.

deltalake reads and commits the log. This package adds what it lacks: rows are appended exactly once (``commits``),
files and log entries are synced to disk and have checksums that every reader verifies (``data_files``, ``log_checks``),
and small files are merged and files of failed commits removed (``maintenance``).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.store.delta.place import Place

if TYPE_CHECKING:
    from streamstate.snapshots.store.delta.commits import append_once, commit_once, open_or_create, open_table

__all__ = ["Place", "append_once", "commit_once", "open_or_create", "open_table"]


def __getattr__(name: str) -> Any:
    """Load the committing half when it is first used: Spark's executors write data files and commit nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("streamstate.snapshots.store.delta.commits"), name)
