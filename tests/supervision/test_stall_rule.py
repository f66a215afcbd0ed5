"""An epoch that takes much longer than usual is noticed in time; an idle query and a first epoch are no stall."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamstate as ss
from streamstate.errors import InvalidArgumentError
from streamstate.operations.supervision.stall_rule import COLD, COLD_EPOCHS, FEWEST, Pace

FACTOR, FLOOR = 10.0, 30.0
SECONDS = st.floats(0.01, 100)


def pace_after(durations: list[float], *, cold: bool = False) -> Pace:
    """The pace of a query that took so long for its epochs, one after the other; its time begins at 0."""
    pace = Pace(FACTOR, FLOOR, 0.0)
    pace.know(durations)
    if not cold:
        for epoch in range(COLD_EPOCHS):
            pace.looked(0.0, busy=True, epoch=epoch, seconds=1000.0)
    return pace


@given(st.lists(SECONDS, min_size=FEWEST), st.lists(st.floats(0, 1e6), min_size=1))
def test_an_idle_query_is_never_stalled(durations: list[float], times: list[float]) -> None:
    """However long it waits for data or for its trigger."""
    pace = pace_after(durations)
    for now in sorted(times):
        pace.looked(now, busy=False, epoch=1, seconds=1.0)
        assert pace.busy_for(now) == 0


@given(st.lists(SECONDS, min_size=FEWEST, max_size=100), st.floats(0.1, 5))
def test_a_stall_is_noticed_within_the_bound(durations: list[float], every: float) -> None:
    """The bound is ten times what epochs took at most, or the floor, plus a look."""
    pace = pace_after(durations)
    bound = pace.bound
    assert bound is not None
    assert bound <= max(FACTOR * max(durations), FLOOR)
    now = 0.0
    while pace.busy_for(now) < bound:
        now += every
        pace.looked(now, busy=True, epoch=1, seconds=1000.0)
    assert now <= bound + every


@given(st.lists(SECONDS, min_size=FEWEST, max_size=100))
def test_no_epoch_like_the_usual_ones_is_a_stall(durations: list[float]) -> None:
    """Nineteen of twenty of the known epochs are far below the bound."""
    bound = pace_after(durations).bound
    assert bound is not None
    assert sum(seconds > bound for seconds in durations) <= len(durations) / 20


@given(st.lists(SECONDS, max_size=FEWEST - 1), st.floats(0, 1e6))
def test_too_few_epochs_are_no_usual(durations: list[float], now: float) -> None:
    """A first epoch may take as long as it wants."""
    pace = pace_after(durations)
    pace.looked(now, busy=True)
    assert pace.usual is None
    assert pace.bound is None


def test_the_first_epochs_of_a_run_may_take_longer() -> None:
    """They compile and load; and they are not counted as usual."""
    pace = pace_after([4.0] * FEWEST, cold=True)
    assert pace.bound == COLD * FACTOR * 4
    for epoch in range(COLD_EPOCHS):
        pace.looked(1.0, busy=True, epoch=epoch, seconds=1000.0)
    assert (pace.usual, pace.bound) == (4.0, FACTOR * 4)
    pace.begin_run(2.0)
    assert pace.bound == COLD * FACTOR * 4


def test_the_usual_follows_a_query_that_grows() -> None:
    """Old epochs are forgotten; a few long ones do not count."""
    pace = pace_after([1.0] * 100)
    for epoch in range(10, 15):
        pace.looked(0.0, busy=True, epoch=epoch, seconds=500.0)
    assert pace.usual == 1.0
    for epoch in range(20, 120):
        pace.looked(0.0, busy=True, epoch=epoch, seconds=7.0)
    assert pace.usual == 7.0


@pytest.mark.parametrize(
    "values", [{"stalled_after": 1}, {"stall_floor": 0}, {"when_stalled": "panic"}, {"stalled_after": float("nan")}]
)
def test_invalid_values_are_refused(values: dict[str, Any]) -> None:
    """The error is raised when the policy is created, and lists what is right."""
    with pytest.raises(InvalidArgumentError, match=r"expected (stalled_after above 1|wait, restart, hand over)"):
        ss.BackOff(**values)
