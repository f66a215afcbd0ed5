"""How much of what a query has committed is captured, as a share of what there was to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.magics.running import progress_line

if TYPE_CHECKING:
    from streamstate.magics.progress import Progress
    from streamstate.magics.running import QueryStatus

__all__ = ["CatchingUp"]


class CatchingUp:
    """Called with a query's status again and again while it is waited for.

    Args:
        progress: where to show it.
        epoch: the epoch that is waited for; None: what the query has committed by then.
    """

    def __init__(self, progress: Progress, epoch: int | None = None) -> None:
        self._progress = progress
        self._epoch = epoch
        self._began: int | None = None

    def __call__(self, status: QueryStatus) -> None:
        """Say how far the query is."""
        captured = -1 if status.epoch is None else status.epoch
        if self._began is None:
            self._began = captured
        goal = captured + status.behind if self._epoch is None else self._epoch
        self._progress.say(progress_line(status), captured - self._began, goal - self._began)
