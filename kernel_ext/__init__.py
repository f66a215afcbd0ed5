"""Explore the state of Spark streaming queries: live, at any past epoch, between two, per key, and in SQL."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import StreamStateError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from streamstate.capturing import capture, follow
    from streamstate.debugger import (
        DebugSession,
        Edit,
        EpochRun,
        Fork,
        Replay,
        StepReport,
        debug,
        fork,
        replay,
        step,
    )
    from streamstate.debugger.audit import Audit, CertificateCheck, audit, check_certificate
    from streamstate.debugger.from_store import initial_state, start_offsets
    from streamstate.recovery.advice import RescaleAdvice, rescale_advice
    from streamstate.recovery.back_off import BackOff
    from streamstate.recovery.drill import DrillReport, drill
    from streamstate.recovery.report import RescaleReport
    from streamstate.recovery.rescale import rescale
    from streamstate.recovery.supervision import Supervised, supervise
    from streamstate.snapshots import Capture, CaptureReport, CaptureStatus
    from streamstate.snapshots.export import ExportReport, export
    from streamstate.snapshots.retention.run import RetentionReport, keep
    from streamstate.spark_session import session
    from streamstate.state_inspect import (
        Comparison,
        Cut,
        Diff,
        History,
        Result,
        Snapshot,
        StateTable,
        Store,
        cut,
        open_store,
    )

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "BackOff",
    "Capture",
    "CaptureReport",
    "CaptureStatus",
    "CertificateCheck",
    "Comparison",
    "Cut",
    "DebugSession",
    "Diff",
    "DrillReport",
    "Edit",
    "EpochRun",
    "ExportReport",
    "Fork",
    "History",
    "Replay",
    "RescaleAdvice",
    "RescaleReport",
    "Result",
    "RetentionReport",
    "Snapshot",
    "StateTable",
    "StepReport",
    "Store",
    "StreamStateError",
    "Supervised",
    "audit",
    "capture",
    "check_certificate",
    "cut",
    "debug",
    "drill",
    "export",
    "follow",
    "fork",
    "initial_state",
    "keep",
    "open_store",
    "replay",
    "rescale",
    "rescale_advice",
    "session",
    "start_offsets",
    "step",
    "supervise",
]

_HOMES = {
    "session": "streamstate.spark_session",
    **dict.fromkeys(["capture", "follow"], "streamstate.capturing"),
    **dict.fromkeys(["RescaleAdvice", "rescale_advice"], "streamstate.recovery.advice"),
    **dict.fromkeys(["Supervised", "supervise"], "streamstate.recovery.supervision"),
    "BackOff": "streamstate.recovery.back_off",
    **dict.fromkeys(["DrillReport", "drill"], "streamstate.recovery.drill"),
    "RescaleReport": "streamstate.recovery.report",
    "rescale": "streamstate.recovery.rescale",
    **dict.fromkeys(["Capture", "CaptureReport", "CaptureStatus"], "streamstate.snapshots"),
    **dict.fromkeys(
        ["DebugSession", "Edit", "EpochRun", "Fork", "Replay", "StepReport", "debug", "fork", "replay", "step"],
        "streamstate.debugger",
    ),
    **dict.fromkeys(["Audit", "CertificateCheck", "audit", "check_certificate"], "streamstate.debugger.audit"),
    **dict.fromkeys(["initial_state", "start_offsets"], "streamstate.debugger.from_store"),
    **dict.fromkeys(["ExportReport", "export"], "streamstate.snapshots.export"),
    **dict.fromkeys(["RetentionReport", "keep"], "streamstate.snapshots.retention.run"),
    **dict.fromkeys(
        ["Comparison", "Cut", "Diff", "History", "Result", "Snapshot", "StateTable", "Store", "cut", "open_store"],
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
