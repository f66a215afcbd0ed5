"""The check of a rule that runs as a protocol opens the player where a promise breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamstate.tutorials.exercises import Worksheet, i06_snapshots, i07_barriers
from streamstate.tutorials.exercises.i07_barriers import counterexample, meet, on_barrier
from streamstate.tutorials.simulation import Player


@pytest.fixture(autouse=True)
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress of its own for each test."""
    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(tmp_path / "progress.json"))


def no_log(channel: str, ins: tuple[str, ...], copied: bool, logging: tuple[str, ...]) -> Any:
    """The rule without logs."""
    return not copied, ()


def test_a_failed_check_opens_the_player_where_the_promise_breaks() -> None:
    """The run is shortened, and its last step is the one that completes a wrong snapshot."""
    answer = Worksheet("i06_snapshots").check("on_marker", no_log)
    assert isinstance(answer.picture, Player)
    assert 0 < answer.picture.at < 12
    assert "is complete" in repr(answer.picture)
    assert "has nothing" in repr(answer)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda channel, ins, copied, logging: True, "expected True or False"),
        (lambda channel, ins, copied, logging: (True, ["X→Y"]), "expected True or False"),
        (lambda channel, ins, copied, logging: None if copied else (True, ()), "Is a `return` missing on some path?"),
    ],
)
def test_a_rule_of_another_form_gets_a_line(answer: Any, said: str) -> None:
    """Nothing that a learner writes ends in a traceback."""
    checked = Worksheet("i06_snapshots").check("on_marker", answer)
    assert checked.mark == "wrong"
    assert said in repr(checked)


def test_the_players_of_a_notebook_are_small() -> None:
    """Together less than 200 kB."""
    shown = [i06_snapshots.play(), i06_snapshots.play_out_of_order()]
    assert sum(len(player._repr_html_()) for player in shown) < 200_000
    assert len(i07_barriers.play()._repr_html_()) < 200_000


def test_a_counterexample_that_cannot_happen_names_the_step() -> None:
    """A step has to be known, and enabled when its turn comes."""
    sheet = Worksheet("i07_barriers")
    assert "Step 2, 'C takes from A', cannot happen there." in repr(
        sheet.check("counterexample", lambda: ["start", "C takes from A"])
    )
    assert "there is no step 'wait'" in repr(sheet.check("counterexample", lambda: ["wait"]))


def test_a_counterexample_meets_a_rule() -> None:
    """It breaks the rule that blocks nothing, cannot happen with the right one, and waits for both functions."""
    assert meet(on_barrier, counterexample).mark == "right"
    assert "Step 5, 'C takes from A', cannot happen there." in repr(meet(on_barrier, counterexample))
    broken = meet(lambda ins, arrived: ((), len(arrived) == len(ins)), counterexample)
    assert broken.mark == "wrong"
    assert isinstance(broken.picture, Player)
    assert meet(lambda ins, arrived: None, counterexample).mark == "waiting"
    assert meet(on_barrier, lambda: None).mark == "waiting"
    assert "ZeroDivisionError" in repr(meet(lambda ins, arrived: 1 / 0, counterexample))
