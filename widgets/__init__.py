"""What a notebook shows: the state browser."""

from __future__ import annotations

from streamstate.widgets.browser import StateBrowser, close_all

__all__ = ["StateBrowser", "close_all"]
