"""The debugger: a session that steps through a query's epochs, shown and driven."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import StreamStateError
from streamstate.widgets.debugger.actions import BUTTONS, MOVES, DebuggerSelection, acted
from streamstate.widgets.debugger.drawing import DebuggerDrawing, ViewedEpoch
from streamstate.widgets.debugger.session import SessionState, SessionStore, watched
from streamstate.widgets.debugger.tree import tree
from streamstate.widgets.debugger.worker import ActionProblem, SessionWorker
from streamstate.widgets.model import Focus, ViewModel
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.replay.debugging.session import DebugSession
    from streamstate.replay.stepping.step_report import StepReport


class DebuggerModel(ViewModel[DebuggerSelection]):
    """Shows a session, and runs its steps in a separate thread."""

    kind = "debugger"

    def __init__(self, session: DebugSession) -> None:
        self.worker = SessionWorker(session)
        self.name = self.worker.state.name
        self._store = SessionStore(self.worker.state.store)
        self._lock = threading.Lock()
        self._counts: Sequence[int] = ()

    def newest(self) -> object:
        """Return the worker's version and the number of epochs of each branch; reads steps that were made elsewhere."""
        state = self.worker.state
        with self._lock:
            counts = [len(self._store.captured(branch.name)) for branch in state.branches]
            moved = self._counts and counts != self._counts and len(counts) == len(self._counts)
            self._counts = counts
        if moved:
            self.worker.start("Look", lambda _progress: None, quiet=True)
        return self.worker.version, tuple(counts)

    def view(self, selection: DebuggerSelection) -> DebuggerDrawing:
        """Return the session, and the epoch that is looked at."""
        worker = self.worker
        state, doing, trouble, outcome = worker.state, worker.doing, worker.trouble, worker.outcome
        with self._lock:
            branches = tree(state, self._store.captured, selection.upto)
            branch, epoch = _viewed(state, selection)
            owner = _owner(state, branch, epoch)
            if epoch not in self._store.captured(owner):
                owner = branch  # it also holds the epoch that it shares with its parent
            look = ViewedEpoch(
                branch,
                epoch,
                (branch, epoch) == (state.name, state.epoch),
                _go_label(state, branch, epoch),
                self._store.facts(owner, epoch),
            )
            try:
                diff, no_diff = self._store.diff(owner, epoch, selection.diff, selection.key)
            except StreamStateError as problem:
                diff, no_diff = None, str(problem)
            watched_at, values = watched(state, epoch)
            operators = self._store.operators(state, owner, epoch)
        return DebuggerDrawing(
            state,
            branches,
            look,
            doing=None if doing is None or doing.what == "Look" else doing,
            trouble=trouble or _error_of(state.report),
            action_outcome=outcome,
            watched=values,
            watched_at=watched_at,
            diff=diff,
            no_diff=no_diff,
            key=selection.key,
            operators=operators,
        )

    def acted(self, selection: DebuggerSelection, action: str, value: Any, kept: Any) -> DebuggerSelection:
        """Return the selection after an action. Steps are started, not awaited; a page names rows by number."""
        view = kept if isinstance(kept, DebuggerDrawing) else None
        if action in BUTTONS:
            started = BUTTONS[action](self.worker, value, view)
            return replace(selection, look=None, upto=None) if started and action in MOVES else selection
        return selection if view is None else acted(selection, action, value, view)

    def focus(self, selection: DebuggerSelection) -> Focus:
        """Return the epoch that is looked at, and the key."""
        _, epoch = _viewed(self.worker.state, selection)
        return Focus(epoch=epoch, table=selection.diff.table, key=selection.key)

    def focused(self, selection: DebuggerSelection, focus: Focus) -> DebuggerSelection:
        """Return the epoch of another view, if the session's branch has it."""
        state = self.worker.state
        with self._lock:
            captured = self._store.captured(state.name)
        if focus.epoch is None or focus.epoch not in captured:
            return selection
        return replace(selection, look=None if focus.epoch == state.epoch else (state.name, focus.epoch))

    def epochs(self) -> Sequence[int]:
        """None: a saved file shows the session at its current epoch."""
        return ()

    def release(self) -> None:
        """Drop the cached diff; a running step continues."""
        with self._lock:
            self._store.release()

    def close(self) -> None:
        """Interrupt what runs, and start nothing more."""
        self.worker.close()
        self.release()


def _viewed(state: SessionState, selection: DebuggerSelection) -> tuple[str, int]:
    """Return the chosen branch and epoch, if the branch still exists; otherwise the session's current ones."""
    if selection.look is not None and state.branch(selection.look[0]) is not None:
        return selection.look
    return state.name, state.epoch


def _owner(state: SessionState, name: str, epoch: int) -> str:
    """Return the branch that ran an epoch: early epochs of a fork belong to its parent."""
    line = state.line(name)
    ran = (branch.name for branch in line if branch.epoch is None or epoch > branch.epoch)
    return next(ran, line[-1].name if line else name)


def _go_label(state: SessionState, branch: str, epoch: int) -> str:
    """Return the label of the button that goes to an epoch; empty if the session is there, or cannot go there."""
    originals = (known.name for known in state.branches if known.parent is None)
    if epoch == state.epoch or branch not in {state.name, _owner(state, state.name, epoch), *originals}:
        return ""
    return f"Go back to epoch {epoch:,}" if epoch < state.epoch else f"Run to epoch {epoch:,}"


def _error_of(report: StepReport | None) -> ActionProblem | None:
    """Return the error of the query's own code, if that stopped the last steps."""
    if report is None or report.error is None:
        return None
    return ActionProblem.of(f"Epoch {report.epoch + 1:,} failed", report.error)


class Debugger(View[DebuggerSelection]):
    """Shows a debugging session: its branches, what its last step changed, watched values, the query's operators.

    Buttons step, go back, and run until a condition holds. Their work runs in a separate thread, shows its progress,
    and can be interrupted. Choosing an epoch of any branch shows what that epoch changed. In a saved notebook and in
    exported HTML the view is still: the branches and the changes; elsewhere, a line of text.

    Closing the view interrupts what it started; the session stays as it is.

    Args:
        session: what ``ss.Checkpoint(…).debug(…)`` returned.

    Example:
        >>> Debugger(ss.Checkpoint("checkpoints/delays").debug(build_query, at=12))
        debug_delays: at epoch 12 · forked from delays after epoch 12
    """

    def __init__(self, session: DebugSession) -> None:
        model = DebuggerModel(session)
        super().__init__(model, DebuggerSelection())
        self._driven = model
        model.worker.changed = self._live.wake

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the work that a button started is done.

        Args:
            timeout: the most seconds to wait.

        Returns:
            Whether nothing runs any more.

        Example:
            >>> debugger = Debugger(session)
            >>> debugger.wait(timeout=60)
            True
        """
        return self._driven.worker.wait(timeout)

    def close(self, *, wait: bool = True) -> None:
        """Interrupt what runs, stop following, and leave the still form. Idempotent.

        Args:
            wait: wait for the drawing in progress.
        """
        self._driven.close()
        super().close(wait=wait)
