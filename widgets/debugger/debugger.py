"""The debugger: a session that steps through a query's epochs, seen and steered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.widgets.debugger.model import DebuggerModel
from streamstate.widgets.debugger.selection import Selection
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.widgets.debugger.seen import Session

__all__ = ["Debugger"]


class Debugger(View[Selection]):
    """Shows a debugging session: its branches, what its last step changed, what is watched, the query's operators.

    Buttons step, go back, and run until a condition holds; what they begin runs in a thread of its own, shows how far
    it is, and can be interrupted. Choosing an epoch of any branch shows what that epoch changed. In a saved notebook
    and in exported HTML the branches and the changes stand in its place; elsewhere, a line of text.

    Closing the view interrupts what it began; the session stays as it is.

    Args:
        session: what ``ss.debug(…)`` returned.

    Example:
        >>> Debugger(ss.debug(build, "checkpoints/delays", at=12))  # doctest: +SKIP
        debug_delays: stands at epoch 12 · forked from delays after epoch 12
    """

    def __init__(self, session: Session) -> None:
        model = DebuggerModel(session)
        super().__init__(model, Selection())
        self._driven = model
        model.on_change(self._live.wake)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until what a button began is done.

        Args:
            timeout: seconds after which to give up.

        Returns:
            Whether nothing runs any more.

        Example:
            >>> debugger.wait(timeout=60)  # doctest: +SKIP
            True
        """
        return self._driven.worker.wait(timeout)

    def close(self) -> None:
        """Interrupt what runs, stop following, and leave the still form. Idempotent."""
        self._driven.close()
        super().close()
