"""A view as a Jupyter widget, for notebooks that cannot open comms for Panel, such as VS Code."""

from __future__ import annotations

from typing import Any

import anywidget
from traitlets import Unicode

from streamstate.widgets.front import bundle
from streamstate.widgets.live.hosts import HostedPages, hiding
from streamstate.widgets.live.live_view import Live


class ViewWidget(anywidget.AnyWidget):
    """Shows a view; it can be used in ipywidgets' layouts like any other widget."""

    _esm = bundle("widget_host")
    hiding = Unicode().tag(sync=True)
    """The style that hides the still forms beside the widget."""

    def __init__(self, shown: Live[Any]) -> None:
        super().__init__()
        self._stills: list[str] = []
        self._hosted = HostedPages(shown, self._post)
        self.on_msg(self._received)

    def hides(self, still: str) -> None:
        """Hide a still form, by the name of its element, while the widget is shown."""
        self._stills.append(still)
        self.hiding = hiding(*self._stills)

    def _post(self, content: dict[str, Any]) -> None:
        if self.comm is not None:  # None once it is closed
            self.send(content)

    def _received(self, _: Any, content: Any, buffers: Any) -> None:
        self._hosted.received(content)

    def mimebundle(self) -> dict[str, Any]:
        """Return the notebook's output for the widget, without text: the still form beside it is shown elsewhere."""
        shown: Any = self._repr_mimebundle_()
        return dict(shown[0] if isinstance(shown, tuple) else shown) | {"text/plain": ""}

    def close(self) -> None:
        """Drop the pages and hang up. Idempotent."""
        self._hosted.close()
        super().close()
