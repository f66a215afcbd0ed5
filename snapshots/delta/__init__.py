"""Delta tables that a crash does not tear and damage does not pass through unnoticed.

deltalake commits and reads the log; what is added here, because it does neither: rows are appended exactly once
(``commits``), files and log entries are synced to disk and carry checksums that every reader verifies
(``data_files``, ``log_checks``), and files that no commit took are swept away (``sweep``).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.delta.place import Place

if TYPE_CHECKING:
    from streamstate.snapshots.delta.commits import append_once, commit_once, open_or_create, open_table

__all__ = ["Place", "append_once", "commit_once", "open_or_create", "open_table"]


def __getattr__(name: str) -> Any:
    """Load what commits when it is first used: Spark's executors write data files and commit nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("streamstate.snapshots.delta.commits"), name)
