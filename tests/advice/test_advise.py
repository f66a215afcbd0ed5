"""Advice on captured queries: it is given if the epochs confirm it, and not otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from synthetic import START, State

import streamstate as ss
from advice.stores import DEDUPLICATION, WINDOWS, growing, stored
from streamstate.snapshots.store.query_plans.query_plan import EventTime
from streamstate.state_inspect import Advice
from streamstate.state_inspect.advice.advise import advice_on, quick_advice
from streamstate.widgets import Timeline
from streamstate.widgets.timeline.actions import TimelineSelection
from streamstate.widgets.timeline.model import TimelineModel


def test_a_state_that_only_grows_has_its_reason_and_evidence(tmp_path: Path) -> None:
    """The reason is in the plan, the evidence in the epochs."""
    [advice] = stored(tmp_path, growing(8), DEDUPLICATION).advise()
    assert advice == Advice(
        "only_grows",
        "op0 can never shrink, because dropDuplicates remembers every key (key), and the query has no watermark.",
        "It grew from 10 rows at epoch 0 to 80 at epoch 7, and lost none.",
        7,
    )
    assert str(advice) == f"{advice.text}\n    {advice.evidence}"


@pytest.mark.parametrize(
    "states",
    [
        growing(4),  # too few epochs
        growing(12, new=lambda epoch: 10 * (epoch < 4)),  # all keys are known
        growing(12, new=lambda epoch: 64 >> epoch),  # nearly all are
        [*growing(6), {}, *growing(6)],  # rows were removed
    ],
    ids=["few epochs", "all keys are known", "nearly all keys are known", "rows were removed"],
)
def test_there_is_no_advice_on_a_state_that_does_not_go_on_growing(tmp_path: Path, states: list[State | None]) -> None:
    """Whatever the plan says: a state of a fixed number of keys is no problem."""
    assert stored(tmp_path, states, DEDUPLICATION).advise() == []


def test_there_is_no_advice_without_a_plan_or_a_checkpoint(tmp_path: Path) -> None:
    """Growth alone says nothing: the watermark may be far behind."""
    assert stored(tmp_path, growing(12)).advise() == []
    assert stored(tmp_path / "empty", []).advise() == []


def test_epochs_before_the_plan_do_not_count(tmp_path: Path) -> None:
    """They may have run with other code."""
    states = [*growing(6), {}, *growing(10)]
    assert stored(tmp_path / "new", states, DEDUPLICATION, since=8).advise()[0].evidence.startswith("It grew from 20")
    assert stored(tmp_path / "few", states, DEDUPLICATION, since=14).advise() == []


def test_user_code_is_advised_on_without_a_plan(tmp_path: Path) -> None:
    """The changelog names the operator; a timeout may remove keys later, and so does code that has removed one."""
    name = "applyInPandasWithState"
    [advice] = stored(tmp_path / "none", growing(8), operator=name).advise()
    assert advice.text.startswith("op0 has not shrunk so far, because it has no timeout")
    assert stored(tmp_path / "timeout", growing(8), operator=name, value="timeoutTimestamp").advise() == []
    removed = [*growing(12)[:11], {**(growing(12)[11] or {})}]
    removed[11].pop("k0.0")  # type: ignore[union-attr]
    assert stored(tmp_path / "removed", removed, operator=name).advise() == []


def test_rows_are_counted_only_where_that_may_be_read(tmp_path: Path) -> None:
    """Without reading, a state whose rows nobody has counted is left aside."""
    history = stored(tmp_path, growing(8), DEDUPLICATION)
    assert advice_on(history.recorded, lambda _: False) == []
    assert quick_advice(history.recorded) == history.advise() != []


def minutes(*numbers: int) -> State:
    """Rows whose event times are so many minutes after the start."""
    return {f"k{number}": round((START + timedelta(minutes=number)).timestamp() * 1_000_000) for number in numbers}


def watermark(*numbers: int | None) -> list[dict[str, Any]]:
    """The facts of epochs that leave the watermark so many minutes after the start, and read rows."""
    return [
        {
            "offsets": json.dumps([epoch]),
            "next_watermark": START.replace(year=1970) if number is None else START + timedelta(minutes=number),
        }
        for epoch, number in enumerate(numbers)
    ]


def test_rows_that_wait_for_the_watermark_are_counted(tmp_path: Path) -> None:
    """With the first of them, and how far the watermark is from it."""
    states: list[State | None] = [minutes(60), minutes(60, 70), minutes(60, 70, 80)]
    [advice] = stored(tmp_path, states, WINDOWS, facts=watermark(0, 10, 20)).advise()
    assert advice.kind == "not_returned"
    assert advice.text == (
        "3 rows of op0 are not returned yet, because append mode waits for the event time of each, for the first of"
        " them until the watermark is 2026-01-01 01:00:00 +00:00; it is 2026-01-01 00:20:00 +00:00, 0:40:00 too early."
    )
    assert advice.evidence == "None has been returned up to epoch 2."


def test_rows_that_wait_as_usual_need_no_advice(tmp_path: Path) -> None:
    """Once some have been returned, or in another mode, or before enough epochs have read rows."""
    states: list[State | None] = [minutes(0, 60), minutes(60, 70), minutes(60, 70, 80)]
    assert stored(tmp_path / "returned", states, WINDOWS, facts=watermark(0, 10, 20)).advise() == []
    waiting: list[State | None] = [minutes(60), minutes(60, 70), minutes(60, 70, 80)]
    update = replace(WINDOWS, mode="update")
    assert stored(tmp_path / "update", waiting, update, facts=watermark(0, 10, 20)).advise() == []
    assert stored(tmp_path / "few", waiting[:2], WINDOWS, facts=watermark(0, 10)).advise() == []
    passed: list[State | None] = [minutes(5)] * 3
    assert stored(tmp_path / "passed", passed, WINDOWS, facts=watermark(0, 10, 20)).advise() == []


def test_a_watermark_that_stands_explains_what_waits(tmp_path: Path) -> None:
    """Also if rows have been returned before: the source that holds it is named for both."""
    plan = replace(WINDOWS, event_times=(*WINDOWS.event_times, EventTime("u", 0, ("1",))))
    facts = watermark(*(min(epoch, 2) for epoch in range(14)))
    facts = [fact | {"offsets": json.dumps([epoch, min(epoch, 2)])} for epoch, fact in enumerate(facts)]
    states: list[State | None] = [minutes(1, 60), *([minutes(60, 70)] * 13)]
    stall, waits = stored(tmp_path, states, plan, facts=facts).advise()
    held = "source 1 has delivered nothing since epoch 2"
    assert held in stall.text
    assert (stall.kind, waits.kind) == ("watermark_stuck", "not_returned")
    assert waits.evidence == f"The watermark is stuck: {held}."
    never_ahead: list[State | None] = [minutes(1)] * 14
    [stall] = stored(tmp_path / "old", never_ahead, plan, facts=facts).advise()
    assert held not in stall.text


def test_a_watermark_that_nothing_holds_may_have_a_low_resolution(tmp_path: Path) -> None:
    """Events by the hour do not move it in every epoch; a stall has to be longer than one that a source causes."""

    def advised(name: str, epochs: int) -> list[str]:
        states: list[State | None] = [minutes(60), *([{}] * (epochs - 1))]
        facts = watermark(*(min(epoch, 2) for epoch in range(epochs)))
        return [advice.kind for advice in stored(tmp_path / name, states, WINDOWS, facts=facts).advise()]

    assert advised("short", 12) == []
    assert advised("long", 13) == ["watermark_stuck"]


def test_the_timeline_shows_advice_above_the_plots(tmp_path: Path) -> None:
    """In the view, as text and in a saved notebook; what takes long to find comes with the second drawing."""
    history = stored(tmp_path, growing(8), DEDUPLICATION)
    model = TimelineModel(history)
    first = model.quick(TimelineSelection())
    assert (first.message["advice"], first.unfinished) == ([], True)
    [advice] = history.advise()
    whole = model.drawing(TimelineSelection())
    assert whole.message["advice"] == [{"text": advice.text, "evidence": advice.evidence}]
    assert not model.quick(TimelineSelection()).unfinished
    assert str(advice) in repr(Timeline(history))
    assert advice.text in Timeline(history)._repr_mimebundle_()[0]["text/html"]


def test_advice_on_a_served_page_comes_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its viewers see what the store holds: the checkpoint is not read."""
    history = stored(tmp_path, growing(8), DEDUPLICATION)
    model = TimelineModel(history)
    model.serve()
    monkeypatch.setattr("streamstate.state_inspect.advice.advise._local_checkpoint", lambda _: pytest.fail("read"))
    assert len(model.drawing(TimelineSelection()).message["advice"]) == 1


def test_a_damaged_checkpoint_changes_no_advice_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured epochs are known without it."""
    monkeypatch.chdir(tmp_path)  # where the synthetic query has its checkpoint
    history = stored(tmp_path / "store", growing(8), DEDUPLICATION)
    known = history.advise()
    for name, text in (
        ("metadata", '{"id":"id"}'),
        ("commits/7", "v1\n{"),
        ("offsets/7", 'v1\n{"batch'),
        ("state/0/x", ""),
    ):
        (tmp_path / "checkpoint" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkpoint" / name).write_text(text)
    assert history.advise() == known != []


def test_a_shared_variable_needs_no_advice(tmp_path: Path) -> None:
    """Its versions are no epochs that read input."""
    ss.shared(tmp_path, "limit", "long", init=1).set(2)
    assert ss.open_store(tmp_path)["shared.limit"].advise() == []
