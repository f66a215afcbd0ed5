"""Builds a debugger's drawings from its session and the session's store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streamstate.snapshots.errors import StreamStateError
from streamstate.widgets.debugger import static
from streamstate.widgets.debugger.drawing import Look, View, error_of
from streamstate.widgets.debugger.looking import Looking
from streamstate.widgets.debugger.seen import Seen, Session
from streamstate.widgets.debugger.selection import Selection
from streamstate.widgets.debugger.steering import STEERS, steer
from streamstate.widgets.debugger.tree import WINDOW, tree
from streamstate.widgets.debugger.watched import watched
from streamstate.widgets.debugger.worker import Worker
from streamstate.widgets.diffs.selection import changed as diff_changed
from streamstate.widgets.model import Drawing, Focus, ViewModel

__all__ = ["DebuggerModel"]


class DebuggerModel(ViewModel[Selection]):
    """Shows one session, and has its steps done in a thread of their own.

    Args:
        session: what is shown and steered.
    """

    kind = "debugger"

    def __init__(self, session: Session) -> None:
        self.worker = Worker(session)
        self.name = self.worker.seen.name
        self._looking = Looking()
        self._lock = threading.Lock()
        self._counts: Sequence[int] = ()

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call a function whenever there is something new to draw, from whatever thread."""
        self.worker.changed = changed

    def newest(self) -> object:
        """What the worker knows, and how many epochs each branch has; what came from elsewhere is looked at anew."""
        now = self.worker.seen
        with self._lock:
            counts = [len(self._looking.captured(now.store, one.name)) for one in now.branches]
            moved = self._counts and counts != self._counts and len(counts) == len(self._counts)
            self._counts = counts
        if moved:
            self.worker.start("Look", lambda _progress: None, quiet=True)
        return self.worker.version, tuple(counts)

    def drawing(self, selection: Selection) -> Drawing:
        """The session as it is, and what is looked at."""
        view = self.view(selection)
        return Drawing(view.message(), view)

    def view(self, selection: Selection) -> View:
        """The same before it is put into a message."""
        worker = self.worker
        now, doing, trouble, said = worker.seen, worker.doing, worker.trouble, worker.said
        with self._lock:
            drawn = tree(now, partial(self._looking.captured, now.store), selection.upto)
            branch, epoch = _looked_at(now, selection)
            whose = _owner(now, branch, epoch)
            if epoch not in self._looking.captured(now.store, whose):
                whose = branch  # which holds the epoch that it shares with its parent, too
            look = Look(branch, epoch, (branch, epoch) == (now.name, now.epoch), _way(now, branch, epoch))
            look = replace(look, told=self._looking.told(now.store, whose, epoch))
            try:
                diff, why = self._looking.diff(now.store, whose, epoch, selection)
            except StreamStateError as problem:
                diff, why = None, str(problem)
            at, values = watched(now, epoch)
            operators = self._looking.operators(now, whose, epoch)
        return View(
            now,
            drawn,
            look,
            doing=None if doing is None or doing.what == "Look" else doing,
            trouble=trouble or error_of(now.report),
            said=said,
            watched=values,
            watched_at=at,
            diff=diff,
            no_diff=why,
            key=selection.key,
            operators=operators,
        )

    def acted(self, selection: Selection, action: str, value: Any, kept: Any) -> Selection:
        """Steps and the like are begun, not waited for; rows are named by number, never by value."""
        view = kept if isinstance(kept, View) else None
        if action in STEERS:
            moves = steer(self.worker, action, value, view)
            return replace(selection, look=None, upto=None) if moves else selection
        return selection if view is None else _looked(selection, action, value, view)

    def text(self, drawing: Drawing) -> str:
        """The drawing in one line."""
        return static.summary(drawing.kept)

    def html(self, drawing: Drawing) -> str:
        """The drawing as a picture of the branches and a table of what the last step changed."""
        return static.html(drawing.kept)

    def focus(self, selection: Selection) -> Focus:
        """The epoch that is looked at, and the key."""
        _, epoch = _looked_at(self.worker.seen, selection)
        return Focus(epoch=epoch, table=selection.diff.table, key=selection.key)

    def focused(self, selection: Selection, focus: Focus) -> Selection:
        """Another view's epoch, where the session's branch has it."""
        now = self.worker.seen
        if focus.epoch is None or focus.epoch not in self._known(now):
            return selection
        return replace(selection, look=None if focus.epoch == now.epoch else (now.name, focus.epoch))

    def epochs(self) -> Sequence[int]:
        """None: a saved file shows the session as it stands."""
        return ()

    def release(self) -> None:
        """Let go of the diff that is held; what runs goes on."""
        with self._lock:
            self._looking.release()

    def close(self) -> None:
        """Interrupt what runs, and begin nothing any more."""
        self.worker.close()
        self.release()

    def _known(self, now: Seen) -> Sequence[int]:
        with self._lock:
            return self._looking.captured(now.store, now.name)


def _looked_at(now: Seen, selection: Selection) -> tuple[str, int]:
    """The branch and epoch: those that were chosen while they are there, else where the session stands."""
    if selection.look is not None and now.branch(selection.look[0]) is not None:
        return selection.look
    return now.name, now.epoch


def _owner(now: Seen, branch: str, epoch: int) -> str:
    """The branch that ran an epoch: an early one of a fork is its parent's."""
    one, passed = now.branch(branch), {branch}
    while one is not None and one.parent is not None and one.epoch is not None and epoch <= one.epoch:
        if one.parent in passed or now.branch(one.parent) is None:
            break
        passed.add(one.parent)
        one = now.branch(one.parent)
    return branch if one is None else one.name


def _way(now: Seen, branch: str, epoch: int) -> str:
    """What going to an epoch is called; empty where the session cannot: it stands there, or left that branch."""
    original = now.original
    line = {now.name, _owner(now, now.name, epoch), "" if original is None else original.name}
    if branch not in line or epoch == now.epoch:
        return ""
    return f"Go back to epoch {epoch:,}" if epoch < now.epoch else f"Run to epoch {epoch:,}"


def _looked(selection: Selection, action: str, value: Any, view: View) -> Selection:
    """The selection after a person looked elsewhere."""
    match action, value:
        case "look", [str(branch), int(epoch)] if _is_dot(view, branch, epoch):
            here = (branch, epoch) == (view.seen.name, view.seen.epoch)
            return replace(selection, look=None if here else (branch, epoch), key=None)
        case "here", _:
            return replace(selection, look=None, upto=None)
        case "window", "earlier":
            return replace(selection, upto=view.tree.last - WINDOW // 2)
        case "window", "later":
            return replace(selection, upto=view.tree.last + WINDOW // 2)
        case "diff", [str(what), inner]:
            return _in_diff(selection, what, inner, view)
    return selection


def _is_dot(view: View, branch: str, epoch: int) -> bool:
    lane = view.tree.lane(branch)
    return lane is not None and any(dot.epoch == epoch for dot in lane.dots)


def _in_diff(selection: Selection, what: str, value: Any, view: View) -> Selection:
    """What was done in the table of differences."""
    if view.diff is None:
        return selection
    if what == "key":
        if isinstance(value, int) and 0 <= value < len(view.diff.keys):
            key = view.diff.keys[value]
            return replace(selection, key=None if key == selection.key else key)
        return selection
    moved = diff_changed(selection.diff, what, value, view.diff.captured)
    return replace(selection, diff=moved, key=None if what == "table" else selection.key)
