"""The parts of a controller: the rules, the levels of shedding, the loads, and the rescaling of a running query."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from streamstate.operations.policies.runtime import Rules

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.operations.policies.decision import Observed

LEVEL = "_shed"
"""The ending of the name of the variable that holds a query's shedding level."""


class RunsHere(Protocol):
    """A query that this process runs: :class:`streamstate.launch.running.Running`."""

    name: str

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's handle of the current run."""

    @property
    def state(self) -> str:
        """Its state."""

    @property
    def newest(self) -> RunsHere:
        """The handle of its newest start."""


def rules_of(running: RunsHere) -> Rules:
    """Return the parts of the controller of a running query."""
    decide = _part("operations.policies.controller_rules").decide
    load = _part("snapshots.capture.spark_load").load_of
    return Rules(
        policy_class().of,
        lambda policy, observed, levers, past: decide(policy, observed, levers, past=past),
        _level,
        load,
        partial(_rescaled, running) if hasattr(running, "rescale") else None,
    )


def policy_class() -> Any:
    """Return the class of policies."""
    return _part("operations.policies.policy").Policy


def _level(policy: Any, kept: float, newest: Observed | None) -> Any:
    """Return the value of the level's variable."""
    level_for = _part("variables.shedding.level_for").level_for
    if policy is None:
        return level_for(kept=kept)
    shed = None if newest is None else newest.load.shed
    intervals = getattr(shed, "intervals", None) or {}
    rows = [intervals.get(str(number), 0) for number in range(1, max(map(int, intervals), default=0) + 1)]
    return level_for(policy.keep, kept, policy.utility, rows=rows if policy.utility and rows else None)


def _rescaled(running: RunsHere, partitions: int) -> object:
    newest: Any = running.newest
    return newest.rescale(partitions)


def _part(name: str) -> Any:
    return import_module(f"streamstate.{name}")
