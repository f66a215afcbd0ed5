"""Builds a key history view's drawings from a history, keeping the story while nothing new is captured."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError, UnknownTableError
from streamstate.state_inspect.state_table import check_key
from streamstate.widgets.key_life import static
from streamstate.widgets.key_life.drawing import KeyDrawing, Page, Plots, row_of
from streamstate.widgets.key_life.keys import alike, fields_of, key_typed, typable
from streamstate.widgets.key_life.plots import GAPS, column_chart
from streamstate.widgets.key_life.selection import PLOTS, Selection, changed
from streamstate.widgets.key_life.story import Epochs, Story, story_of
from streamstate.widgets.model import Drawing, Focus, ViewModel
from streamstate.widgets.values import canonical

if TYPE_CHECKING:
    from streamstate.state_inspect import History

__all__ = ["KeyLifeModel"]

RUNS = 300
"""Stretches of epochs that all plots together show."""


class KeyLifeModel(ViewModel[Selection]):
    """Reads one history, one drawing at a time whichever threads ask."""

    kind = "key_life"

    def __init__(self, history: History) -> None:
        self.history = history
        self.name = history.name
        self._lock = threading.Lock()
        self._told: tuple[object, Story] | None = None

    def newest(self) -> object:
        """The epochs there are now."""
        with self._lock:
            return self.history.captured()

    def check(self, selection: Selection) -> None:
        """Raise where there is no such table, or the key cannot be one of its keys."""
        if self.history.captured():
            name = self._table_name(selection)
            if selection.key is not None:
                check_key(selection.key, self.history.interval_table(name, -1).key_columns, name)
                self.history.key_history(name, **selection.key)

    def drawing(self, selection: Selection) -> Drawing:
        """The key's changes.

        Raises:
            UnknownTableError: the history has no such table.
            InvalidArgumentError: a value does not fit its key column.
        """
        with self._lock:
            drawn = self._drawing(selection)
        return Drawing(drawn.message(), drawn)

    def acted(self, selection: Selection, action: str, value: Any, kept: Any) -> Selection:
        """Changes are named by number, never by value."""
        if action in ("epoch", "change"):
            epoch = _epoch_at(action, value, kept)
            return selection if epoch is None else replace(selection, marked=(epoch,))
        moved = changed(selection, action, value)
        return self._understood(moved) if action == "typed" else moved

    def text(self, drawing: Drawing) -> str:
        """The drawing in one line."""
        return static.summary(drawing.kept)

    def html(self, drawing: Drawing) -> str:
        """The drawing as a table and still pictures."""
        return static.html(drawing.kept)

    def focus(self, selection: Selection) -> Focus:
        """The epoch that was clicked, the table and the key."""
        epoch = selection.marked[0] if len(selection.marked) == 1 else None
        return Focus(epoch, table=selection.table, key=selection.key)

    def focused(self, selection: Selection, focus: Focus) -> Selection:
        """Another key, and the epochs that are looked at; another table only with a key of it."""
        moved = selection
        if focus.key is not None and canonical(focus.key) != canonical(moved.key):
            moved = Selection(focus.table or moved.table, focus.key, moved.marked, size=moved.size)
        if focus.between is not None:
            return replace(moved, marked=tuple(focus.between))
        if focus.epoch is not None:
            return replace(moved, marked=(focus.epoch,))
        return replace(moved, marked=()) if focus.live else moved

    def release(self) -> None:
        """Let go of the story that is kept."""
        with self._lock:
            self._told = None

    def _understood(self, selection: Selection) -> Selection:
        """The key that was typed; what is no key stays as it was typed, and the drawing says why."""
        with self._lock:
            table = self.history.interval_table(self._table_name(selection), -1)
        try:
            return replace(selection, key=key_typed(table, selection.typed or ()), typed=None)
        except InvalidArgumentError:
            return selection

    def _table_name(self, selection: Selection) -> str:
        """The table that was asked for, or the first that has such keys."""
        tables = self.history.tables()
        if selection.table is not None:
            if selection.table not in tables:
                raise UnknownTableError.among("table", selection.table, tables, where=f"in {self.name!r}")
            return selection.table
        wanted = {*(selection.key or {})}
        fitting = (one for one in tables if wanted == {*self.history.interval_table(one, -1).key_columns})
        return next(fitting, tables[0]) if wanted else tables[0]

    def _drawing(self, selection: Selection) -> KeyDrawing:
        captured = self.history.captured()
        if not captured:
            return KeyDrawing(self.name, selection, told="No epoch is captured yet. The key's changes will show here.")
        name = self._table_name(selection)
        table = self.history.interval_table(name, -1)
        key = selection.key
        fitting = key if key is not None and {*key} == {*table.key_columns} else None
        blank = KeyDrawing(
            name=self.name,
            selection=selection,
            tables=self.history.tables(),
            table=name,
            fields=fields_of(table, fitting, selection.typed),
            typable=typable(table),
            span=(captured[0], captured[-1]),
        )
        if fitting is None:
            return replace(blank, told=_which(selection, name, table))
        story = self._story(name, fitting)
        if not story.changes:
            seen = f"The key {blank.key} was never in {name}, from epoch {captured[0]} to {captured[-1]}."
            return replace(blank, told=f"{seen} Keys are compared exactly.", like=alike(self.history, name, fitting))
        return self._filled(blank, story)

    def _story(self, table: str, key: Mapping[str, Any]) -> Story:
        """The key's changes, read again where epochs have come or gone."""
        entries = self.history.entries()
        state = (table, canonical(key), entries[-1].epoch, len(entries))
        if self._told is None or self._told[0] != state:
            committed = {entry.epoch: entry.committed_at for entry in entries}
            frame = self.history.key_history(table, **key)
            self._told = state, story_of(frame, Epochs.of(entries), committed)
        return self._told[1]

    def _filled(self, blank: KeyDrawing, story: Story) -> KeyDrawing:
        epochs = Epochs.of(self.history.entries())
        plots = _plots(story, epochs, blank.selection)
        return replace(blank, columns=story.columns, plots=plots, page=_page(story, blank.selection), story=story)


def _which(selection: Selection, name: str, table: Any) -> str:
    """Why no key is shown."""
    if selection.typed is not None:
        try:
            key_typed(table, selection.typed)
        except InvalidArgumentError as problem:
            return str(problem)
    columns = ", ".join(table.key_columns)
    if selection.key is not None:
        return f"The key {', '.join(selection.key)} is not one of {name}, whose key is {columns}. Choose another."
    return f"Choose a key of {name} ({columns}): type it here, or click a row in a view that is linked with this one."


def _plots(story: Story, epochs: Epochs, selection: Selection) -> Plots:
    total = len(story.columns)
    if not story.spells:
        return Plots(total=total)
    start = min(selection.column, max(0, total - 1)) // PLOTS * PLOTS
    columns = range(start, min(start + PLOTS, total))
    limit = RUNS // max(1, len(columns))
    charts = [column_chart(story, at, epochs, selection.marked, limit) for at in columns]
    notes = []
    if len(epochs.gaps) > GAPS:
        notes.append(f"The {GAPS} longest of {len(epochs.gaps):,} gaps are shown.")
    comings = sum(one.mark in ("+", "−") for one in story.changes)
    if comings > limit:
        notes.append(f"It came or went {comings:,} times; the newest {limit} are marked.")
    if not total:
        notes.append("This table has no value columns: its keys are all it holds.")
    return Plots(charts, start, total, notes)


def _page(story: Story, selection: Selection) -> Page:
    total = len(story.changes)
    start = min(selection.page, max(0, (total - 1) // selection.size)) * selection.size
    listed = story.changes[::-1][start : start + selection.size]
    now = None
    if selection.marked:
        now = next((at for at, change in enumerate(listed) if change.epoch <= selection.marked[-1]), None)
    if now == 0 and start and story.changes[total - start].epoch <= selection.marked[-1]:
        now = None  # a newer change, on the page before, was in force
    return Page([row_of(change) for change in listed], start, total, now)


def _epoch_at(action: str, value: Any, kept: KeyDrawing | None) -> int | None:
    """The epoch of a change that a person clicked, in the table or in a plot."""
    if kept is None or kept.story is None:
        return None
    changes: Sequence[Any] = kept.listed if action == "epoch" else kept.story.changes
    try:
        at = int(value if action == "epoch" else value["row"][0])
        return changes[at].epoch if 0 <= at < len(changes) else None
    except (KeyError, IndexError, TypeError, ValueError):
        return None  # a page can send anything, and a selection that is cleared names no change
