"""The facts about an epoch of a branch in a session's store: its diff, its rows, its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import StreamStateError
from streamstate.state_inspect.values import timestamp
from streamstate.widgets.dashboard.operators import Operators, from_plan, from_store
from streamstate.widgets.diffs.model import DiffModel

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.state_inspect import History, Store
    from streamstate.widgets.debugger.session import SessionState
    from streamstate.widgets.diffs.actions import DiffSelection
    from streamstate.widgets.diffs.drawing import DiffDrawing


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
