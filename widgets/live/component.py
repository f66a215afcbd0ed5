"""A view as a component of Panel, for layouts and apps."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import panel as pn
from panel.custom import JSComponent

from streamstate.widgets import front
from streamstate.widgets.live.hosted import Hosted
from streamstate.widgets.live.pages import Live

__all__ = ["ViewComponent", "component"]

_SENDING = threading.Lock()
"""Views of one layout share a document, whose changes must leave one thread after another."""


class ViewComponent(JSComponent):
    """Shows one view wherever Panel shows components."""

    _esm = front.bundle("panel_host")

    def __init__(self, shown: Live[Any], **params: Any) -> None:
        super().__init__(**params)  # type: ignore[no-untyped-call]
        self._hosted = Hosted(shown, self._say)

    def _say(self, content: Mapping[str, Any]) -> None:
        with _SENDING:
            self._send_msg(json.dumps(content))  # as text: Bokeh has other ideas of objects whose names are numbers

    def _handle_msg(self, message: Any) -> None:
        self._hosted.received(message)

    def _cleanup(self, root: Any = None) -> None:
        """Called when a session ends or a notebook's output goes: nobody looks any more."""
        super()._cleanup(root)
        if not self._models:
            self._hosted.close()


def component(shown: Live[Any]) -> pn.viewable.Viewable:
    """A new component that shows a view, as wide as there is room.

    Args:
        shown: the view's pages.
    """
    return ViewComponent(shown, sizing_mode="stretch_width", margin=0)
