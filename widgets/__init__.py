"""What a notebook or a served page shows: views of a query's state, and of a whole store."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamstate.widgets.browser.state_browser import StateBrowser
    from streamstate.widgets.comparison.comparison_view import ComparisonView
    from streamstate.widgets.dashboard.query_dashboard import QueryDashboard
    from streamstate.widgets.debugger.debugger import Debugger
    from streamstate.widgets.diffs.diff_view import DiffView
    from streamstate.widgets.key_life.key_history_view import KeyHistoryView
    from streamstate.widgets.model import Focus
    from streamstate.widgets.overview.store_overview import StoreOverview
    from streamstate.widgets.timeline.timeline import Timeline
    from streamstate.widgets.view import View, close_all, link

__all__ = [
    "ComparisonView",
    "Debugger",
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

_HOMES = {
    "ComparisonView": "comparison.comparison_view",
    "Debugger": "debugger.debugger",
    "DiffView": "diffs.diff_view",
    "Focus": "model",
    "KeyHistoryView": "key_life.key_history_view",
    "QueryDashboard": "dashboard.query_dashboard",
    "StateBrowser": "browser.state_browser",
    "StoreOverview": "overview.store_overview",
    "Timeline": "timeline.timeline",
    **dict.fromkeys(["View", "close_all", "link"], "view"),
}


def __getattr__(name: str) -> Any:
    """Load a view when it is first used: each rests on other parts, and some of those are slow to load."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
