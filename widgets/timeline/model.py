"""The timeline: what each epoch of a query brought and cost, and a place to choose epochs for other views."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, StreamStateError
from streamstate.snapshots.calls.html import Html
from streamstate.state_inspect.advice.advise import quick_advice
from streamstate.state_inspect.analytics.watermark_lags import WatermarkLags, behind_commit
from streamstate.widgets.model import Drawing, Focus, ViewModel
from streamstate.widgets.number_text import span
from streamstate.widgets.timeline.actions import WINDOWS, TimelineSelection, acted
from streamstate.widgets.timeline.drawing import STILL_POINTS, TimelineDrawing
from streamstate.widgets.timeline.epochs import EpochPoint, bin_width, binned, forks, marks, points, versions
from streamstate.widgets.timeline.variable_marks import VariableMarks
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.state_inspect import History
    from streamstate.state_inspect.advice import Advice

LIMIT = 500
"""The most points of a plot."""


class TimelineModel(ViewModel[TimelineSelection]):
    """Reads one manifest; a lock allows one drawing at a time."""

    kind = "timeline"

    def __init__(self, history: History) -> None:
        self.history = history
        self.name = history.name
        self._lock = threading.Lock()
        self._known: list[EpochPoint] = []
        self._state: object = None
        self._lags = WatermarkLags(history.recorded)
        self._advice: tuple[object, Sequence[Advice]] = None, ()
        self._served = False
        self._variables = VariableMarks(history.recorded)

    def newest(self) -> object:
        """Return the state of the manifest, and whether versions of shared variables are missing in the store."""
        with self._lock:
            return _state(self.history.recorded.entries()), self._variables.state()

    def view(self, selection: TimelineSelection, limit: int = LIMIT, *, whole: bool = True) -> TimelineDrawing:
        """Return all measures of the epochs in the window; more than ``limit`` epochs are put into bins.

        Without ``whole``, the advice is that of an epoch before, which took long to find.
        """
        drawn = self._drawn(selection, limit)
        if drawn.waiting:
            return drawn
        return replace(drawn, advice=self._newest_advice() if whole else self._advice[1])

    def quick(self, selection: TimelineSelection) -> Drawing:
        """Return the drawing without advice that takes long to find; the next drawing has it."""
        shown = self.view(selection, whole=False)
        return Drawing(shown.message(), shown, unfinished=not shown.waiting and self._advice[0] != self._at())

    def serve(self) -> None:
        """Advise from the store alone."""
        self._served = True

    def _drawn(self, selection: TimelineSelection, limit: int) -> TimelineDrawing:
        with self._lock:
            every = self._points(count=selection.count)
            if not any(point.captured for point in every):
                return TimelineDrawing(self.name, selection=selection)
            single = every[-selection.window :] if selection.window else every
            width = bin_width(single[0].first, single[-1].last, limit) if len(single) > limit else 1
            shown = binned(single, width)
            divided = forks(self.history.forks(), self.name)
            version = self.history.recorded.lineage.version(self.name)
            begun = [*versions(version, every[-1].last)]
            marked = marks(single, shown, divided, self._variables.all(), begun)
            return TimelineDrawing(self.name, every, shown, width, marked, divided, selection, self._notes(every))

    def _at(self) -> object:
        """Return a value that stays equal as long as there can be no other advice."""
        return _state(self.history.recorded.entries()), self._lags.basis

    def _newest_advice(self) -> Sequence[Advice]:
        """Return the advice at the newest epoch. Without the lock: the page may act while state is read."""
        at = self._at()
        if self._advice[0] != at:
            try:
                found = quick_advice(self.history.recorded, only_store=self._served)
            except StreamStateError:
                found = []  # what cannot be read is a matter of other views
            self._advice = at, found
        return self._advice[1]

    def acted(self, selection: TimelineSelection, action: str, value: Any, kept: Any) -> TimelineSelection:
        """Return the selection after an action; only captured epochs can be chosen."""
        return acted(selection, action, value, self.history.captured())

    def html(self, drawing: Drawing) -> Html:
        """Return the drawing with fewer points, because a notebook stores it."""
        return self.view(drawing.kept.selection, STILL_POINTS).html()

    def focus(self, selection: TimelineSelection) -> Focus:
        """Return the interval and its later end, or the epoch."""
        return Focus(selection.epoch, selection.between)

    def focused(self, selection: TimelineSelection, focus: Focus) -> TimelineSelection:
        """Return the epoch or interval of another view; following the newest epoch clears the choice.

        The later end of the chosen interval changes nothing: other views show that end of an interval.
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
        """Drop the points."""
        with self._lock:
            self._known, self._state = [], None

    def _points(self, *, count: bool) -> Sequence[EpochPoint]:
        """Return all epochs; only new ones are measured, and those whose rows can be counted now."""
        entries = self.history.recorded.entries()
        self._read(entries, all_of_them=count)
        lags = WatermarkLags(self.history.recorded)
        state = _state(entries), self._counted(), lags.basis
        if state != self._state:
            # Retention may have dropped epochs anywhere; then all of them are read again.
            begins = [point.first for point in self._known] == [entry.epoch for entry in entries[: len(self._known)]]
            kept = self._known if begins and lags.basis == self._lags.basis else []
            self._lags = lags
            self._known = kept + points(entries[len(kept) :], lags.of)
            self._count(entries)
            self._state = state
        return self._known

    def _notes(self, every: Sequence[EpochPoint]) -> list[str]:
        """Sentences for what the plots cannot show."""
        newest = self.history.recorded.live_entry()
        behind = behind_commit(newest)
        if not self._lags.historic or behind is None or any(point.values["lag"] is not None for point in every):
            return []
        return [f"Historic data: the watermark is {span(behind.total_seconds())} behind the commit."]

    def _read(self, entries: Sequence[Entry], *, all_of_them: bool) -> None:
        """Count the state rows at epochs for which nobody has, if that is soon done, or in any case."""
        counted = {point.first for point in self._known if point.values["rows"] is not None}
        uncounted = [entry for entry in entries if entry.captured and entry.rows is None and entry.epoch not in counted]
        if not all_of_them:
            self.history.recorded.counted_soon(uncounted)
            return
        for table in {name: None for entry in uncounted for name in entry.tables}:
            self.history.recorded.counted_rows(uncounted, table)

    def _counted(self) -> object:
        """Return the counts of each state table, or its part in the index."""
        index = self.history.recorded.index
        return [
            (len(index.counts(self.name, table)), [(held.low, held.high) for held in index.loaded(self.name, table)])
            for table in self.history.recorded.tables()
        ]

    def _count(self, entries: Sequence[Entry]) -> None:
        """Count the rows of points that have none, where the index is loaded."""
        places = [at for at, point in enumerate(self._known) if point.captured and point.values["rows"] is None]
        counted = self.history.recorded.with_counts([entries[at] for at in places])
        for at, point in zip(places, points(counted, self._lags.of), strict=True):
            self._known[at] = point


def _state(entries: Sequence[Entry]) -> object:
    """Return a value that stays equal as long as the epochs are the same."""
    return (len(entries), entries[0].epoch, entries[-1].epoch, entries[-1].generation) if entries else None


class Timeline(View[TimelineSelection]):
    """Shows every epoch of a query: input rows, state rows, changes, duration, watermark lag, capture lag.

    The plots share one axis of epochs, with gaps, restarts, forks and settings of shared variables marked. Hovering
    over an epoch shows its values, a click chooses it, and dragging chooses an interval; linked views follow. New
    epochs appear while the query runs. All numbers are also available as a table.

    Args:
        history: the query, ``store[name]``.
        window: how many of the newest epochs to show first: 100, 500, or None for all. More than 500 epochs are put
            into bins.
        count_rows: whether to read the state to count the rows of epochs that capture has not counted. Without it,
            a button does this.

    Raises:
        InvalidArgumentError: the window is none of these.

    Example:
        >>> Timeline(store["delays"])
        delays: 62 epochs captured · newest 61, committed ... · state rows 5 · changes 5 · ...
    """

    def __init__(self, history: History, *, window: int | None = WINDOWS[-1], count_rows: bool = False) -> None:
        if window not in {*WINDOWS, None}:
            raise InvalidArgumentError(
                f"Invalid window={window!r}: expected {', '.join(map(str, WINDOWS))}, or None for all epochs."
            )
        super().__init__(TimelineModel(history), TimelineSelection(window=window, count=count_rows))
