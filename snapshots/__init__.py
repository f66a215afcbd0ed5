"""Reads checkpoints, captures epochs, and owns the tables on disk.

This package knows nothing of notebooks, and only its capturing half knows Spark.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamstate.snapshots.capture_report import CaptureReport
    from streamstate.snapshots.follow import Capture, CaptureStatus

__all__ = ["Capture", "CaptureReport", "CaptureStatus"]

_HOMES = {
    "Capture": "streamstate.snapshots.follow",
    "CaptureReport": "streamstate.snapshots.capture_report",
    "CaptureStatus": "streamstate.snapshots.follow",
}


# deltalake brings an allocator (jemalloc), which reads this when it is loaded. By itself each of some forty threads has
# memory of its own there and keeps what was freed: a process that follows a store grew by 17 kB an epoch, by 6 kB so.
os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0")
# So does pyarrow (mimalloc); told to give back at once what was freed, it spares another 12 kB an epoch.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: readers of a store need no Spark."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
