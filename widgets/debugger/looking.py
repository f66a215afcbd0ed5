"""What a session's store says of one epoch of one branch: its diff, its rows, its operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import StreamStateError
from streamstate.widgets.dashboard.operators import Operators, from_plan, from_store
from streamstate.widgets.diffs.model import DiffModel
from streamstate.widgets.values import timestamp

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect import History, Store
    from streamstate.widgets.debugger.seen import Seen
    from streamstate.widgets.debugger.selection import Selection
    from streamstate.widgets.diffs.drawing import DiffDrawing

__all__ = ["Looking"]


class Looking:
    """Reads the store of a session; one thread at a time."""

    def __init__(self) -> None:
        self._store: Store | None = None
        self._path = ""
        self._diffs: dict[str, DiffModel] = {}

    def history(self, path: str, branch: str) -> History | None:
        """A branch's captured epochs; None where the store does not have it."""
        from streamstate.state_inspect import open_store

        try:
            if self._store is None or self._path != path:
                self._store, self._path = open_store(path), path
            return self._store[branch] if branch in self._store else None  # noqa: SIM401 (a store is no dict)
        except StreamStateError:  # nothing is captured yet
            return None

    def captured(self, path: str, branch: str) -> Sequence[int]:
        """A branch's captured epochs, ascending."""
        history = self.history(path, branch)
        return () if history is None else history.captured()

    def told(self, path: str, branch: str, epoch: int) -> tuple[str, ...]:
        """What is known of an epoch."""
        entry = self._entry(path, branch, epoch)
        if entry is None or not entry.captured:
            return ("not in the session's store",)
        rows = sum(table.rows for table in entry.tables.values())
        changes = sum(table.changes for table in entry.tables.values())
        told = [f"{rows:,} rows of state", f"{changes:,} changed"]
        if entry.committed_at is not None:
            told.append(f"committed {timestamp(entry.committed_at)}")
        return tuple(told)

    def diff(self, path: str, branch: str, epoch: int, selection: Selection) -> tuple[DiffDrawing | None, str]:
        """What an epoch changed, and, where that is not known, why."""
        history = self.history(path, branch)
        captured = () if history is None else history.captured()
        if history is None or epoch not in captured:
            return None, f"Epoch {epoch:,} of {branch} is not in the session's store."
        before = [known for known in captured if known < epoch]
        if not before:
            return (
                None,
                f"Epoch {epoch:,} is the first that is known of {branch}: there is none before to compare with.",
            )
        model = self._diffs.get(branch)
        if model is None:
            self.release()
            model = self._diffs[branch] = DiffModel(history)
        table = selection.diff.table if selection.diff.table in history.tables() else None
        chosen = replace(selection.diff, a=before[-1], b=epoch, table=table, key=selection.key)
        drawn: DiffDrawing = model.drawing(chosen).kept
        return drawn, ""

    def operators(self, now: Seen, branch: str, epoch: int) -> Operators | None:
        """The operators: Spark's plan of the last step where that is what is looked at, else what the store tells."""
        entry = self._entry(now.store, branch, epoch)
        tables = [] if entry is None else list(entry.tables)
        ran = None if now.report is None else now.report.last
        if now.plan is not None and now.plan.nodes and ran is not None and (now.name, ran.epoch) == (branch, epoch):
            return from_plan(now.plan, complete=True, progress=None, tables=tables)
        return None if entry is None or not entry.captured else from_store(entry)

    def release(self) -> None:
        """Let go of what is held."""
        for model in self._diffs.values():
            model.release()
        self._diffs.clear()

    def _entry(self, path: str, branch: str, epoch: int) -> Any:
        history = self.history(path, branch)
        entries: Sequence[Entry] = () if history is None else history.entries()
        return next((one for one in reversed(entries) if one.epoch == epoch), None)
