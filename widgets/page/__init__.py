"""A store as a page in the browser: read-only, for several viewers at once, without Spark."""

from __future__ import annotations

from streamstate.widgets.page.server import Server, serve

__all__ = ["Server", "serve"]
