"""What a notebook or a served page shows: views of a query's state, and of a whole store."""

from __future__ import annotations

from streamstate.widgets.browser.state_browser import StateBrowser
from streamstate.widgets.dashboard.query_dashboard import QueryDashboard
from streamstate.widgets.diffs.diff_view import DiffView
from streamstate.widgets.key_life.key_history_view import KeyHistoryView
from streamstate.widgets.model import Focus
from streamstate.widgets.overview.store_overview import StoreOverview
from streamstate.widgets.timeline.timeline import Timeline
from streamstate.widgets.view import View, close_all, link

__all__ = [
    "DiffView",
    "Focus",
    "KeyHistoryView",
    "QueryDashboard",
    "StateBrowser",
    "StoreOverview",
    "Timeline",
    "View",
    "close_all",
    "link",
]
