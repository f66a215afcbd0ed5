"""Stuck watermarks, and the sources that hold them, from the epochs' offsets and watermarks alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamstate.snapshots.store.epoch_progress import EpochProgress
from streamstate.snapshots.store.query_plans.query_plan import EventTime
from streamstate.state_inspect.advice.stall import Stall, Watermarks, holders, stall_advice, stall_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEFT, RIGHT = EventTime("t", 600_000, ("0",)), EventTime("u", 0, ("1",))


def epochs(*moves: tuple[int | None, Any]) -> list[EpochProgress]:
    """Epochs, each with the minutes that the watermark has moved since noon, if there is one, and its offsets."""
    return [
        EpochProgress(epoch, None if minute is None else NOON + timedelta(minutes=minute), json.dumps(offsets))
        for epoch, (minute, offsets) in enumerate(moves)
    ]


def stuck(first: int = 3, more: int = 6, *, idle: int = 3) -> list[EpochProgress]:
    """A watermark that moves in the first epochs; after ``idle`` epochs the second source delivers nothing more."""
    return epochs(*((min(at, first), [at, min(at, idle)]) for at in range(first + 1 + more)))


def found(progress: list[EpochProgress]) -> Stall:
    """The stall that there is."""
    stall = stall_of(progress)
    assert stall is not None
    return stall


def said(progress: list[EpochProgress], *watermarks: EventTime, policy: str = "min", ahead: bool | None = None) -> str:
    """The sentence on a stuck watermark of a query with such watermarks."""
    stall, known = found(progress), Watermarks(watermarks, policy)
    return stall_advice(stall, known, holders(stall, known, ahead=ahead)).text


def test_a_watermark_that_moves_does_not_stand() -> None:
    """Nor does one without input, which is what a query that waits looks like."""
    assert stall_of([]) is None
    assert stall_of(epochs(*((at, [at]) for at in range(30)))) is None
    assert stall_of(epochs(*((min(at, 3), [min(at, 3)]) for at in range(30)))) is None
    assert stall_of(stuck(more=4)) is None


def test_a_stall_no_longer_than_others_is_usual() -> None:
    """Events with a resolution of an hour move the watermark every twelve epochs."""
    hourly = epochs(*((at // 12, [at]) for at in range(60)))
    assert stall_of(hourly) is None
    assert stall_of([*hourly[:30], *epochs(*((2, [at]) for at in range(60)))[30:]]) is not None


def test_versions_of_shared_variables_are_no_input() -> None:
    """A query that reads them has another offset in every epoch."""
    binding = [{"streamstate_shared": 1, "versions": {"limit": at}} for at in range(30)]
    assert stall_of(epochs(*((min(at, 3), [min(at, 3), binding[at]]) for at in range(30)))) is None


def test_the_idle_source_is_named_with_its_topics() -> None:
    """And the epoch in which it delivered last."""
    moves = [(min(at, 3), {"clicks": {"a": {"0": at}}, "views": {"b": {"0": min(at, 3)}}}) for at in range(10)]
    [idle] = found(epochs(*moves)).idle
    assert str(idle) == "source views (topic b) has delivered nothing since epoch 3"
    [never] = found(epochs(*((None, [at, None]) for at in range(6)))).idle
    assert str(never) == "source 1 has delivered nothing yet"


def test_the_smallest_of_several_watermarks_is_held_by_its_source() -> None:
    """Not if the policy is max, or if the source has no watermark, or if there is only one."""
    because = "because source 1 has delivered nothing since epoch 3: of several watermarks Spark takes the smallest."
    assert said(stuck(), LEFT, RIGHT) == (
        f"The watermark has not moved since epoch 3, although 6 epochs have read rows, {because}"
    )
    assert "one of its watermarks, on t and u, has had no newer event" in said(stuck(), LEFT, RIGHT, policy="max")
    assert "none of them is later than" in said(stuck(), LEFT)
    assert "one of its watermarks" in said(stuck(), LEFT, EventTime("u", 0, ("0",)))


def test_a_source_is_not_blamed_if_the_others_had_no_newer_events() -> None:
    """The state says whether they had; a source that has never delivered holds the watermark in any case."""
    assert "one of its watermarks" in said(stuck(), LEFT, RIGHT, ahead=False)
    assert "source 1 has delivered nothing since" in said(stuck(), LEFT, RIGHT, ahead=True)
    never = epochs(*((None, [at, None]) for at in range(6)))
    assert "no watermark yet, although 6 epochs have read rows, because source 1" in said(
        never, LEFT, RIGHT, ahead=False
    )


def test_rows_of_sources_without_a_watermark_move_none() -> None:
    """Whatever the policy, if all the others are idle."""
    assert "because source 1 has delivered nothing since epoch 3." in said(stuck(), RIGHT, policy="max")
    both = RIGHT, EventTime("v", 0, ("1",))
    assert said(stuck(), *both, policy="max").endswith("because source 1 has delivered nothing since epoch 3.")


def test_without_newer_events_the_newest_one_is_named() -> None:
    """It is the delay later than the watermark."""
    assert said(stuck(), LEFT).endswith("none of them is later than 2026-01-01 12:13:00 +00:00 by t.")
    assert said(epochs(*((None, [at]) for at in range(6))), LEFT).endswith(
        "t is null in all of them, or lies before 1970."
    )


@pytest.mark.parametrize(("policy", "expected"), [("min", "which holds the watermark if it has one"), ("max", "rows.")])
def test_without_a_plan_an_idle_source_is_only_suspected(policy: str, expected: str) -> None:
    """Nobody knows which sources have a watermark."""
    stall, unknown = found(stuck()), Watermarks(None, policy)
    assert holders(stall, unknown, ahead=None) == ()
    assert expected in stall_advice(stall, unknown, ()).text


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), max_size=40))
def test_what_is_said_is_true(steps: list[tuple[int, int, int]]) -> None:
    """Counted by brute force: epochs with input since the watermark moved, and when idle sources delivered last."""
    minute, left, right, moves = 0, 0, 0, []
    for moved, of_left, of_right in steps:
        minute, left, right = minute + (moved == 3), left + of_left, right + of_right
        moves.append((minute, [left, right]))
    progress = epochs(*moves)
    stall = stall_of(progress)
    if stall is None:
        return
    assert stall.since is not None
    later = progress[stall.since + 1 :]
    assert {epoch.watermark for epoch in later} == {progress[stall.since].watermark}
    assert stall.epochs == sum(moves[epoch.epoch][1] != moves[epoch.epoch - 1][1] for epoch in later)
    for idle in stall.idle:
        place = int(idle.name)
        assert idle.since is not None
        assert {offsets[place] for _, offsets in moves[idle.since :]} == {moves[-1][1][place]}
