"""A view as a component of Panel, for layouts and apps."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import panel as pn
from panel.custom import JSComponent

from streamstate.widgets.front import bundle
from streamstate.widgets.live.hosts import HostedPages
from streamstate.widgets.live.live_view import Live

_SENDING = threading.Lock()
"""Views of one layout share a document, whose changes must be sent by one thread at a time."""


class Submit(Protocol):
    """Runs work on another thread."""

    def __call__(self, work: Callable[[], None], *, always: bool = False) -> None:
        """Run ``work``; unless ``always``, it may be dropped if too much is waiting."""


def _now(work: Callable[[], None], *, always: bool = False) -> None:  # noqa: ARG001 (as in Submit)
    work()


class ViewComponent(JSComponent):
    """Shows a view wherever Panel shows components."""

    _esm = bundle("panel_host")

    def __init__(self, shown: Live[Any], submit: Submit = _now, **params: Any) -> None:
        super().__init__(**params)  # type: ignore[no-untyped-call]
        self._hosted = HostedPages(shown, self._post)
        self._submit = submit

    def _post(self, content: Mapping[str, Any]) -> None:
        with _SENDING:
            self._send_msg(json.dumps(content))  # as text, because Bokeh changes objects whose names are numbers

    def _handle_msg(self, message: Any) -> None:
        self._submit(lambda: self._hosted.received(message))

    def _cleanup(self, root: Any = None) -> None:
        """Called by Panel when a session ends, or when a notebook's output is removed."""
        super()._cleanup(root)
        if not self._models:
            self._submit(self._hosted.close, always=True)


def component(shown: Live[Any], submit: Submit = _now) -> pn.viewable.Viewable:
    """Return a new component that shows a view, as wide as there is room.

    By default, the work of a message runs on the thread that receives it, which in a server is the event loop.
    """
    return ViewComponent(shown, submit, sizing_mode="stretch_width", margin=0)
