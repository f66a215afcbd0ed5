"""A view as a Jupyter widget: for notebooks where Panel's line to the kernel is missing, such as in VS Code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget

from streamstate.widgets import front
from streamstate.widgets.live.hosted import Hosted
from streamstate.widgets.live.pages import Live

__all__ = ["ViewWidget"]


class ViewWidget(anywidget.AnyWidget):
    """Shows one view; it stands in ipywidgets' layouts like any other widget.

    Args:
        shown: the view's pages.
    """

    _esm = front.bundle("widget_host")

    def __init__(self, shown: Live[Any]) -> None:
        super().__init__()
        self._hosted = Hosted(shown, self._say)
        self.on_msg(self._heard)

    def _say(self, content: Mapping[str, Any]) -> None:
        if self.comm is not None:  # closed meanwhile
            self.send(dict(content))

    def _heard(self, _: Any, content: Any, buffers: Any) -> None:
        self._hosted.received(content)

    def mimebundle(self) -> dict[str, Any]:
        """What a notebook needs to show it."""
        shown: Any = self._repr_mimebundle_()
        return dict(shown[0] if isinstance(shown, tuple) else shown)

    def close(self) -> None:
        """Leave the page and hang up. Idempotent."""
        self._hosted.close()
        super().close()
