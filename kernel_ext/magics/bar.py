"""A progress bar in a notebook: widgets while the work goes on, a plain line in their place at its end."""

from __future__ import annotations

from typing import Any

import ipywidgets
from IPython.display import DisplayHandle

from streamstate.magics.table import Table

__all__ = ["Bar"]

# The front end's messages wait while a cell runs, so that a button could not be pressed.
_HINT = "interrupt the kernel (■) to stop"


class Bar:
    """A bar, a line beside it, and how to stop; nothing of it is left once it is settled."""

    def __init__(self) -> None:
        self._bar = ipywidgets.FloatProgress(min=0.0, max=1.0, layout=ipywidgets.Layout(width="14em", flex="0 0 auto"))
        self._line = ipywidgets.Label()
        self._hint = ipywidgets.Label(_HINT, layout=ipywidgets.Layout(flex="0 0 auto"))
        self._hint.style.text_color = "var(--jp-ui-font-color2, gray)"
        self._box = ipywidgets.HBox(
            [self._bar, self._line, self._hint], layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center")
        )
        self._handle: Any = None  # IPython is not typed

    def show(self, line: str, share: float | None) -> None:
        """Move the bar and change the line; without a share there is only the line."""
        self._bar.layout.display = "none" if share is None else None
        self._bar.value = share or 0.0
        self._bar.tooltip = line
        self._line.value = line
        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(self._box)

    def settle(self, line: str) -> None:
        """Put a plain line where the bar was, which is what a saved notebook keeps, and close the widgets."""
        if self._handle is not None:
            self._handle.update(Table([], [], empty=line))
        for widget in (self._bar, self._line, self._hint, self._box):
            widget.style.close() if hasattr(widget, "style") else None
            widget.layout.close()
            widget.close()
