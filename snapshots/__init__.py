"""Reads checkpoints, captures epochs, and owns the tables on disk.

This package knows nothing of notebooks, and only its capturing half knows Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamstate.snapshots.capture import CaptureReport
    from streamstate.snapshots.follow import Capture, CaptureStatus

__all__ = ["Capture", "CaptureReport", "CaptureStatus"]

_HOMES = {
    "Capture": "streamstate.snapshots.follow",
    "CaptureReport": "streamstate.snapshots.capture",
    "CaptureStatus": "streamstate.snapshots.follow",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: readers of a store need no Spark."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
