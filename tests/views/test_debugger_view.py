"""The debugger view, over a session that needs no Spark."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from debug_sessions import FakeSession, original

import streamstate as ss
from streamstate.reports import DebugSession
from streamstate.widgets import Debugger
from streamstate.widgets.debugger.drawing import DebuggerDrawing
from streamstate.widgets.debugger.model import DebuggerModel
from streamstate.widgets.debugger.tree import LANES, WINDOW, Dot


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the original query, copied for each test."""
    path = tmp_path_factory.mktemp("written") / "store"
    original(path)
    return path


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    """A copy of the store with the original query."""
    return Path(shutil.copytree(written, tmp_path / "store"))


class DebuggerUser:
    """A debugger and the actions that a user performs in it."""

    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.debugger = Debugger(cast("DebugSession", session))
        assert isinstance(self.debugger.model, DebuggerModel)
        self.model = self.debugger.model

    @property
    def view(self) -> DebuggerDrawing:
        """The current drawing."""
        return self.model.view(self.debugger.selection)

    def do(self, action: str, value: Any = None) -> DebuggerDrawing:
        """Perform an action, wait for it to finish, and return the drawing."""
        self.begin(action, value)
        assert self.debugger.wait(30)
        return self.view

    def begin(self, action: str, value: Any = None) -> None:
        """Start an action of the page."""
        chosen = self.model.acted(self.debugger.selection, action, value, self.view)
        self.debugger._live.select(chosen)


Use = Callable[..., DebuggerUser]


@pytest.fixture
def use(store: Path) -> Iterator[Use]:
    """Creates debuggers over new sessions, and checks that none of their threads remains at the end."""
    users: list[DebuggerUser] = []

    def create(at: int = 4, **arguments: Any) -> DebuggerUser:
        users.append(DebuggerUser(FakeSession(store, at, **arguments)))
        return users[-1]

    yield create
    for user in users:
        user.session.gate.set()
        user.debugger.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("streamstate-debug-")]


def test_it_starts_at_the_sessions_epoch(use: Use) -> None:
    """On a fork without epochs, that is the parent's epoch, and the view shows what that epoch changed."""
    view = use(4).view
    assert (view.name, view.look.branch, view.look.epoch, view.look.here) == ("what_if", "what_if", 4, True)
    assert [lane.name for lane in view.tree.lanes] == ["delays", "what_if"]
    assert view.tree.lanes[1].dots == (Dot(4, "start"),)
    assert view.diff is not None
    assert view.diff.counts == ss.open_store(view.state.store)["delays"].diff(3, 4).counts
    assert view.message()["first"] is False


def test_a_step_runs_one_epoch_and_shows_what_it_changed(use: Use) -> None:
    """The tree has the new epoch, the diff matches the store, and the step's report is shown."""
    user = use(4, shift=1)
    view = user.do("step", 1)
    assert (view.look.epoch, view.outcome()) == (5, "Ran 1 epoch.")
    assert view.tree.lanes[1].dots == (Dot(4, "start"), Dot(5))
    assert view.diff is not None
    assert view.diff.name == "what_if"
    assert view.diff.counts == ss.open_store(view.state.store)["what_if"].diff(4, 5).counts
    assert dict(view.ran())["rows in"] == "812"
    assert view.operators is not None
    assert [box.kind for box in view.operators.boxes] == ["source", "state", "sink"]
    assert view.trouble is None


def test_one_click_can_run_several_steps(use: Use) -> None:
    """The field gives the number of steps; an invalid number counts as one."""
    assert use(4).do("step", 3).state.epoch == 7
    for invalid in (0, -1, "many", True, 10**9):
        assert use(4).do("step", invalid).state.epoch == 5


def test_the_next_step_after_going_back_starts_a_branch(use: Use) -> None:
    """The abandoned lane stays; the new lane starts at the epoch that the session went back to."""
    user = use(4)
    user.do("step", 3)
    view = user.do("back", 2)
    assert (view.name, view.state.epoch, view.outcome()) == ("what_if", 5, "Went back. The next step starts a branch.")
    view = user.do("step", 1)
    assert [(lane.name, lane.parent, lane.since) for lane in view.tree.lanes] == [
        ("delays", None, None),
        ("what_if", 0, 4),
        ("what_if_2", 1, 5),
    ]
    assert view.look.branch == "what_if_2"


def test_run_until_stops_where_the_condition_holds(use: Use) -> None:
    """The view reports that it holds. Nothing runs if the condition field is empty."""
    user = use(4)
    view = user.do("until", " max_delay > 390 ")
    assert user.session.last is not None
    assert user.session.last.stopped == "breakpoint"
    assert view.outcome() == f"The condition holds after epoch {view.state.epoch}."
    before = view.state.epoch
    view = user.do("until", "  ")
    assert view.state.epoch == before
    assert view.trouble is not None


def test_a_row_can_be_a_breakpoint(use: Use) -> None:
    """After a key is selected, the session can run until the next epoch that changes it."""
    user = use(4)
    user.do("step", 1)
    view = user.do("diff", ["key", 0])
    assert view.diff is not None
    key = view.diff.keys[0]
    assert view.key == key
    assert view.diff.page.chosen == 0
    view = user.do("until_key")
    history = ss.open_store(view.state.store)["what_if"]
    assert view.state.epoch == next(epoch for epoch in history.key_history("op0", **key)["epoch"] if epoch > 5)


def test_selecting_an_epoch_shows_it_without_moving_the_session(use: Use) -> None:
    """A button moves the session to it. Abandoned branches cannot be resumed."""
    user = use(4)
    user.do("step", 4)
    view = user.do("look", ["what_if", 6])
    assert (view.state.epoch, view.look.epoch, view.look.here, view.look.go) == (8, 6, False, "Go back to epoch 6")
    assert view.diff is not None
    assert [side.epoch for side in view.diff.sides or ()] == [5, 6]
    view = user.do("goto")
    assert (view.state.epoch, view.look.here) == (6, True)
    user.do("step", 1)
    assert user.do("look", ["what_if", 8]).look.go == ""
    view = user.do("look", ["delays", 12])
    assert view.look.go == "Run to epoch 12"
    assert user.do("goto").state.epoch == 12
    assert user.do("look", ["delays", 0]).no_diff.startswith("Epoch 0 is the first")
    assert user.do("here").look.here


def test_invalid_debugger_actions_change_nothing(use: Use) -> None:
    """Branches and epochs that are not drawn, rows that do not exist, and unknown actions are ignored."""
    user = use(4)
    before = user.debugger.selection
    for action, value in (
        ("look", ["nobody", 1]), ("look", ["delays", 99]), ("look", None), ("diff", ["key", 10**6]), ("diff", "x"),
        ("window", "sideways"), ("unwatch", 3), ("unwatch", "x"), ("until_key", None), ("goto", None), ("explode", 1),
    ):  # fmt: skip
        user.do(action, value)
        assert user.debugger.selection == before, action


def test_watched_expressions_show_value_change_and_sparkline(use: Use) -> None:
    """The values are those of the selected epoch; text has no sparkline; an invalid expression is reported."""
    user = use(4)
    for expression in ("max(max_delay)", "count(*)", "max(carrier)"):
        user.do("watch", f" {expression} ")
    view = user.do("step", 4)
    frame = user.session.watches()
    value, before = (int(frame["count(*)"][at]) for at in (8, 7))
    rows = {row.expression: row for row in view.watched}
    assert rows["count(*)"].now.text == str(value)
    assert rows["count(*)"].moved == f"{value - before:+}"
    assert rows["count(*)"].course == tuple(frame["count(*)"])
    assert rows["max(carrier)"].course == ()
    assert view.watched_at == 8
    assert user.do("look", ["what_if", 6]).watched_at == 6
    trouble = user.do("watch", "nonsense").trouble
    assert trouble is not None
    assert trouble.short == "'nonsense' cannot be watched."
    assert [row.expression for row in user.do("unwatch", 0).watched] == ["count(*)", "max(carrier)"]


def test_a_failed_step_shows_its_error(use: Use) -> None:
    """The view shows one line that expands to the full error, and clears it at the next action."""
    user = use(4, fails=6)
    view = user.do("step", 3)
    assert view.state.epoch == 5
    assert view.trouble is not None
    assert (view.trouble.what, view.trouble.short) == ("3 steps", "Epoch 6 failed: division by zero")
    assert view.trouble.whole.endswith("at line 3")
    assert user.do("watch", "count(*)").trouble is None


def test_a_long_run_does_not_block_drawing_and_rejects_other_actions(use: Use) -> None:
    """The view shows progress and ignores other buttons; an interrupt leaves the session at a complete epoch."""
    user = use(4)
    user.session.gate.clear()
    user.begin("step", 5)
    assert user.session.running.wait(10)
    view = user.view
    assert view.doing is not None
    assert (view.doing.what, view.state.epoch) == ("5 steps", 4)
    user.begin("back", 1)
    view = user.do("interrupt")
    assert (view.doing, view.outcome(), view.state.epoch) == (None, "Interrupted.", 4)


def test_closing_interrupts_and_leaves_no_thread(use: Use) -> None:
    """The fixture checks for threads; a closed debugger starts no action."""
    user = use(4)
    user.session.gate.clear()
    user.begin("step", 5)
    assert user.session.running.wait(10)
    user.debugger.close()
    assert user.view.state.epoch == 4
    user.session.gate.set()
    assert user.do("step", 1).state.epoch == 4


def test_progress_wakes_the_page(use: Use) -> None:
    """New progress is drawn immediately, without waiting for the next poll."""
    user = use(4)
    before = user.model.newest()
    user.do("step", 1)
    assert user.model.newest() != before
    assert user.debugger.wait(30)  # the step's epoch is new in the store, so the session is read once more
    assert user.model.newest() == user.model.newest()


def test_steps_from_another_cell_are_shown(use: Use) -> None:
    """A cell that steps the session also moves the view."""
    user = use(4)
    user.model.newest()
    user.session.step(2)
    user.model.newest()
    assert user.debugger.wait(30)
    assert user.view.state.epoch == 6


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_tree_shows_a_window_and_few_lanes(tmp_path: Path) -> None:
    """The window is around the session's epoch, or where the user paged to; messages stay small."""
    path = tmp_path / "store"
    original(path, 60)
    user = DebuggerUser(FakeSession(path, 30, epochs=60))
    for _ in range(LANES):
        user.do("step", 1)
        user.do("back", 1)
    view = user.view
    assert view.tree.last - view.tree.first + 1 == WINDOW
    assert view.tree.first < 30 < view.tree.last
    assert len(view.tree.lanes) == LANES
    assert {"delays", view.name} <= {lane.name for lane in view.tree.lanes}
    assert view.tree.left_out == len(user.session.branches()) - LANES
    earlier = user.do("window", "earlier").tree
    assert earlier.last < view.tree.last
    for _ in range(10):
        earlier = user.do("window", "earlier").tree
    assert (earlier.first, earlier.last) == (0, WINDOW - 1)
    for _ in range(10):
        user.do("window", "later")
    assert user.view.tree.last == 59
    assert len(json.dumps(view.message())) < 30_000
    user.debugger.close()


def test_the_static_form_shows_branches_and_the_last_diff(use: Use) -> None:
    """It has a picture that names each branch and a table, is escaped and small, and has no scripts."""
    user = use(4)
    user.do("watch", "count(*)")
    user.do("step", 1)
    bundle, _ = user.debugger._repr_mimebundle_()
    html = bundle["text/html"]
    assert "<svg" in html
    assert "delays, the original; what_if, forked from delays after epoch 4" in html
    assert "carrier (key)" in html
    assert "count(*)" in html
    assert "<script" not in html
    assert len(html) < 200_000
    assert repr(user.debugger) == bundle["text/plain"]
    assert repr(user.debugger).startswith("what_if: at epoch 5 · forked from delays after epoch 4 · Ran 1 epoch.")
