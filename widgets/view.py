"""A view: an object that a notebook shows, live where there is a kernel and still where there is none."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from streamstate.snapshots.errors import StreamStateError
from streamstate.widgets.export.report import BUDGET, SaveReport
from streamstate.widgets.live import comms
from streamstate.widgets.live.environment import widget_needed
from streamstate.widgets.live.pages import Live
from streamstate.widgets.model import Focus, S, ViewModel

if TYPE_CHECKING:
    from streamstate.widgets.live.widget import ViewWidget

__all__ = ["View", "close_all", "link"]


class View(Generic[S]):
    """What every view can do: show itself, be told where to look, be linked with others, and be closed.

    At the end of a notebook's cell it is live; in a saved notebook and in exported HTML a still table or picture
    stands in its place; elsewhere, a line of text.

    Args:
        model: builds what is seen.
        selection: what is shown first.
    """

    def __init__(self, model: ViewModel[S], selection: S) -> None:
        self.model = model
        self._live = Live(model, selection, ended=self._settle, chosen=self._chosen)
        self._listeners: list[Callable[[Focus], None]] = []
        self._displays: list[str] = []
        self._closed = False
        self._widget: ViewWidget | None = None

    @property
    def selection(self) -> S:
        """Everything that is chosen in the view now."""
        return self._live.selection

    @property
    def focus(self) -> Focus:
        """What the view looks at, in the terms that all views share.

        Example:
            >>> StateBrowser(store["delays"], epoch=12).focus.epoch  # doctest: +SKIP
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
        """Look somewhere else, as if a person had chosen it; what is left out stays.

        Args:
            epoch: an epoch.
            between: two epochs, for views that compare.
            table: a state table.
            key: one key, its columns with their values.
            live: follow the newest epoch.
            query: a query of the store, for views that show several.

        Example:
            >>> browser.look(epoch=12, key={"carrier": "HA", "origin": "JFK"})  # doctest: +SKIP
        """
        self.look_at(Focus(epoch, between, table, key, live, query))

    def look_at(self, focus: Focus) -> None:
        """Look where another view looks; a view that is closed stays as it is.

        Args:
            focus: another view's :attr:`focus`.

        Example:
            >>> diff.look_at(timeline.focus)  # doctest: +SKIP
        """
        if not self._closed:
            self._live.select(self.model.focused(self.selection, focus))

    def on_look(self, listener: Callable[[Focus], None]) -> Callable[[], None]:
        """Hear of each change a person makes to what is looked at.

        Args:
            listener: called with the new focus, on a thread of the view; it must be quick and must not print.

        Returns:
            A function that ends it; closing the view does too.

        Example:
            >>> stop = browser.on_look(lambda focus: print(focus.epoch))  # doctest: +SKIP
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _chosen(self, selection: S) -> None:
        """Tell those who listen."""
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
        """Display under a name, so that closing can put the last drawing in the place of the first."""
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        handle = display(data, metadata=metadata, raw=True, display_id=True)
        if handle and not self._closed:
            self._displays.append(handle.display_id)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Text, an escaped still form and, where there is a kernel, the script that brings it to life."""
        address = None if self._closed else comms.offer(self._live)
        if address is None:
            return self._still(), {}
        if widget_needed():
            return self.widget().mimebundle() | self._still(), {}
        display = uuid.uuid4().hex
        return self._still(comms.bootstrap(address, display)) | {comms.EXEC: ""}, {comms.EXEC: {"id": display}}

    def __panel__(self) -> Any:
        """The view as a component of Panel: ``pn.Column(view, other)``, in a notebook or an app."""
        from streamstate.widgets.live.component import component

        return component(self._live)

    def widget(self) -> ViewWidget:
        """The view as a Jupyter widget, for notebooks that lack Panel's line to the kernel and for ipywidgets' layouts.

        In VS Code and Colab the view shows itself that way. It is one widget, however often it is shown.

        Example:
            >>> ipywidgets.HBox([browser.widget(), other.widget()])  # doctest: +SKIP
        """
        from streamstate.widgets.live.widget import ViewWidget

        if self._widget is None:
            self._widget = ViewWidget(self._live)
            comms.offer(self._live)  # so that it is closed with all others
            if self._closed:
                self._widget.close()
        return self._widget

    def save(
        self,
        path: str | Path,
        *,
        epochs: Sequence[int] | None = None,
        budget: int = BUDGET,
        overwrite: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> SaveReport:
        """Write one HTML file that shows the view without a kernel, also tomorrow and elsewhere: its slider works.

        The file holds the view at some epochs and, as far as they fit, the next pages, orders and key histories.

        Args:
            path: the file.
            epochs: which epochs; by default all that were captured or, where they do not fit, as many as do, evenly
                chosen, the newest among them.
            budget: bytes that the file may have.
            overwrite: replace a file that is there.
            progress: called with how many steps of how many are done; twice from the start, for epochs and the rest.

        Returns:
            What the file holds, and what was left out and why; the file says the same.

        Raises:
            InvalidArgumentError: the file is there, cannot be written, or the budget is too small for anything.
            UnknownEpochError: an epoch was not captured.

        Example:
            >>> print(browser.save("delays.html", epochs=range(10, 20)))  # doctest: +SKIP
            delays.html: 184,211 of 5,000,000 bytes · 10 epochs · 211 drawings
        """
        from streamstate.widgets.export.saving import save

        return save(
            self.model, self.selection, path, epochs=epochs, budget=budget, overwrite=overwrite, progress=progress
        )

    def _still(self, script: str = "") -> dict[str, str]:
        """The forms of the current drawing that need no kernel; the script goes beside the still one."""
        drawing = self.model.drawing(self.selection)
        still = f'<div class="streamstate-static">{self.model.html(drawing)}</div>'
        return {
            "text/plain": self.model.text(drawing),
            "text/html": f'<div class="streamstate">{still}{script}</div>',
        }

    def _settle(self) -> None:
        """Leave what was looked at last in the notebook, still; what cannot be read leaves what is there."""
        if self._widget is not None:
            self._widget.close()
        displays, self._displays = self._displays, []
        if not displays:
            return
        from IPython.display import update_display

        with contextlib.suppress(StreamStateError, OSError):
            for display in displays:
                update_display(self._still(), raw=True, display_id=display)

    def close(self) -> None:
        """Stop following and let go of every page; the view becomes still. Idempotent."""
        self._closed = True
        self._listeners.clear()
        comms.withdraw(self._live)
        self._live.close()


def link(*views: View[Any]) -> None:
    """Let views look at the same: what is chosen in one of them, the others show.

    Args:
        views: two or more; each takes over what it has a use for: the epoch, two epochs, the table, the key.

    Example:
        >>> link(timeline, browser, diff)  # doctest: +SKIP
    """
    for view in views:
        for other in views:
            if other is not view:
                view.on_look(other.look_at)


def close_all() -> None:
    """Close every view that a page shows or could show, and take the line to pages down.

    Example:
        >>> close_all()
    """
    comms.hang_up()
