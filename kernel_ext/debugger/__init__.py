"""Going back in a stream and running forward again: forks, steps, replays, audits (StreamScope's replay debugging)."""

from __future__ import annotations

from streamstate.debugger.forking import Edit, Fork, fork
from streamstate.debugger.replay import Replay, replay
from streamstate.debugger.report import EpochRun, StepReport
from streamstate.debugger.session import Branch, DebugSession, debug
from streamstate.debugger.step import step

__all__ = [
    "Branch",
    "DebugSession",
    "Edit",
    "EpochRun",
    "Fork",
    "Replay",
    "StepReport",
    "debug",
    "fork",
    "replay",
    "step",
]
