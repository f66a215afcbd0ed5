"""The plots of views that were saved as files: each is drawn when the file is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bound_store import BoundQuery
from load.stores import busy
from playwright.sync_api import Browser, expect
from sampling import sampled
from views.test_late_rows_view import frame

import streamstate as ss
from browser.conftest import watching
from streamstate.reports import History
from streamstate.widgets import DiffView, KeyHistoryView, LateRowsView, LoadView, QueryDashboard, Timeline, VariableView
from streamstate.widgets.view import View

pytestmark = pytest.mark.browser


def variable(history: History) -> View[Any]:
    """A shared variable with three versions."""
    limit = ss.shared(Path(history.recorded.layout.root).parent / "shared", "limit", "double", init=60.0)
    query = BoundQuery(Path(limit.store))
    for value in (45.0, 30.0):
        limit.set(value)
        query.epoch(limit)
    return VariableView(limit, query=query.history)


VIEWS: dict[str, Callable[[History], View[Any]]] = {
    "dashboard": QueryDashboard,
    "differences": lambda history: DiffView(history, 0, 6),
    "load": lambda history: LoadView(busy(Path(history.recorded.layout.root).parent / "busy"), backlog=500),
    "key": lambda history: KeyHistoryView(history, "op0", {"carrier": "C01", "origin": "JFK"}),
    "late rows": lambda _history: LateRowsView(frame(), query="q"),
    "variable": variable,
    "timeline": Timeline,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sampled(VIEWS, 1))
def test_the_plots_of_a_saved_view_are_drawn(chrome: Browser, stored: Path, tmp_path: Path, kind: str) -> None:
    """Every plot of the file has marks, and the page reports no error."""
    view = VIEWS[kind](ss.open_store(stored)["delays"])
    path = view.save(tmp_path / "saved.html").path
    context, watched = watching(chrome)
    page = context.new_page()
    page.goto(path.as_uri())
    plots = page.locator(".streamstate-live .plot:visible")
    expect(plots.first.locator("svg .mark-group path[d]").first).to_be_attached()
    for plot in plots.all():
        expect(
            plot.locator("svg [role='graphics-symbol'] path, svg [role='graphics-object'] path").first
        ).to_be_attached()
    context.close()
    watched.assert_quiet()
