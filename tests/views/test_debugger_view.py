"""What the debugger view shows and does, over a session that needs no Spark."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from debug_sessions import FakeSession, original

import streamstate as ss
from streamstate.widgets import Debugger
from streamstate.widgets.debugger.drawing import View
from streamstate.widgets.debugger.model import DebuggerModel
from streamstate.widgets.debugger.tree import LANES, WINDOW, Dot


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the original, to be copied."""
    path = tmp_path_factory.mktemp("written") / "store"
    original(path)
    return path


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    """A store with the original."""
    return Path(shutil.copytree(written, tmp_path / "store"))


class Used:
    """A debugger as a person uses it."""

    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.debugger = Debugger(session)
        assert isinstance(self.debugger.model, DebuggerModel)
        self.model = self.debugger.model

    @property
    def view(self) -> View:
        """What is shown now."""
        return self.model.view(self.debugger.selection)

    def do(self, action: str, value: Any = None) -> View:
        """One action of the page, and what is shown once it is done."""
        self.begin(action, value)
        assert self.debugger.wait(30)
        return self.view

    def begin(self, action: str, value: Any = None) -> None:
        """One action of the page."""
        chosen = self.model.acted(self.debugger.selection, action, value, self.view)
        self.debugger._live.select(chosen)


Use = Callable[..., Used]


@pytest.fixture
def use(store: Path) -> Iterator[Use]:
    """A debugger over a new session; none of its threads is left at the end."""
    used: list[Used] = []

    def uses(at: int = 4, **arguments: Any) -> Used:
        used.append(Used(FakeSession(store, at, **arguments)))
        return used[-1]

    yield uses
    for one in used:
        one.session.gate.set()
        one.debugger.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("streamstate-debug-")]


def test_it_begins_where_the_session_stands(use: Use) -> None:
    """On a fork without epochs of its own: the epoch is its parent's, and what that changed is shown."""
    view = use(4).view
    assert (view.name, view.look.branch, view.look.epoch, view.look.here) == ("what_if", "what_if", 4, True)
    assert [lane.name for lane in view.tree.lanes] == ["delays", "what_if"]
    assert view.tree.lanes[1].dots == (Dot(4, "start"),)
    assert view.diff is not None
    assert view.diff.counts == ss.open_store(view.seen.store)["delays"].diff(3, 4).counts
    assert view.message()["first"] is False


def test_a_step_runs_one_epoch_and_shows_what_it_changed(use: Use) -> None:
    """The dot is there, the diff is that of the store, and the report is told."""
    used = use(4, shift=1)
    view = used.do("step", 1)
    assert (view.look.epoch, view.outcome()) == (5, "Ran 1 epoch.")
    assert view.tree.lanes[1].dots == (Dot(4, "start"), Dot(5))
    assert view.diff is not None
    assert view.diff.name == "what_if"
    assert view.diff.counts == ss.open_store(view.seen.store)["what_if"].diff(4, 5).counts
    assert dict(view.ran())["rows in"] == "812"
    assert view.operators is not None
    assert [box.kind for box in view.operators.boxes] == ["source", "state", "sink"]
    assert view.trouble is None


def test_several_steps_are_one_press(use: Use) -> None:
    """As many as the field says; what cannot be meant is one."""
    assert use(4).do("step", 3).seen.epoch == 7
    for odd in (0, -1, "many", True, 10**9):
        assert use(4).do("step", odd).seen.epoch == 5


def test_back_goes_back_and_the_next_step_begins_a_branch(use: Use) -> None:
    """The lane that was left stays; the new one begins at the epoch gone back to."""
    used = use(4)
    used.do("step", 3)
    view = used.do("back", 2)
    assert (view.name, view.seen.epoch, view.outcome()) == ("what_if", 5, "Went back. The next step begins a branch.")
    view = used.do("step", 1)
    assert [(lane.name, lane.parent, lane.since) for lane in view.tree.lanes] == [
        ("delays", None, None),
        ("what_if", 0, 4),
        ("what_if_2", 1, 5),
    ]
    assert view.look.branch == "what_if_2"


def test_run_until_stops_where_the_condition_holds(use: Use) -> None:
    """And says so; nothing is run where no condition stands in the field."""
    used = use(4)
    view = used.do("until", " max_delay > 390 ")
    assert used.session.last is not None
    assert used.session.last.stopped == "breakpoint"
    assert view.outcome() == f"The condition holds after epoch {view.seen.epoch}."
    before = view.seen.epoch
    view = used.do("until", "  ")
    assert view.seen.epoch == before
    assert view.trouble is not None


def test_a_row_can_be_a_breakpoint(use: Use) -> None:
    """Choosing a key and running until it changes goes on to the next epoch that changes it."""
    used = use(4)
    used.do("step", 1)
    view = used.do("diff", ["key", 0])
    assert view.diff is not None
    key = view.diff.keys[0]
    assert view.key == key
    assert view.diff.page.chosen == 0
    view = used.do("until_key")
    history = ss.open_store(view.seen.store)["what_if"]
    assert view.seen.epoch == next(epoch for epoch in history.key_history("op0", **key)["epoch"] if epoch > 5)


def test_an_epoch_that_is_chosen_is_looked_at_and_can_be_gone_to(use: Use) -> None:
    """Without moving the session; a press goes there. Of a branch that was left there is no way back."""
    used = use(4)
    used.do("step", 4)
    view = used.do("look", ["what_if", 6])
    assert (view.seen.epoch, view.look.epoch, view.look.here, view.look.go) == (8, 6, False, "Go back to epoch 6")
    assert view.diff is not None
    assert [side.epoch for side in view.diff.sides or ()] == [5, 6]
    view = used.do("goto")
    assert (view.seen.epoch, view.look.here) == (6, True)
    used.do("step", 1)
    assert used.do("look", ["what_if", 8]).look.go == ""
    view = used.do("look", ["delays", 12])
    assert view.look.go == "Run to epoch 12"
    assert used.do("goto").seen.epoch == 12
    assert used.do("look", ["delays", 0]).no_diff.startswith("Epoch 0 is the first")
    assert used.do("here").look.here


def test_what_a_page_cannot_mean_changes_nothing(use: Use) -> None:
    """Branches and epochs that are not drawn, rows that are not there, actions that nobody knows."""
    used = use(4)
    before = used.debugger.selection
    for action, value in (
        ("look", ["nobody", 1]), ("look", ["delays", 99]), ("look", None), ("diff", ["key", 10**6]), ("diff", "x"),
        ("window", "sideways"), ("unwatch", 3), ("unwatch", "x"), ("until_key", None), ("goto", None), ("explode", 1),
    ):  # fmt: skip
        used.do(action, value)
        assert used.debugger.selection == before, action


def test_watched_expressions_tell_their_value_change_and_course(use: Use) -> None:
    """At the epoch that is looked at; text has no course; what cannot be watched is said."""
    used = use(4)
    for expression in ("max(max_delay)", "count(*)", "max(carrier)"):
        used.do("watch", f" {expression} ")
    view = used.do("step", 4)
    frame = used.session.watches()
    value, before = (int(frame["count(*)"][at]) for at in (8, 7))
    rows = {one.expression: one for one in view.watched}
    assert rows["count(*)"].now.text == str(value)
    assert rows["count(*)"].moved == f"{value - before:+}"
    assert rows["count(*)"].course == tuple(frame["count(*)"])
    assert rows["max(carrier)"].course == ()
    assert view.watched_at == 8
    assert used.do("look", ["what_if", 6]).watched_at == 6
    trouble = used.do("watch", "nonsense").trouble
    assert trouble is not None
    assert trouble.short == "'nonsense' cannot be watched."
    assert [one.expression for one in used.do("unwatch", 0).watched] == ["count(*)", "max(carrier)"]


def test_a_step_that_fails_says_why(use: Use) -> None:
    """In a line, with the whole to unfold; the next action takes it away."""
    used = use(4, fails=6)
    view = used.do("step", 3)
    assert view.seen.epoch == 5
    assert view.trouble is not None
    assert (view.trouble.what, view.trouble.short) == ("3 steps", "Epoch 6 failed: division by zero")
    assert view.trouble.whole.endswith("at line 3")
    assert used.do("watch", "count(*)").trouble is None


def test_a_long_run_neither_blocks_drawing_nor_takes_another_action(use: Use) -> None:
    """It says how far it is; what is pressed meanwhile does nothing; interrupted, it stands at a whole epoch."""
    used = use(4)
    used.session.gate.clear()
    used.begin("step", 5)
    assert used.session.running.wait(10)
    view = used.view
    assert view.doing is not None
    assert (view.doing.what, view.seen.epoch) == ("5 steps", 4)
    used.begin("back", 1)
    view = used.do("interrupt")
    assert (view.doing, view.outcome(), view.seen.epoch) == (None, "Interrupted.", 4)


def test_closing_interrupts_and_leaves_no_thread(use: Use) -> None:
    """The fixture looks for threads; a closed debugger begins nothing."""
    used = use(4)
    used.session.gate.clear()
    used.begin("step", 5)
    assert used.session.running.wait(10)
    used.debugger.close()
    assert used.view.seen.epoch == 4
    used.session.gate.set()
    assert used.do("step", 1).seen.epoch == 4


def test_progress_wakes_the_page(use: Use) -> None:
    """What is new is heard of at once, not only when the view looks again."""
    used = use(4)
    before = used.model.newest()
    used.do("step", 1)
    assert used.model.newest() != before
    assert used.model.newest() == used.model.newest()


def test_steps_from_elsewhere_are_noticed(use: Use) -> None:
    """A cell that steps the session moves the view too."""
    used = use(4)
    used.model.newest()
    used.session.step(2)
    used.model.newest()
    assert used.debugger.wait(30)
    assert used.view.seen.epoch == 6


def test_the_tree_shows_a_window_and_few_lanes(tmp_path: Path) -> None:
    """Around where the session stands, or where a person paged to; messages stay small."""
    path = tmp_path / "store"
    original(path, 60)
    used = Used(FakeSession(path, 30, epochs=60))
    for _ in range(LANES):
        used.do("step", 1)
        used.do("back", 1)
    view = used.view
    assert view.tree.last - view.tree.first + 1 == WINDOW
    assert view.tree.first < 30 < view.tree.last
    assert len(view.tree.lanes) == LANES
    assert {"delays", view.name} <= {lane.name for lane in view.tree.lanes}
    assert view.tree.left_out == len(used.session.branches()) - LANES
    earlier = used.do("window", "earlier").tree
    assert earlier.last < view.tree.last
    for _ in range(10):
        earlier = used.do("window", "earlier").tree
    assert (earlier.first, earlier.last) == (0, WINDOW - 1)
    for _ in range(10):
        used.do("window", "later")
    assert used.view.tree.last == 59
    assert len(json.dumps(view.message())) < 30_000
    used.debugger.close()


def test_the_still_form_shows_branches_and_the_last_diff(use: Use) -> None:
    """As a picture with a name for each branch and a table, without scripts, escaped and small."""
    used = use(4)
    used.do("watch", "count(*)")
    used.do("step", 1)
    bundle, _ = used.debugger._repr_mimebundle_()
    still = bundle["text/html"]
    assert "<svg" in still
    assert "delays, the original; what_if, forked from delays after epoch 4" in still
    assert "carrier (key)" in still
    assert "count(*)" in still
    assert "<script" not in still
    assert len(still) < 200_000
    assert repr(used.debugger) == bundle["text/plain"]
    assert repr(used.debugger).startswith(
        "what_if: stands at epoch 5 · forked from delays after epoch 4 · Ran 1 epoch."
    )
