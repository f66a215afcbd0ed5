"""A view: an object that a notebook shows, live if there is a kernel, and still otherwise."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from streamstate.errors import StreamStateError
from streamstate.snapshots.calls.html import tag
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.state_inspect.cell_text import timestamp
from streamstate.widgets import still
from streamstate.widgets.export.saving import BUDGET, SaveReport, save
from streamstate.widgets.live import hosts
from streamstate.widgets.live.live_view import Live
from streamstate.widgets.live.outputs import StillOutputs
from streamstate.widgets.model import Drawing, Focus, S, ViewModel

if TYPE_CHECKING:
    from streamstate.widgets.live.widget import ViewWidget


class View(Generic[S]):
    """The base of all views: each is shown, looks at a place, can be linked with other views, and is closed.

    At the end of a notebook's cell, the view is live. In a saved notebook and in exported HTML it is a still table or
    picture; elsewhere, a line of text.

    Args:
        model: builds the drawings.
        selection: what is shown first.
    """

    def __init__(self, model: ViewModel[S], selection: S) -> None:
        model.check(selection)
        self.model = model
        self._live = Live(model, selection, ended=self._ended, chosen=self._chosen, settled=self._settled)
        self._listeners: list[Callable[[Focus], None]] = []
        self._outputs = StillOutputs()
        self._widget: ViewWidget | None = None

    @property
    def selection(self) -> S:
        """Everything that is chosen in the view now."""
        return self._live.selection

    @property
    def focus(self) -> Focus:
        """The place that the view looks at, in terms that all views share.

        Example:
            >>> StateBrowser(store["delays"], epoch=12).focus.epoch
            12
        """
        return self.model.focus(self.selection)

    def look(
        self,
        *,
        epoch: int | None = None,
        between: tuple[int, int] | None = None,
        table: str | None = None,
        key: Mapping[str, Any] | None = None,
        live: bool = False,
        query: str | None = None,
    ) -> None:
        """Look somewhere else, as if a person had chosen it. What is left out stays the same.

        Args:
            epoch: an epoch.
            between: two epochs, for views that compare.
            table: a state table.
            key: a key: its columns with their values.
            live: follow the newest epoch.
            query: a query of the store, for views that show several.

        Example:
            >>> browser.look(epoch=12, key={"carrier": "HA", "origin": "JFK"})
        """
        given = None if key is None else self.model.key_given(table, key)
        self.look_at(Focus(epoch, between, table, given, live, query))

    def look_at(self, focus: Focus) -> None:
        """Look where another view looks. A closed view does not change.

        Args:
            focus: another view's :attr:`focus`.

        Example:
            >>> diff.look_at(timeline.focus)
        """
        if not self._live.closed:
            self._live.select(self.model.focused(self.selection, focus))

    def on_look(self, listener: Callable[[Focus], None]) -> Callable[[], None]:
        """Call a function whenever a person changes what the view looks at.

        Args:
            listener: receives the new focus, on a thread of the view; it must be quick and must not print.

        Returns:
            A function that removes the listener; closing the view removes it, too.

        Example:
            >>> stop = browser.on_look(lambda focus: print(focus.epoch))
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _chosen(self, selection: S) -> None:
        """Notify the listeners."""
        if self._listeners:
            focus = self.model.focus(selection)
            for listener in tuple(self._listeners):
                listener(focus)

    def __repr__(self) -> str:
        try:
            return self.model.text(self.model.drawing(self.selection))
        except StreamStateError as problem:
            return f"{self.model.name}: {problem}"

    def _ipython_display_(self) -> None:
        """Display the still form, which a saved notebook keeps, and below it what makes the view live, if it can be.

        The live view hides the still form, which follows what it shows.
        """
        from IPython.display import display

        name = self._outputs.add(self._still(self.model.drawing(self.selection)))
        self._live.displayed()
        address = None if self._live.closed else hosts.offer(self._live)
        if address is None:
            self._outputs.clear()
        elif hosts.widget_needed():
            self.widget().hides(name)
            display(self.widget().mimebundle(), raw=True)
        else:
            data, metadata = hosts.bootstrap(address, name)
            display(data, metadata=metadata, raw=True)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the still form: text, and escaped HTML without scripts."""
        return self._still(self.model.drawing(self.selection)), {}

    def _display_(self) -> Any:
        """Return the view in marimo, which shows widgets and has no kernel of Jupyter's."""
        return self.widget()

    def __panel__(self) -> Any:
        """Return the view as a Panel component: ``pn.Column(view, other)``, in a notebook or an app."""
        from streamstate.widgets.live.component import component

        return component(self._live)

    def widget(self) -> ViewWidget:
        """The view as a Jupyter widget, for ipywidgets' layouts and for notebooks that cannot open comms for Panel.

        In VS Code and Colab the view is shown this way. It is always the same widget.

        Example:
            >>> ipywidgets.HBox([timeline.widget(), browser.widget()])
        """
        from streamstate.widgets.live.widget import ViewWidget

        if self._widget is None:
            self._widget = ViewWidget(self._live)
            hosts.offer(self._live)  # so that `close_all` closes it
            if self._live.closed:
                self._widget.close()
        return self._widget

    @long_call("Nothing was saved.")
    def save(
        self,
        path: str | Path,
        *,
        epochs: Sequence[int] | str | None = None,
        budget: int = BUDGET,
        overwrite: bool = False,
        progress: ProgressCallback | None = None,
    ) -> SaveReport:
        """Write the view to an HTML file that works without a kernel, including its slider.

        The file holds the view at up to 100 epochs and, as far as they fit, the next pages, sort orders and key
        histories. An interrupt leaves no file, and an existing one as it was.

        Args:
            path: the file.
            epochs: which epochs to save, such as ``"10..19"`` or ``range(10, 20)``; by default all that are captured.
                Of more than 100, or than fit, it holds the first, the newest, the selected one, those at gaps, restarts
                and forks, and others evenly spaced.
            budget: the largest size of the file, in bytes.
            overwrite: replace an existing file.
            progress: called with a message and the fraction of the work that is done, from 0 to 1: first for the
                epochs, then for the rest.

        Returns:
            What the file holds, and what was left out and why. The file contains the same notes.

        Raises:
            InvalidArgumentError: the file exists or cannot be written, or the budget is too small.
            UnknownEpochError: an epoch was not captured.

        Example:
            >>> print(browser.save("delays.html", epochs=range(10, 12)))
            delays.html: ... of 2,000,000 bytes · 2 epochs · ... drawings
            60 of 62 epochs: not requested.
            ...
        """
        return save(self.model, self.selection, path, epochs, budget, overwrite=overwrite, progress=progress)

    @consistent_read()
    def _still(self, drawing: Drawing) -> dict[str, str]:
        """Return a drawing in its still forms."""
        now = timestamp(dt.datetime.now(dt.UTC).replace(microsecond=0))
        note = tag("p", tag("small", f"As of {now}. Run this cell again {self.model.again}."))
        html = still.place(self.model.name, self.model.html(drawing), note)
        return {"text/plain": self.model.text(drawing), "text/html": html}

    def _settled(self, drawing: Drawing) -> None:
        """Replace the outputs of the notebook; on an error, they stay as they are."""
        if self._outputs:
            with contextlib.suppress(StreamStateError, OSError):
                self._outputs.replace(self._still(drawing))

    def _ended(self) -> None:
        """Leave the last drawing in the outputs of the notebook."""
        if self._widget is not None:
            self._widget.close()
        if self._outputs:
            with contextlib.suppress(StreamStateError, OSError):
                self._settled(self.model.drawing(self.selection))
        self._outputs.clear()

    def close(self, *, wait: bool = True) -> None:
        """Stop following, and close every page; the view becomes still. Idempotent.

        Args:
            wait: wait for the drawing in progress.
        """
        self._listeners.clear()
        self._live.close(wait=wait)
        hosts.withdraw(self._live)


def link(*views: View[Any]) -> None:
    """Link views: what a person chooses in one of them, the others show.

    Args:
        views: two or more; each follows what applies to it: the epoch, two epochs, the table, the key.

    Example:
        >>> link(timeline, browser, diff)
    """
    for view in views:
        for linked in views:
            if linked is not view:
                view.on_look(linked.look_at)


def close_all() -> None:
    """Close every view that a page shows or could show, and stop listening for pages.

    Example:
        >>> close_all()
    """
    hosts.hang_up()
