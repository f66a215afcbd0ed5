"""Explore the state of Spark streaming queries: live, at any past epoch, between two epochs, per key, and in SQL."""

from __future__ import annotations

import importlib
import sys
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

from streamstate.errors import StreamStateError, require_extra
from streamstate.snapshots.calls.progress_callback import ProgressCallback, set_progress_display, silent

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from streamstate.launch.running import Running
    from streamstate.launch.starting import start
    from streamstate.operations.checkpoint import Checkpoint
    from streamstate.operations.code_check import CheckReport, check
    from streamstate.operations.drill import DrillReport, drill
    from streamstate.operations.find_checkpoints import checkpoints
    from streamstate.operations.new_checkpoint.bootstrap import bootstrap
    from streamstate.operations.new_checkpoint.migrate import migrate
    from streamstate.operations.new_checkpoint.proposal import Proposal
    from streamstate.operations.new_checkpoint.propose_mapping import propose_mapping
    from streamstate.operations.new_checkpoint.proposed_mapping import ProposedMapping
    from streamstate.operations.new_checkpoint.restore import restore
    from streamstate.operations.new_checkpoint.written import WrittenCheckpoint
    from streamstate.operations.promotion import Promotion, promote
    from streamstate.operations.rescale import RescaleReport, rescale
    from streamstate.operations.rescale_advice import RescaleAdvice, rescale_advice
    from streamstate.operations.restart_policy import BackOff
    from streamstate.operations.supervision import Supervised, supervise
    from streamstate.replay import DebugSession, Edit, EpochRun, Fork, Replay, StepReport, debug, fork, replay, step
    from streamstate.replay.audit import Audit, AuditRecordCheck, audit, check_audit_record
    from streamstate.replay.start_from_snapshot import initial_state, start_offsets
    from streamstate.snapshots.capture.capture import capture
    from streamstate.snapshots.capture.epoch_commit import CaptureReport
    from streamstate.snapshots.capture.follow import Capture, CaptureStatus, follow
    from streamstate.snapshots.capture.recording.record import RecordedFrame, record, recorded
    from streamstate.snapshots.capture.recording.recorder import Recorder
    from streamstate.snapshots.spark.session import session
    from streamstate.snapshots.store.export import ExportReport, export
    from streamstate.snapshots.store.query_plans.describe import describe
    from streamstate.snapshots.store.retention.dropping import RetentionReport, keep
    from streamstate.snapshots.store.retention.tidying import compact
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
    from streamstate.variables.columns import shared_column
    from streamstate.variables.declaring import shared
    from streamstate.variables.shared_variable import SharedVariable

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "AuditRecordCheck",
    "BackOff",
    "Capture",
    "CaptureReport",
    "CaptureStatus",
    "CheckReport",
    "Checkpoint",
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
    "Promotion",
    "Proposal",
    "ProposedMapping",
    "RecordedFrame",
    "Recorder",
    "Replay",
    "RescaleAdvice",
    "RescaleReport",
    "Result",
    "RetentionReport",
    "Running",
    "SharedVariable",
    "Snapshot",
    "StateTable",
    "StepReport",
    "Store",
    "StreamStateError",
    "Supervised",
    "WrittenCheckpoint",
    "audit",
    "bootstrap",
    "capture",
    "check",
    "check_audit_record",
    "checkpoints",
    "compact",
    "cut",
    "debug",
    "describe",
    "drill",
    "export",
    "follow",
    "fork",
    "initial_state",
    "keep",
    "migrate",
    "open_store",
    "promote",
    "propose_mapping",
    "record",
    "recorded",
    "replay",
    "rescale",
    "rescale_advice",
    "restore",
    "session",
    "shared",
    "shared_column",
    "start",
    "start_offsets",
    "step",
    "supervise",
]

_HOMES = {
    "Checkpoint": "streamstate.operations.checkpoint",
    "checkpoints": "streamstate.operations.find_checkpoints",
    "session": "streamstate.snapshots.spark.session",
    "capture": "streamstate.snapshots.capture.capture",
    "compact": "streamstate.snapshots.store.retention.tidying",
    "describe": "streamstate.snapshots.store.query_plans.describe",
    "Running": "streamstate.launch.running",
    "start": "streamstate.launch.starting",
    **dict.fromkeys(["CheckReport", "check"], "streamstate.operations.code_check"),
    **dict.fromkeys(["RescaleAdvice", "rescale_advice"], "streamstate.operations.rescale_advice"),
    **dict.fromkeys(["Supervised", "supervise"], "streamstate.operations.supervision"),
    "BackOff": "streamstate.operations.restart_policy",
    **dict.fromkeys(["DrillReport", "drill"], "streamstate.operations.drill"),
    **dict.fromkeys(["Promotion", "promote"], "streamstate.operations.promotion"),
    **dict.fromkeys(["RescaleReport", "rescale"], "streamstate.operations.rescale"),
    "bootstrap": "streamstate.operations.new_checkpoint.bootstrap",
    "Proposal": "streamstate.operations.new_checkpoint.proposal",
    "ProposedMapping": "streamstate.operations.new_checkpoint.proposed_mapping",
    "migrate": "streamstate.operations.new_checkpoint.migrate",
    "propose_mapping": "streamstate.operations.new_checkpoint.propose_mapping",
    "restore": "streamstate.operations.new_checkpoint.restore",
    "WrittenCheckpoint": "streamstate.operations.new_checkpoint.written",
    "CaptureReport": "streamstate.snapshots.capture.epoch_commit",
    **dict.fromkeys(["Capture", "CaptureStatus", "follow"], "streamstate.snapshots.capture.follow"),
    **dict.fromkeys(
        ["DebugSession", "Edit", "EpochRun", "Fork", "Replay", "StepReport", "debug", "fork", "replay", "step"],
        "streamstate.replay",
    ),
    **dict.fromkeys(["Audit", "AuditRecordCheck", "audit", "check_audit_record"], "streamstate.replay.audit"),
    **dict.fromkeys(["initial_state", "start_offsets"], "streamstate.replay.start_from_snapshot"),
    **dict.fromkeys(["ExportReport", "export"], "streamstate.snapshots.store.export"),
    **dict.fromkeys(["RecordedFrame", "record", "recorded"], "streamstate.snapshots.capture.recording.record"),
    "Recorder": "streamstate.snapshots.capture.recording.recorder",
    **dict.fromkeys(["RetentionReport", "keep"], "streamstate.snapshots.store.retention.dropping"),
    "SharedVariable": "streamstate.variables.shared_variable",
    "shared": "streamstate.variables.declaring",
    "shared_column": "streamstate.variables.columns",
    **dict.fromkeys(
        ["Comparison", "Cut", "Diff", "History", "Result", "Snapshot", "StateTable", "Store", "cut", "open_store"],
        "streamstate.state_inspect",
    ),
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that ``import streamstate`` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError:
        require_extra("spark")  # what needs an extra when it is imported needs this one
        from streamstate.snapshots.spark.connect import refuse_connect

        refuse_connect()  # the package pyspark-client has no classic session
        raise
    globals()[name] = value
    return value


class _Package(ModuleType):
    """This package: ``streamstate.replay`` is the function, although a sub-package has the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        # The import system binds every sub-package here once it is loaded.
        if name != "replay" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # By name, as any module: a query's functions that are sent to other processes refer to it.
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


def _display(call: str, interrupted: str) -> AbstractContextManager[ProgressCallback]:
    """Display long calls where IPython runs, with or without the extension; elsewhere nothing is loaded for them."""
    if sys.modules.get("IPython") is None:
        return nullcontext(silent)
    from streamstate.widgets.progress import shown_in_shell

    return shown_in_shell(call, interrupted)


set_progress_display(_display)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics: ``%load_ext streamstate``."""
    require_extra("notebook")
    from streamstate.snapshots.capture.memory import set_plain_memory

    # First, because deltalake and pyarrow, which the magics import, read their settings when they are loaded.
    set_plain_memory(on=shell.config.get("StreamState", {}).get("plain_memory", True))
    from streamstate.extension import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Stop captures and remove the magics; the Spark session stays: ``%unload_ext streamstate``."""
    from streamstate.extension import unload
    from streamstate.snapshots.capture.memory import set_plain_memory

    unload(shell)
    set_plain_memory(on=False)
