"""One line of epochs of a debugger's session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.debugger.breakpoints import ERROR, Until, breakpoint_at
from streamstate.debugger.changes import Changes
from streamstate.debugger.stepper import BuildQuery, Stepper
from streamstate.debugger.steps import Progress, Steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.debugger.report import StepReport
    from streamstate.snapshots.forks import Fork

__all__ = ["Branch", "Line"]


@dataclass(frozen=True)
class Branch:
    """One line of epochs, as a session tells it.

    Attributes:
        name: what it is called in the session's store.
        parent: the branch that it was forked from; None for the original.
        epoch: the last epoch that it shares with its parent; None for the original.
        newest: its newest epoch.
        checkpoint: where it is.
        current: whether the session stands on it.
    """

    name: str
    parent: str | None
    epoch: int | None
    newest: int | None
    checkpoint: str
    current: bool = False


class Line:
    """A fork that a session has made.

    Args:
        made: the fork.
        name: what it is called in the store.
        parent: the line that it was forked from; None: the original.
        original_name: what the original is called.
        store: the session's store.
        original: the original's checkpoint, which it follows.
        spark: the session.
    """

    def __init__(
        self,
        made: Fork,
        name: str,
        parent: Line | None,
        *,
        original_name: str,
        store: str,
        original: str,
        spark: SparkSession,
    ) -> None:
        self.name = name
        self.parent = parent
        self.checkpoint = made.checkpoint
        self.forked_at = made.epoch
        self.newest = made.epoch
        """The newest epoch that it has committed."""
        self.changes = Changes(made.checkpoint, store, name, spark)
        self._parent_name = original_name if parent is None else parent.name
        self._original, self._spark = original, spark

    def step(
        self, build_query: BuildQuery, epochs: int, until: Until, mode: str, progress: Progress | None
    ) -> StepReport:
        """Run its next epochs; see :func:`streamstate.step`."""
        point = breakpoint_at(until)
        stepper = Stepper(build_query, self.checkpoint, self._original, self._spark, mode=mode)
        try:
            return Steps(stepper, self.changes, point, until == ERROR, capture=True, progress=progress).run(epochs)
        finally:
            self.newest = max(self.newest, stepper.epoch)

    def branch(self, *, current: bool) -> Branch:
        """The line as it is told."""
        return Branch(self.name, self._parent_name, self.forked_at, self.newest, self.checkpoint, current)
