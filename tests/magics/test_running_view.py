"""The view below a cell that starts a query: its status now or, in a saved notebook, when it was saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.lab import wait_until

import streamstate as ss
from streamstate.launch.query_status import status_table
from streamstate.launch.running import Running
from streamstate.launch.running_view import RunningView


@pytest.fixture
def running(counted: tuple[Path, Path], tmp_path: Path) -> Running:
    """A query that is followed, as ``%stream attach`` returns it."""
    return followed(counted[0], tmp_path)


def followed(checkpoint: Path, folder: Path) -> Running:
    """Capture a checkpoint in the background."""
    store = str(folder / "store")
    return Running("counts", store, str(checkpoint), ss.Checkpoint(checkpoint).follow(store, "counts"))


def test_the_status_follows_the_query(running: Running) -> None:
    """There is something to draw when it has captured an epoch, and when it ends."""
    view = RunningView(running)
    epoch = running.wait(timeout=300)
    assert repr(view) == f"counts is followed: captured up to epoch {epoch}, 12 rows of state (capture running)"
    assert view.model.drawing(view.selection).message["sign"] == "◌"
    before = view.model.newest()
    assert before == view.model.newest()
    running.stop()
    assert view.model.newest() != before
    assert repr(view).startswith("counts is stopped")


def test_the_status_goes_on_when_the_query_is_started_again(
    running: Running, counted: tuple[Path, Path], tmp_path: Path
) -> None:
    """The view of the first start shows the newest; the first handle itself stays as it ended."""
    view = RunningView(running)
    running.stop()
    again = followed(counted[0], tmp_path)
    assert running.newest is again
    wait_until(lambda: repr(view).startswith("counts is followed"), "the second start", 60)
    assert repr(running).startswith("counts is stopped")
    again.stop()


def test_a_saved_notebook_does_not_claim_that_the_query_runs(running: Running) -> None:
    """No sign; the time, and what to do. The handle itself, where it is shown without the view, has no sign either."""
    running.wait(timeout=300)
    html = RunningView(running)._repr_mimebundle_()[0]["text/html"]
    assert "<b>counts</b> was followed: captured up to epoch" in html
    assert "As of 2" in html
    assert "Run this cell again to resume the query." in html
    assert "◌" not in html + running._repr_html_()
    running.stop()


def test_a_table_of_queries_has_its_time(running: Running) -> None:
    """A saved notebook keeps it."""
    assert "Streaming queries at 2" in status_table([running.status()])._repr_html_()
    running.stop()
