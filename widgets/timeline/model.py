"""Builds a timeline's drawings from a query's manifest."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.widgets.model import Drawing, Focus, ViewModel
from streamstate.widgets.timeline import static
from streamstate.widgets.timeline.drawing import View
from streamstate.widgets.timeline.marks import forks, marks
from streamstate.widgets.timeline.points import Point, bin_width, binned, points
from streamstate.widgets.timeline.selection import Selection, acted

if TYPE_CHECKING:
    from streamstate.snapshots.lineage import Lineage
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect import History

__all__ = ["LIMIT", "TimelineModel"]

LIMIT = 500
"""Points a plot has at most."""


class TimelineModel(ViewModel[Selection]):
    """Reads one manifest, one drawing at a time whichever threads ask."""

    kind = "timeline"

    def __init__(self, history: History) -> None:
        self.history = history
        self.name = history.name
        self._lock = threading.Lock()
        self._lineage: Lineage | None = None
        self._known: list[Point] = []
        self._seen: object = None

    def newest(self) -> object:
        """Which epochs there are now."""
        return _state(self.history.entries())

    def drawing(self, selection: Selection) -> Drawing:
        """All measures of the epochs of the window."""
        view = self.view(selection)
        return Drawing(view.message(), view)

    def view(self, selection: Selection, limit: int = LIMIT) -> View:
        """What a selection shows now.

        Args:
            selection: what was chosen.
            limit: points a plot has at most; more epochs are put into bins.
        """
        with self._lock:
            every = self._points()
            if not any(point.captured for point in every):
                return View(self.name, selection=selection)
            single = every[-selection.window :] if selection.window else every
            width = bin_width(single[0].first, single[-1].last, limit) if len(single) > limit else 1
            shown = binned(single, width)
            divided = forks(self._kin(), self.name)
            return View(self.name, every, shown, width, marks(single, shown, divided), divided, selection)

    def acted(self, selection: Selection, action: str, value: Any, kept: Any) -> Selection:
        """An epoch, an interval, a window, or the table; only captured epochs can be chosen."""
        return acted(selection, action, value, self.history.captured())

    def text(self, drawing: Drawing) -> str:
        """The drawing in one line."""
        return static.summary(drawing.kept)

    def html(self, drawing: Drawing) -> str:
        """The plots as pictures, and the newest epochs as a table."""
        return static.html(self.view(drawing.kept.selection, static.LIMIT))

    def focus(self, selection: Selection) -> Focus:
        """The interval and its later end, or the epoch."""
        return Focus(selection.epoch, selection.between)

    def focused(self, selection: Selection, focus: Focus) -> Selection:
        """The epoch or interval that another view looks at; one that follows the newest leaves none chosen.

        An epoch that is the later end of the interval here is looked at already: other views show that end.
        """
        if focus.query not in {None, self.name}:
            return selection
        if focus.between:
            return acted(selection, "between", list(focus.between), self.history.captured())
        if focus.live:
            return replace(selection, epoch=None, start=None)
        if focus.epoch is None or focus.epoch == selection.epoch:
            return selection
        return acted(selection, "epoch", focus.epoch, self.history.captured())

    def release(self) -> None:
        """Let go of the points."""
        with self._lock:
            self._known, self._seen = [], None

    def _points(self) -> Sequence[Point]:
        """All epochs, those that were known before not measured again."""
        entries = self.history.entries()
        state = _state(entries)
        if state != self._seen:
            # Retention may have dropped epochs at the beginning, or between; then all are read again.
            kept = self._known if _continues(self._known, entries) else []
            self._known = kept + points(entries[len(kept) :])
            self._seen = state
        return self._known

    def _kin(self) -> Lineage:
        if self._lineage is None:
            from streamstate.snapshots.lineage import Lineage

            self._lineage = Lineage(self.history.layout)
        return self._lineage


def _state(entries: Sequence[Entry]) -> object:
    """Equal as long as there are the same epochs."""
    return (len(entries), entries[0].epoch, entries[-1].epoch, entries[-1].generation) if entries else None


def _continues(known: Sequence[Point], entries: Sequence[Entry]) -> bool:
    """Whether the entries begin with the known points."""
    return len(known) <= len(entries) and all(
        point.first == entry.epoch for point, entry in zip(known, entries, strict=False)
    )
