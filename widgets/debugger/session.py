"""A debugging session as plain data: where it is, the values of its watched expressions, and facts from its store.

Where it is, is read once after each action, because a session that runs a step does not answer.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from streamstate.errors import StreamStateError
from streamstate.state_inspect.cell_text import Cell, canonical, cell, number, plain, timestamp
from streamstate.widgets.dashboard.operators import Operators, from_plan, from_store
from streamstate.widgets.diffs.model import DiffModel
from streamstate.widgets.diffs.rows import signed

if TYPE_CHECKING:
    from streamstate.replay.debugging.branches import Branch
    from streamstate.replay.debugging.session import DebugSession
    from streamstate.replay.stepping.step_report import StepReport
    from streamstate.snapshots.spark.plan_graph import PlanGraph
    from streamstate.snapshots.store.entries import Entry
    from streamstate.state_inspect import History, Store
    from streamstate.widgets.diffs.actions import DiffSelection
    from streamstate.widgets.diffs.drawing import DiffDrawing

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


class SessionStore:
    """Reads the store of a session. Not thread-safe."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._store: Store | None = None
        self._diffs: dict[str, DiffModel] = {}

    def captured(self, branch: str) -> Sequence[int]:
        """Return a branch's captured epochs, ascending; none if the store does not have the branch."""
        history = self._history(branch)
        return () if history is None else history.captured()

    def facts(self, branch: str, epoch: int) -> tuple[str, ...]:
        """Return the facts about an epoch, in short texts."""
        entry = self._entry(branch, epoch)
        if entry is None:
            return ("not in the session's store",)
        changes = sum(table.changes for table in entry.tables.values())
        facts = [f"{changes:,} changed"]
        if entry.rows is not None:
            facts.insert(0, f"{entry.rows:,} rows of state")
        if entry.committed_at is not None:
            facts.append(f"committed {timestamp(entry.committed_at)}")
        return tuple(facts)

    def diff(
        self, branch: str, epoch: int, selection: DiffSelection, key: Mapping[str, Any] | None
    ) -> tuple[DiffDrawing | None, str]:
        """Return the changes of an epoch; if they are unknown, None and the reason."""
        history = self._history(branch)
        captured = () if history is None else history.captured()
        if history is None or epoch not in captured:
            return None, f"Epoch {epoch:,} of {branch} is not in the session's store."
        before = [known for known in captured if known < epoch]
        if not before:
            return None, f"Epoch {epoch:,} is the first known epoch of {branch}: there is nothing to compare it with."
        if branch not in self._diffs:
            self.release()
            self._diffs[branch] = DiffModel(history)
        table = selection.table if selection.table in history.tables() else None
        return self._diffs[branch].view(replace(selection, a=before[-1], b=epoch, table=table, key=key)), ""

    def operators(self, state: SessionState, branch: str, epoch: int) -> Operators | None:
        """Return the operators: from Spark's plan if the epoch was run by the last step, otherwise from the store."""
        entry = self._entry(branch, epoch)
        ran = None if state.report is None else state.report.last
        newly_run = ran is not None and (state.name, ran.epoch) == (branch, epoch)
        if newly_run and state.plan is not None and state.plan.nodes:
            tables = [] if entry is None else list(entry.tables)
            return from_plan(state.plan, complete=True, progress=None, tables=tables)
        return None if entry is None else from_store(entry)

    def release(self) -> None:
        """Drop the cache."""
        for model in self._diffs.values():
            model.release()
        self._diffs.clear()

    def _history(self, branch: str) -> History | None:
        from streamstate.state_inspect import open_store

        try:
            if self._store is None:
                self._store = open_store(self._path)
            return self._store[branch] if branch in self._store else None  # noqa: SIM401 (a store is no dict)
        except StreamStateError:  # nothing is captured yet
            return None

    def _entry(self, branch: str, epoch: int) -> Entry | None:
        """Return the manifest's row of a captured epoch, with the rows of tables that have been read."""
        history = self._history(branch)
        if history is None:
            return None
        entries = reversed(history.recorded.entries())
        found = next((entry for entry in entries if entry.epoch == epoch and entry.captured), None)
        return None if found is None else history.recorded.with_counts([found])[0]
