"""Views of a query's state and of a whole store, for notebooks and served pages.

A small view is a module; the others have a package with the same modules:

- ``actions``: the selection, and its changes by actions such as a slider move; short ones are in ``model``;
- ``model``: reads the store and builds drawings; the public view class is at its end;
- ``drawing``: plain data, JSON for a page, text and still HTML;
- further modules for what only this view needs.

``live`` shows views in pages, ``export`` saves them to files, ``page`` serves a whole store, and ``front`` holds the
JavaScript.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from streamstate.errors import require_extra

if TYPE_CHECKING:
    from streamstate.widgets.comparison import ComparisonView
    from streamstate.widgets.dashboard.model import QueryDashboard
    from streamstate.widgets.debugger.model import Debugger
    from streamstate.widgets.diffs.model import DiffView
    from streamstate.widgets.key_history.model import KeyHistoryView
    from streamstate.widgets.late_rows import LateRowsView
    from streamstate.widgets.load_view import LoadView
    from streamstate.widgets.model import Focus
    from streamstate.widgets.overview import StoreOverview
    from streamstate.widgets.state_browser.model import StateBrowser
    from streamstate.widgets.timeline.model import Timeline
    from streamstate.widgets.variables.model import VariableView
    from streamstate.widgets.variables.variable_slider import VariableSlider
    from streamstate.widgets.view import View, close_all, link

__all__ = [
    "ComparisonView",
    "Debugger",
    "DiffView",
    "Focus",
    "KeyHistoryView",
    "LateRowsView",
    "LoadView",
    "QueryDashboard",
    "StateBrowser",
    "StoreOverview",
    "Timeline",
    "VariableSlider",
    "VariableView",
    "View",
    "close_all",
    "link",
]

_HOMES = {
    "ComparisonView": "comparison",
    "Debugger": "debugger.model",
    "DiffView": "diffs.model",
    "Focus": "model",
    "KeyHistoryView": "key_history.model",
    "LateRowsView": "late_rows",
    "LoadView": "load_view",
    "QueryDashboard": "dashboard.model",
    "StateBrowser": "state_browser.model",
    "StoreOverview": "overview",
    "Timeline": "timeline.model",
    "VariableSlider": "variables.variable_slider",
    "VariableView": "variables.model",
    **dict.fromkeys(["View", "close_all", "link"], "view"),
}


def __getattr__(name: str) -> Any:
    """Import a view on first use, because some of the modules it needs are slow to import."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_extra("notebook")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
