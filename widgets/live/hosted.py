"""The pages of a view inside a component of another library: Panel's, or a Jupyter widget.

Such a component has one line to all the places that show it, so each message names its page.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping
from typing import Any

from streamstate.widgets import front
from streamstate.widgets.live.pages import Live

__all__ = ["Hosted"]

Send = Callable[[Mapping[str, Any]], None]


class _HostedPage:
    """One page of a component."""

    def __init__(self, name: str, send: Send) -> None:
        self.handled = 0
        self._name = name
        self._send = send
        self.heard()

    def heard(self) -> None:
        """Remember from where the page last spoke: a kernel answers to there, see ``comms.CommPage``."""
        self._context = contextvars.copy_context()

    def send(self, content: Mapping[str, Any]) -> None:
        """Send one message; any thread may."""
        self._context.copy().run(self._send, {"to": self._name, "content": dict(content)})

    def close(self) -> None:
        """Tell the page that nothing comes any more."""
        self.send({"kind": "closed"})


class Hosted:
    """The pages of one component, each of which joins, acts and leaves.

    Args:
        shown: the view.
        send: sends a message to every place that shows the component; any thread may call it.
    """

    def __init__(self, shown: Live[Any], send: Send) -> None:
        self._shown = shown
        self._send = send
        self._lock = threading.Lock()
        self._pages: dict[str, _HostedPage] = {}

    def received(self, message: Any) -> None:
        """One message of a page; what is none is ignored, for a page may send anything."""
        match message:
            case {"from": str(name), "content": {"do": "join"}}:
                self._join(name)
            case {"from": str(name), "content": {"do": "leave"}}:
                self._leave(name)
            case {"from": str(name), "content": {"do": str()} as content}:
                with self._lock:
                    page = self._pages.get(name)
                if page is not None:
                    page.heard()
                    self._shown.received(page, content)

    def _leave(self, name: str) -> None:
        with self._lock:
            page = self._pages.pop(name, None)
        if page is not None:
            self._shown.left(page)

    def _join(self, name: str) -> None:
        self._leave(name)
        page = _HostedPage(name, self._send)
        with self._lock:
            self._pages[name] = page
        page.send({"kind": "module", "script": front.bundle(self._shown.kind), "style": front.style(self._shown.kind)})
        self._shown.joined(page)

    def close(self) -> None:
        """The component is gone, with all of its pages. Idempotent."""
        with self._lock:
            pages, self._pages = list(self._pages.values()), {}
        for page in pages:
            self._shown.left(page)
