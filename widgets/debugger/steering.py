"""What the buttons of a debugger do to its session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from streamstate.widgets.debugger.drawing import View, key_text

if TYPE_CHECKING:
    from streamstate.widgets.debugger.worker import Worker

__all__ = ["STEERS", "STEPS", "steer"]

STEPS = 1_000
"""Epochs that one press of a button may run or go back, at most."""


def _step(worker: Worker, value: Any, _view: View | None) -> bool:
    n = _number(value)
    what = "Step" if n == 1 else f"{n:,} steps"
    return worker.start(what, lambda progress: worker.session.step(n, progress=progress))


def _until(worker: Worker, value: Any, _view: View | None) -> bool:
    condition = str(value).strip()
    if not condition:
        worker.refuse("Run until", "Say until when, such as max_delay > 300, or error.")
        return False
    return worker.start(
        f"Run until {condition}", lambda progress: worker.session.run_until(condition, progress=progress)
    )


def _until_key(worker: Worker, _value: Any, view: View | None) -> bool:
    if view is None or view.key is None:
        return False
    key: Mapping[str, Any] = dict(view.key)
    what = f"Run until {key_text(key)} changes"
    return worker.start(what, lambda progress: worker.session.run_until(key, progress=progress))


def _back(worker: Worker, value: Any, _view: View | None) -> bool:
    n = _number(value)
    what = "Back" if n == 1 else f"{n:,} epochs back"
    return worker.start(
        what, lambda _progress: worker.session.back(n), said="Went back. The next step begins a branch."
    )


def _goto(worker: Worker, _value: Any, view: View | None) -> bool:
    if view is None or not view.look.go:
        return False
    look = view.look
    return worker.start(look.go, lambda progress: worker.session.goto(look.epoch, progress=progress))


def _interrupt(worker: Worker, _value: Any, _view: View | None) -> bool:
    worker.interrupt()
    return False


def _watch(worker: Worker, value: Any, _view: View | None) -> bool:
    expression = str(value).strip()
    return bool(expression) and worker.start(f"Watch {expression}", lambda _progress: worker.session.watch(expression))


def _unwatch(worker: Worker, value: Any, view: View | None) -> bool:
    if view is None or not isinstance(value, int) or not 0 <= value < len(view.watched):
        return False
    expression = view.watched[value].expression
    return worker.start(f"Unwatch {expression}", lambda _progress: worker.session.unwatch(expression))


STEERS: Mapping[str, Callable[[Worker, Any, View | None], bool]] = {
    "step": _step,
    "until": _until,
    "until_key": _until_key,
    "back": _back,
    "goto": _goto,
    "interrupt": _interrupt,
    "watch": _watch,
    "unwatch": _unwatch,
}
"""Each action of the page that makes the session do something; it returns whether something was begun."""

_MOVES = {"step", "until", "until_key", "back", "goto"}


def steer(worker: Worker, action: str, value: Any, view: View | None) -> bool:
    """Do what a person asked for.

    Args:
        worker: drives the session.
        action: one of :data:`STEERS`.
        value: what the page sent with it.
        view: what the person saw; None where it is no longer known.

    Returns:
        Whether the session is about to move: the view then looks where it stands.
    """
    return STEERS[action](worker, value, view) and action in _MOVES


def _number(value: Any) -> int:
    """How many epochs are meant; one where that cannot be read."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= STEPS else 1
