"""The timeline: what every epoch of a query brought and cost, and the place to choose epochs for other views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.widgets.timeline.model import TimelineModel
from streamstate.widgets.timeline.selection import WINDOWS, Selection
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect import History

__all__ = ["Timeline"]


class Timeline(View[Selection]):
    """Shows every epoch of a query: input rows, state rows, changes, duration, watermark lag, capture lag.

    The plots stand below each other on one axis of epochs, with gaps, restarts and forks marked. Pointing at an epoch
    tells its values; a click chooses it, dragging chooses an interval, and views that are linked follow. While the
    query runs, new epochs appear by themselves. Everything is also there as a table.

    Args:
        history: the query, ``store[name]``.
        window: how many of the newest epochs to show first: 100, 500, or None for all. More than 500 are put
            together in bins.

    Raises:
        InvalidArgumentError: where the window is none of these.

    Example:
        >>> Timeline(store["delays"])  # doctest: +SKIP
        delays: 41 epochs captured · newest 40, committed 2026-03-01 12:00:00 +01:00 · input rows 812 · state rows 34
    """

    def __init__(self, history: History, *, window: int | None = WINDOWS[-1]) -> None:
        if window not in {*WINDOWS, None}:
            raise InvalidArgumentError(
                f"A timeline shows the newest {' or '.join(map(str, WINDOWS))} epochs, or all of them (None), "
                f"not {window!r}."
            )
        super().__init__(TimelineModel(history), Selection(window=window))
