"""View models, which build drawings from a selection, independent of the host.

One model serves every place that can show a view: a notebook's output, a served page, a saved file, a line of text.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from streamstate.errors import StreamStateError, UnknownTableError
from streamstate.snapshots.calls.html import Html
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.state_inspect.cell_text import canonical

if TYPE_CHECKING:
    from streamstate.state_inspect import History

S = TypeVar("S")
"""The selection: a frozen dataclass that holds everything a person chose, and nothing else."""
T = TypeVar("T")

SIZES = (10, 25, 50, 100)
"""The page sizes to choose from."""
SAVED_PAGES = 5
"""Pages of a table that a saved file offers at most."""
PAGE_ACTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "page": lambda now, value: replace(now, page=max(0, int(value))),
    "size": lambda now, value: replace(now, size=int(value) if int(value) in SIZES else now.size, page=0),
    "why": lambda now, epoch: replace(now, why=None if epoch is None else int(epoch)),
}
"""Turning the page, changing its size, and asking why a key changed, for every selection with these fields."""


@dataclass(frozen=True)
class Drawing:
    """The drawing of a selection.

    Attributes:
        message: what a page needs to draw it, in JSON types.
        kept: what stays in the kernel, such as the keys of the rows, so that an action can refer to them by number.
        unfinished: whether slow parts are still missing; :meth:`ViewModel.drawing` includes them.
    """

    message: Mapping[str, Any]
    kept: Any = None
    unfinished: bool = False


class Shown(Protocol):
    """A view's own drawing, in the three forms that every view has."""

    def message(self) -> dict[str, Any]:
        """As JSON types, for a page."""

    def text(self) -> str:
        """As a line of text, for a terminal."""

    def html(self) -> Html:
        """As HTML without scripts: every text is escaped, plots are still pictures."""


@dataclass(frozen=True)
class Focus:
    """A place that a person looks at, in terms that all views share. A field that a view does not determine is None.

    Attributes:
        epoch: an epoch; with ``live``, the newest one.
        between: two epochs, the earlier first.
        table: a state table.
        key: a key: its columns and their values.
        live: whether the view follows the newest epoch.
        query: a query of a store, in views that show several.
    """

    epoch: int | None = None
    between: tuple[int, int] | None = None
    table: str | None = None
    key: Mapping[str, Any] | None = field(default=None, hash=False)
    live: bool = False
    query: str | None = None


@dataclass(frozen=True)
class NoSelection:
    """The selection of a view in which nothing can be chosen."""


class ViewModel(ABC, Generic[S]):
    """Builds the drawings of one view. Thread-safe: several threads may call it at once.

    A subclass implements :meth:`view`, or else :meth:`drawing`, :meth:`text` and :meth:`html`.

    Attributes:
        kind: the view's JavaScript module, ``front/<kind>.js``, which exports ``render``.
        name: what it shows, such as a query's name; used in the names of threads and files.
        again: why to run the cell of a saved notebook again, as a part of a sentence.
    """

    kind: ClassVar[str]
    epoch_action: ClassVar[str] = "epoch"
    """The action that chooses an epoch."""
    again: ClassVar[str] = "to make it live"
    name: str

    def check(self, selection: S) -> None:
        """Raise if the arguments of a view chose something that does not exist."""

    @abstractmethod
    def newest(self) -> object:
        """Return a value that stays equal until there is something new to draw. Called often, so it must be quick."""

    def view(self, selection: S) -> Shown:
        """Return the view of ``selection`` now."""
        raise NotImplementedError

    @consistent_read()
    def drawing(self, selection: S) -> Drawing:
        """Return the drawing of ``selection`` now, ready to be sent to a page."""
        shown = self.view(selection)
        return Drawing(shown.message(), shown)

    def quick(self, selection: S) -> Drawing:
        """The drawing without its slow parts, so that a page shows the rest at once. By default, the whole drawing."""
        return self.drawing(selection)

    def acted(self, selection: S, action: str, value: Any, kept: Any) -> S:
        """Return the selection after an action of a person; by default, the same. An invalid action changes nothing.

        Args:
            selection: the selection before.
            action: the action's name, such as ``"sort"``.
            value: what the page sent with it, in JSON types. Untrusted.
            kept: :attr:`Drawing.kept` of the drawing that the person saw; None if it is no longer known.
        """
        return selection

    def text(self, drawing: Drawing) -> str:
        """Return a drawing as a line of text, for a terminal."""
        return str(drawing.kept.text())

    def html(self, drawing: Drawing) -> Html:
        """Return a drawing as HTML without scripts: every text is escaped, plots are still pictures."""
        html: Html = drawing.kept.html()
        return html

    def played(self, selection: S) -> S:
        """Return the selection one step later, for a view that plays; by default, the same object."""
        return selection

    def paused(self, selection: S) -> S:
        """Return the selection with playing stopped, because nobody watches."""
        return selection

    def playing(self, selection: S) -> bool:
        """Check if :meth:`played` would change something."""
        return False

    def focus(self, selection: S) -> Focus:
        """Return the place that the person looks at, for linked views."""
        return Focus()

    def focused(self, selection: S, focus: Focus) -> S:
        """Return the selection that follows another view's focus; parts that do not apply to this view are ignored."""
        return selection

    def epochs(self) -> Sequence[int]:
        """Return the epochs that can be chosen, ascending; empty if the view does not show a single query."""
        history: History | None = getattr(self, "history", None)
        return () if history is None else history.captured()

    def events(self) -> Sequence[int]:
        """The captured epochs beside a gap or a restart, and at a fork, ascending: what a saved file keeps first."""
        history: History | None = getattr(self, "history", None)
        if history is None:
            return ()
        found = {fork.epoch for fork in history.forks()}
        for before, after in pairwise(entry for entry in history.recorded.entries() if entry.captured):
            restarted = before.run_id and after.run_id and before.run_id != after.run_id
            if restarted or after.epoch > before.epoch + 1:
                found |= {before.epoch, after.epoch}
        return sorted(found)

    def key_given(self, table: str | None, key: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a key of a table, or of any, as its columns have it; as it is given if it is none of its keys."""
        from streamstate.state_inspect.keys.table_key import TableKey  # loads pandas, which is slow

        history: History | None = getattr(self, "history", None)
        if history is None:
            return key
        for name in [table] if table else tables_shown(history):
            with contextlib.suppress(StreamStateError):
                return TableKey.of(history.recorded, name).given({"key": key})
        return key

    def saved_actions(self, selection: S, drawing: Drawing) -> Iterable[tuple[str, Any]]:
        """Return the actions, besides choosing an epoch, that a person is likely to take at a drawing, likeliest first.

        Each comes with its value, as passed to :meth:`acted`. A saved file answers as many of them as fit.
        """
        return ()

    def serve(self) -> None:
        """Offer nothing beyond what the store holds, because others see the view on a served page."""

    def release(self) -> None:
        """Drop what is cached between drawings, because nobody watches."""


def tables_shown(history: History) -> list[str]:
    """Return the tables of a query: results with other columns than its state, then its state tables."""
    return [*history.results(), *history.tables()]


def chosen_table(history: History, name: str | None) -> str:
    """Return the table with this name; if it is None, the query's result, or its first state table."""
    tables = tables_shown(history)
    if name is not None and name not in tables:
        raise UnknownTableError.among("table", name, tables, where=f"in {history.name!r}")
    return name or tables[0]


def first_row(page: int, size: int, total: int) -> int:
    """Return the number of the first row of a page; a page beyond the end is the last one.

    Example:
        >>> first_row(1, 10, 25), first_row(99, 10, 25), first_row(3, 10, 0)
        (10, 20, 0)
    """
    return min(page, max(0, (total - 1) // size)) * size


def chosen_row(keys: Sequence[Mapping[str, Any]], key: Mapping[str, Any] | None) -> int | None:
    """Return the number of the row with this key, if it is on the page."""
    if not key:
        return None
    chosen = canonical(key)
    return next((row for row, known in enumerate(keys) if canonical(known) == chosen), None)


def applied(actions: Mapping[str, Callable[[S, Any], S]], now: S, action: str, value: Any) -> S:
    """Return the selection after an action. An unknown action, or a value that does not fit it, changes nothing."""
    act = actions.get(action)
    try:
        return act(now, value) if act else now
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return now


def clicked(shown: Sequence[T], value: Any) -> T | None:
    """Return the item that a page names by its number, such as a row or a mark of a plot; None if there is none."""
    try:
        at = int(value["row"][0] if isinstance(value, Mapping) else value)
        return shown[at] if at >= 0 else None
    except (TypeError, ValueError, KeyError, IndexError, OverflowError):
        return None  # a page can send anything, and a cleared choice has no mark
