"""Explore the state of Spark streaming queries: live, at any past epoch, between two, per key, and in SQL."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import StreamStateError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from streamstate.capturing import capture, follow
    from streamstate.snapshots import Capture, CaptureReport, CaptureStatus
    from streamstate.snapshots.export import ExportReport, export
    from streamstate.snapshots.retention.run import RetentionReport, keep
    from streamstate.spark_session import session
    from streamstate.state_inspect import Cut, Diff, History, Result, Snapshot, StateTable, Store, cut, open_store

__version__ = "0.1.0"

__all__ = [
    "Capture",
    "CaptureReport",
    "CaptureStatus",
    "Cut",
    "Diff",
    "ExportReport",
    "History",
    "Result",
    "RetentionReport",
    "Snapshot",
    "StateTable",
    "Store",
    "StreamStateError",
    "capture",
    "cut",
    "export",
    "follow",
    "keep",
    "open_store",
    "session",
]

_HOMES = {
    "session": "streamstate.spark_session",
    **dict.fromkeys(["capture", "follow"], "streamstate.capturing"),
    **dict.fromkeys(["Capture", "CaptureReport", "CaptureStatus"], "streamstate.snapshots"),
    **dict.fromkeys(["ExportReport", "export"], "streamstate.snapshots.export"),
    **dict.fromkeys(["RetentionReport", "keep"], "streamstate.snapshots.retention.run"),
    **dict.fromkeys(
        ["Cut", "Diff", "History", "Result", "Snapshot", "StateTable", "Store", "cut", "open_store"],
        "streamstate.state_inspect",
    ),
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that ``import streamstate`` starts no engine."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics: ``%load_ext streamstate``."""
    from streamstate.extension import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Stop captures and remove the magics; the Spark session stays: ``%unload_ext streamstate``."""
    from streamstate.extension import unload

    unload(shell)
