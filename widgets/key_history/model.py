"""The key history view: one key of a state table through all epochs."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.state_inspect.cell_text import canonical, cell, key_text
from streamstate.state_inspect.expiry_times import expiry_columns
from streamstate.state_inspect.keys.key_text import spelled
from streamstate.state_inspect.keys.table_key import TableKey
from streamstate.state_inspect.python_rows import records
from streamstate.state_inspect.results.naming import naming_note
from streamstate.state_inspect.results.results import ShownColumns, shown_columns
from streamstate.widgets.key_history.actions import PLOTS, KeySelection, acted
from streamstate.widgets.key_history.drawing import KeyChangePage, KeyField, KeyHistoryDrawing, KeyPlots
from streamstate.widgets.key_history.plots import GAPS, column_chart
from streamstate.widgets.key_history.story import EpochRuns, Story, story_of
from streamstate.widgets.model import (
    SAVED_PAGES,
    Drawing,
    Focus,
    ViewModel,
    chosen_table,
    clicked,
    first_row,
    tables_shown,
)
from streamstate.widgets.state_browser.rows import table_at
from streamstate.widgets.view import View
from streamstate.widgets.why import WhyReader

if TYPE_CHECKING:
    from streamstate.state_inspect import History

RUNS = 300
"""The most runs of values in all plots together."""
_LIKE = 5
"""The most similar keys that are suggested."""
_LOOKED_AT = 200
"""The most keys that are compared for each column."""


class KeyHistoryModel(ViewModel[KeySelection]):
    """Reads one history; a lock allows one drawing at a time."""

    kind = "key_history"

    def __init__(self, history: History) -> None:
        self.history = history
        self.name = history.name
        self._lock = threading.Lock()
        self._cached: tuple[object, Story] | None = None
        self._why = WhyReader(history)

    def newest(self) -> object:
        """Return the captured epochs, and whether changes can be explained."""
        with self._lock:
            return self.history.captured(), self._why.why_not()

    def check(self, selection: KeySelection) -> None:
        """Raise if there is no such table, or if the key does not fit its key columns."""
        if self.history.captured():
            name = self._table_name(selection)
            if selection.key is not None:
                TableKey.of(self.history.recorded, name).given({"key": selection.key})
            if selection.why is not None:
                self.history.at(selection.why)

    @consistent_read()
    def quick(self, selection: KeySelection) -> Drawing:
        """Return the drawing without an explanation that is still to be read; the next drawing has it."""
        view = self.view(selection, whole=False)
        return Drawing(view.message(), view, unfinished=view.why is not None and view.why.busy)

    def view(self, selection: KeySelection, *, whole: bool = True) -> KeyHistoryDrawing:
        """Return the key's changes, and why one of them happened."""
        with self._lock:
            shown = replace(self._view(selection), why_not=self._why.why_not())
        if selection.why is None or shown.story is None or shown.table is None:
            return shown
        # Without the lock: reading takes seconds, and the page may act meanwhile.
        why = self._why.panel(shown.table, selection.key or {}, selection.why, whole=whole)
        return replace(shown, why=why)

    def serve(self) -> None:
        """Explain no changes by their input."""
        self._why.serve()

    def acted(self, selection: KeySelection, action: str, value: Any, kept: Any) -> KeySelection:
        """Return the selection after an action. A page names changes by number, never by value."""
        if action in ("epoch", "change"):
            drawn: KeyHistoryDrawing | None = kept
            if drawn is None or drawn.story is None:
                return selection
            change = clicked(drawn.page.rows if action == "epoch" else drawn.story.changes, value)
            if change is None:
                return selection
            why = change.epoch if action == "change" and not self._why.why_not() else selection.why
            return replace(selection, marked=(change.epoch,), why=why)
        moved = acted(selection, action, value)
        if action == "why":
            self._why.again()
            return moved if moved.why is None else replace(moved, marked=(moved.why,))
        return self._parsed(moved) if action == "typed" else moved

    def focus(self, selection: KeySelection) -> Focus:
        """Return the epoch that was clicked, the table and the key."""
        epoch = selection.marked[0] if len(selection.marked) == 1 else None
        return Focus(epoch, table=selection.table, key=selection.key)

    def focused(self, selection: KeySelection, focus: Focus) -> KeySelection:
        """Return the key and epochs of another view; its table only together with a key."""
        moved = selection
        if focus.key is not None and canonical(focus.key) != canonical(moved.key):
            moved = KeySelection(focus.table or moved.table, focus.key, moved.marked, size=moved.size)
        if focus.between is not None:
            return replace(moved, marked=tuple(focus.between))
        if focus.epoch is not None:
            return replace(moved, marked=(focus.epoch,))
        return replace(moved, marked=()) if focus.live else moved

    def epochs(self) -> Sequence[int]:
        """None: every drawing shows all epochs."""
        return ()

    def saved_actions(self, selection: KeySelection, drawing: Drawing) -> Iterable[tuple[str, Any]]:
        """Yield the next pages of changes, and the columns beside those that are drawn."""
        view: KeyHistoryDrawing = drawing.kept
        if view.why is not None:
            yield "why", None
        pages = -(-view.page.total // selection.size)
        yield from (("page", page) for page in range(min(pages, SAVED_PAGES)) if page != selection.page)
        columns = (view.plots.start - 1, view.plots.start + len(view.plots.charts))
        yield from (("column", column) for column in columns if 0 <= column < view.plots.total)

    def release(self) -> None:
        """Drop the cached changes."""
        with self._lock:
            self._cached = None

    def _parsed(self, selection: KeySelection) -> KeySelection:
        """Return the key that was typed; invalid text stays in the fields, and the drawing says what is wrong."""
        with self._lock:
            table = TableKey.of(self.history.recorded, self._table_name(selection))
        try:
            return replace(selection, key=_key_typed(table, selection.typed or ()), typed=None)
        except InvalidArgumentError:
            return selection

    def _table_name(self, selection: KeySelection) -> str:
        """Return the chosen table, or the first with such keys."""
        if selection.table is not None or not selection.key:
            return chosen_table(self.history, selection.table)
        tables = tables_shown(self.history)
        columns = {name: {*shown_columns(self.history.recorded, name).key_columns} for name in tables}
        return next((name for name in tables if columns[name] == {*selection.key}), tables[0])

    def _view(self, selection: KeySelection) -> KeyHistoryDrawing:
        captured = self.history.captured()
        if not captured:
            waiting = "No epoch has been captured yet. The key's changes will appear here."
            return KeyHistoryDrawing(self.name, selection, why_empty=waiting)
        name = self._table_name(selection)
        table = shown_columns(self.history.recorded, name)
        key = selection.key
        fitting = key if key is not None and {*key} == {*table.key_columns} else None
        blank = KeyHistoryDrawing(
            name=self.name,
            selection=selection,
            tables=tables_shown(self.history),
            table=name,
            fields=_fields(table, fitting, selection.typed),
            span=(captured[0], captured[-1]),
            naming=naming_note(self.history.recorded, name),
        )
        if fitting is None:
            return replace(blank, why_empty=_why_empty(selection, name, TableKey.of(self.history.recorded, name)))
        story = self._story(name, fitting)
        if not story.changes:
            absent = f"The key {blank.key} was not in {name} at any epoch from {captured[0]} to {captured[-1]}."
            similar = _alike(self.history, name, fitting)
            return replace(blank, why_empty=f"{absent} Keys must match exactly.", like=similar)
        plots = _plots(story, selection)
        return replace(blank, columns=story.columns, plots=plots, page=_page(story, selection), story=story)

    def _story(self, table: str, key: Mapping[str, Any]) -> Story:
        """Return the key's changes, cached until epochs are added or dropped."""
        entries = self.history.recorded.entries()
        state = (table, canonical(key), entries[-1].epoch, len(entries))
        if self._cached is None or self._cached[0] != state:
            changes = self.history.key_history_arrow(table, key=key)
            expiring = expiry_columns(self.history.recorded, table)
            self._cached = state, story_of(changes, EpochRuns.of(entries), expiring)
        return self._cached[1]


def _why_empty(selection: KeySelection, name: str, table: TableKey) -> str:
    """Return the reason why no key is shown."""
    if selection.typed is not None:
        try:
            _key_typed(table, selection.typed)
        except InvalidArgumentError as problem:
            return str(problem)
    columns = ", ".join(table.columns)
    if selection.key is not None:
        return f"{name} has no key {', '.join(selection.key)}: its key columns are {columns}. Choose another key."
    return f"Choose a key of {name} ({columns}): type it here, or click its row in a state browser."


def _plots(story: Story, selection: KeySelection) -> KeyPlots:
    total = len(story.columns)
    if not story.spells:
        return KeyPlots(total=total)
    start = min(selection.column, max(0, total - 1)) // PLOTS * PLOTS
    columns = range(start, min(start + PLOTS, total))
    limit = RUNS // max(1, len(columns))
    charts = [column_chart(story, at, selection.marked, limit) for at in columns]
    notes = []
    if len(story.epochs.gaps) > GAPS:
        notes.append(f"The {GAPS} longest of {len(story.epochs.gaps):,} gaps are shown.")
    events = sum(change.mark in ("+", "−") for change in story.changes)
    if events > limit:
        notes.append(f"The key was added or removed {events:,} times; the newest {limit} are marked.")
    if not total:
        notes.append("This table has no value columns, only keys.")
    return KeyPlots(charts, start, total, notes)


def _page(story: Story, selection: KeySelection) -> KeyChangePage:
    total = len(story.changes)
    start = first_row(selection.page, selection.size, total)
    listed = story.changes[::-1][start : start + selection.size]
    now = None
    if selection.marked:
        now = next((at for at, change in enumerate(listed) if change.epoch <= selection.marked[-1]), None)
    if now == 0 and start and story.changes[total - start].epoch <= selection.marked[-1]:
        now = None  # a newer change, on the page before, was in effect
    return KeyChangePage(listed, start, total, now)


def _fields(table: ShownColumns, key: Mapping[str, Any] | None, typed: Sequence[str] | None) -> list[KeyField]:
    """Return the key columns with the texts in their fields."""
    if key is None:
        texts = (typed or ())[: len(table.key_columns)]
        return [KeyField(name, None, text) for name, text in zip_longest(table.key_columns, texts, fillvalue="")]
    return [KeyField(name, cell(key[name]), spelled(key[name])) for name in table.key_columns]


def _key_typed(table: TableKey, typed: Sequence[str]) -> dict[str, Any]:
    """Return the key that was typed; raises InvalidArgumentError if a text does not fit its column's type."""
    texts = zip_longest(table.columns, typed[: len(table.columns)], fillvalue="")
    return table.read([f"{name}={text}" for name, text in texts], spelling=_in_fields)


def _in_fields(key: Mapping[str, Any]) -> str:
    """Return a key as a person types it into the fields."""
    return ", ".join(f"{name} {spelled(value)}" for name, value in key.items())


def _alike(history: History, name: str, key: Mapping[str, Any]) -> list[str]:
    """Keys of the newest epoch that look similar to a missing key, in words."""
    table = table_at(history, name, history.live().epoch)
    if table is None:
        return []
    found: dict[str, None] = {}
    for column, value in key.items():
        if isinstance(value, str) and value:
            page = table.page_arrow(limit=_LOOKED_AT, contains={column: value[:2]})
            found |= {key_text({part: row[part] for part in table.key_columns}): None for row in records(page)}
    return difflib.get_close_matches(key_text(key), list(found), n=_LIKE, cutoff=0.5)


class KeyHistoryView(View[KeySelection]):
    """Shows one key through the epochs: a plot for each column, and below them each change with its cause.

    In JupyterLab the view is live: it follows new epochs, shows the key that is clicked in a linked view, and a click
    on a change takes linked views to its epoch. In a saved notebook and in exported HTML it is still: pictures and
    the newest changes; elsewhere, a line of text.

    Args:
        history: the query, ``store[name]``.
        table: the state table; by default the first with such keys.
        key: a value for each key column; leave it out to choose the key in a linked view, or to type it.
        why: the epoch of a change to explain at once, as a click on it does; see :meth:`History.why`.

    Raises:
        UnknownTableError: the query has no such table.
        UnknownColumnError: the table's key has no such column.
        InvalidArgumentError: a key column is missing, or a value does not fit its type.
        UnknownEpochError: the epoch to explain was not captured.

    Example:
        >>> KeyHistoryView(store["delays"], "op0", {"carrier": "HA", "origin": "JFK"})
        delays: table op0 · key carrier HA, origin JFK · 62 changes · changed at epoch 61 (input) · in the state now
    """

    def __init__(
        self,
        history: History,
        table: str | None = None,
        key: Mapping[str, Any] | None = None,
        *,
        why: int | None = None,
    ) -> None:
        model = KeyHistoryModel(history)
        given = None if key is None else dict(model.key_given(table, key))
        super().__init__(model, KeySelection(table, given, why=why))
