"""What a notebook or a served page shows: views of a query's state, and of a whole store."""

from __future__ import annotations

from streamstate.widgets.browser.state_browser import StateBrowser
from streamstate.widgets.dashboard.query_dashboard import QueryDashboard
from streamstate.widgets.model import Focus
from streamstate.widgets.view import View, close_all, link

__all__ = ["Focus", "QueryDashboard", "StateBrowser", "View", "close_all", "link"]
