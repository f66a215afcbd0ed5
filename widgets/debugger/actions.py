"""The selection of a debugger, and its actions and buttons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamstate.state_inspect.cell_text import key_text
from streamstate.widgets.debugger.drawing import DebuggerDrawing
from streamstate.widgets.debugger.tree import WINDOW
from streamstate.widgets.debugger.worker import SessionWorker
from streamstate.widgets.diffs.actions import DiffSelection
from streamstate.widgets.diffs.actions import acted as diff_acted

STEPS = 1_000
"""The most epochs that a press of a button runs or goes back."""


@dataclass(frozen=True)
class DebuggerSelection:
    """The place that a person looks at."""

    look: tuple[str, int] | None = None
    """A branch and one of its epochs; None for the session's current epoch."""
    upto: int | None = None
    """The newest epoch in the tree of branches; None until a person pages through the tree."""
    key: Mapping[str, Any] | None = field(default=None, hash=False)
    """The chosen row among those that differ."""
    diff: DiffSelection = field(default_factory=lambda: DiffSelection(0, 0), hash=False)
    """The order, search and page of those rows; its epochs are ignored."""


def acted(now: DebuggerSelection, action: str, value: Any, view: DebuggerDrawing) -> DebuggerSelection:
    """Return the selection after an action that does not drive the session. An invalid action changes nothing."""
    match action, value:
        case "look", [str(branch), int(epoch)] if _is_dot(view, branch, epoch):
            here = (branch, epoch) == (view.state.name, view.state.epoch)
            return replace(now, look=None if here else (branch, epoch), key=None)
        case "here", _:
            return replace(now, look=None, upto=None)
        case "window", "earlier":
            return replace(now, upto=view.tree.last - WINDOW // 2)
        case "window", "later":
            return replace(now, upto=view.tree.last + WINDOW // 2)
        case "diff", [str(inner), inner_value]:
            return _in_diff(now, inner, inner_value, view)
    return now


def _is_dot(view: DebuggerDrawing, branch: str, epoch: int) -> bool:
    return any((lane.name, dot.epoch) == (branch, epoch) for lane in view.tree.lanes for dot in lane.dots)


def _in_diff(now: DebuggerSelection, action: str, value: Any, view: DebuggerDrawing) -> DebuggerSelection:
    """Return the selection after an action in the table of differences."""
    if view.diff is None:
        return now
    if action == "key":
        if isinstance(value, int) and 0 <= value < len(view.diff.keys):
            key = view.diff.keys[value]
            return replace(now, key=None if key == now.key else key)
        return now
    diff = diff_acted(now.diff, action, value, view.diff.captured)
    return replace(now, diff=diff, key=None if action == "table" else now.key)


def _step(worker: SessionWorker, value: Any, _view: DebuggerDrawing | None) -> bool:
    count = _count(value)
    what = "Step" if count == 1 else f"{count:,} steps"
    return worker.start(what, lambda progress: worker.session.step(count, progress=progress))


def _until(worker: SessionWorker, value: Any, _view: DebuggerDrawing | None) -> bool:
    condition = str(value).strip()
    if not condition:
        worker.refuse("Run until", "Enter a condition, such as max > 300, or error.")
        return False
    return worker.start(
        f"Run until {condition}", lambda progress: worker.session.run_until(condition, progress=progress)
    )


def _until_key(worker: SessionWorker, _value: Any, view: DebuggerDrawing | None) -> bool:
    if view is None or view.key is None:
        return False
    key: Mapping[str, Any] = dict(view.key)
    what = f"Run until {key_text(key)} changes"
    return worker.start(what, lambda progress: worker.session.run_until(key, progress=progress))


def _back(worker: SessionWorker, value: Any, _view: DebuggerDrawing | None) -> bool:
    count = _count(value)
    what = "Back" if count == 1 else f"{count:,} epochs back"
    done = "Went back. The next step starts a branch."
    return worker.start(what, lambda _progress: worker.session.back(count), done=done)


def _goto(worker: SessionWorker, _value: Any, view: DebuggerDrawing | None) -> bool:
    if view is None or not view.look.go:
        return False
    look = view.look
    return worker.start(look.go, lambda progress: worker.session.goto(look.epoch, progress=progress))


def _interrupt(worker: SessionWorker, _value: Any, _view: DebuggerDrawing | None) -> bool:
    worker.interrupt()
    return False


def _watch(worker: SessionWorker, value: Any, _view: DebuggerDrawing | None) -> bool:
    expression = str(value).strip()
    return bool(expression) and worker.start(f"Watch {expression}", lambda _progress: worker.session.watch(expression))


def _unwatch(worker: SessionWorker, value: Any, view: DebuggerDrawing | None) -> bool:
    if view is None or not isinstance(value, int) or not 0 <= value < len(view.watched):
        return False
    expression = view.watched[value].expression
    return worker.start(f"Unwatch {expression}", lambda _progress: worker.session.unwatch(expression))


BUTTONS: Mapping[str, Callable[[SessionWorker, Any, DebuggerDrawing | None], bool]] = {
    "step": _step,
    "until": _until,
    "until_key": _until_key,
    "back": _back,
    "goto": _goto,
    "interrupt": _interrupt,
    "watch": _watch,
    "unwatch": _unwatch,
}
"""The actions that drive the session; each returns whether it started something."""

MOVES = {"step", "until", "until_key", "back", "goto"}
"""Those that move the session, so that the view returns to its current epoch."""


def _count(value: Any) -> int:
    """Return a number of epochs; 1 if it is invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= STEPS else 1
