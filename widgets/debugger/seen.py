"""Where a session stands, as plain data: read once after each action, because a session that steps answers nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.debugger.report import StepReport
    from streamstate.debugger.session import Branch
    from streamstate.debugger.step import Progress, Until
    from streamstate.snapshots.plan_graph import PlanGraph

__all__ = ["WATCHED", "Seen", "Session", "seen"]

WATCHED = 60
"""Epochs whose watched values are kept for drawing, at most."""


class Session(Protocol):
    """What the view asks of a session; :class:`streamstate.debugger.session.DebugSession` is one."""

    @property
    def name(self) -> str:
        """The branch on which it stands."""

    @property
    def epoch(self) -> int:
        """The epoch at which it stands."""

    @property
    def store(self) -> str:
        """Where its branches are captured."""

    @property
    def last(self) -> StepReport | None:
        """What the last steps did."""

    @property
    def plan(self) -> PlanGraph | None:
        """The operators of the last epoch that was run."""

    def step(self, n: int = 1, *, progress: Progress | None = None) -> StepReport:
        """Run the next epochs."""

    def run_until(self, condition: Until, *, epochs: int = ..., progress: Progress | None = None) -> StepReport:
        """Run on until a breakpoint."""

    def back(self, n: int = 1) -> int:
        """Go back."""

    def goto(self, epoch: int, *, progress: Progress | None = None) -> int:
        """Go to an epoch."""

    def watch(self, expression: str) -> None:
        """Watch an expression."""

    def unwatch(self, expression: str) -> None:
        """Watch it no longer."""

    def watches(self) -> pd.DataFrame:
        """The values of what is watched: ``epoch``, ``branch``, and a column for each expression."""

    def branches(self) -> Sequence[Branch]:
        """The original and its branches."""


@dataclass(frozen=True)
class Seen:
    """A session at one moment.

    Attributes:
        name: the branch on which it stands.
        epoch: the epoch at which it stands.
        store: where its branches are captured.
        branches: the original, then its branches in the order in which they were made.
        report: what the last steps did.
        plan: the operators of the last epoch that was run.
        watched: the epochs whose values are known, ascending, the newest :data:`WATCHED` of them.
        values: for each watched expression its value at each of these epochs.
    """

    name: str
    epoch: int
    store: str
    branches: tuple[Branch, ...]
    report: StepReport | None = None
    plan: PlanGraph | None = field(default=None, repr=False)
    watched: tuple[int, ...] = ()
    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def original(self) -> Branch | None:
        """The branch that all others come from."""
        return next((one for one in self.branches if one.parent is None), None)

    def branch(self, name: str) -> Branch | None:
        """A branch by its name; None where there is none."""
        return next((one for one in self.branches if one.name == name), None)


def seen(session: Session) -> Seen:
    """The session now; waits for what it is doing."""
    frame = session.watches().tail(WATCHED)
    expressions = [str(name) for name in frame.columns[2:]]  # after the epoch and whose it is
    return Seen(
        session.name,
        session.epoch,
        str(session.store),
        tuple(session.branches()),
        session.last,
        session.plan,
        tuple(int(epoch) for epoch in frame["epoch"]),
        {name: tuple(frame.iloc[:, at + 2].astype(object)) for at, name in enumerate(expressions)},
    )
