"""Going back in a stream and running forward again: forks, steps, debug sessions, replays and audits.

In the literature: StreamScope's replay debugging.
"""

from __future__ import annotations

from streamstate.replay.debugging.branches import Branch
from streamstate.replay.debugging.session import DebugSession, debug
from streamstate.replay.forks import Edit, NewFork, fork
from streamstate.replay.replay import Replay, replay
from streamstate.replay.stepping.step import step
from streamstate.replay.stepping.step_report import EpochRun, StepReport

__all__ = [
    "Branch",
    "DebugSession",
    "Edit",
    "EpochRun",
    "NewFork",
    "Replay",
    "StepReport",
    "debug",
    "fork",
    "replay",
    "step",
]
