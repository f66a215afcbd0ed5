"""A debugging session as plain data: where it is, and the values of its watched expressions.

It is read once after each action, because a session that runs a step does not answer.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from streamstate.state_inspect.values import Cell, canonical, cell, number, plain
from streamstate.widgets.diffs.rows import signed

if TYPE_CHECKING:
    from streamstate.replay.debugging.branches import Branch
    from streamstate.replay.debugging.session import DebugSession
    from streamstate.replay.stepping.step_report import StepReport
    from streamstate.snapshots.spark.plan_graph import PlanGraph

WATCHED = 60
"""The most epochs whose watched values are kept."""


@dataclass(frozen=True)
class SessionState:
    """A session at one moment: its current branch and epoch, and its branches, the original first, then by age."""

    name: str
    epoch: int
    store: str
    branches: tuple[Branch, ...]
    report: StepReport | None = None
    plan: PlanGraph | None = field(default=None, repr=False)
    watched: tuple[int, ...] = ()
    """The epochs with watched values, ascending; at most the newest :data:`WATCHED`."""
    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """For each watched expression, its value at each of these epochs."""

    def branch(self, name: str) -> Branch | None:
        """Return the branch with this name, if there is one."""
        return next((branch for branch in self.branches if branch.name == name), None)

    def line(self, name: str) -> list[Branch]:
        """Return a branch and its known ancestors."""
        line: list[Branch] = []
        branch = self.branch(name)
        while branch is not None and branch not in line:
            line.append(branch)
            branch = self.branch(branch.parent or "")
        return line


def session_state(session: DebugSession) -> SessionState:
    """Return the session now; waits until its current action is done."""
    frame = session.watches().tail(WATCHED)
    expressions = [str(name) for name in frame.columns[2:]]  # after the epoch and the branch
    return SessionState(
        session.name,
        session.epoch,
        str(session.store),
        tuple(session.branches()),
        session.last,
        session.plan,
        tuple(int(epoch) for epoch in frame["epoch"]),
        {name: tuple(frame.iloc[:, at + 2].astype(object)) for at, name in enumerate(expressions)},
    )


@dataclass(frozen=True)
class WatchedValue:
    """A watched expression, as it was written, and its value at an epoch."""

    expression: str
    now: Cell
    was: Cell | None = None
    """Its value at the epoch before, if it differs."""
    moved: str = ""
    """The difference, if it is a number or a time."""
    course: tuple[float | None, ...] = ()
    """Its numbers so far, oldest first, with None where it is not a number; empty if there are too few."""

    @property
    def change(self) -> str:
        """The change, in a few words."""
        return self.moved or (f"was {self.was.text}" if self.was else "")


def watched(state: SessionState, epoch: int) -> tuple[int | None, list[WatchedValue]]:
    """Return the watched values at the newest known epoch up to ``epoch``, and that epoch; None if none is known."""
    places = [at for at, known in enumerate(state.watched) if known <= epoch]
    if not places:
        return None, [WatchedValue(expression, cell(None)) for expression in state.values]
    at = places[-1]
    return state.watched[at], [_watched(expression, values, at) for expression, values in state.values.items()]


def _watched(expression: str, values: tuple[Any, ...], at: int) -> WatchedValue:
    value, before = plain(values[at]), plain(values[at - 1]) if at else None
    numbers = tuple(number(known) for known in values[: at + 1])
    course = numbers if sum(known is not None for known in numbers) > 1 else ()
    if not at or canonical(value) == canonical(before):
        return WatchedValue(expression, cell(value), course=course)
    return WatchedValue(expression, cell(value), cell(before), _moved(before, value), course)


def _moved(before: Any, value: Any) -> str:
    """Return the signed difference of two numbers or times; empty for other values."""
    numbers = (int, float, Decimal)
    if isinstance(before, numbers) and isinstance(value, numbers) and not isinstance(value, bool):
        if isinstance(before, Decimal) != isinstance(value, Decimal):
            before, value = float(before), float(value)
        return signed(value - before)
    if isinstance(before, dt.datetime) and isinstance(value, dt.datetime):
        return signed(value - before)
    return ""
