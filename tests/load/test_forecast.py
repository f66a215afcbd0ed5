"""Forecasts: when a growing level reaches a limit, with a range, or never."""

from __future__ import annotations

import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from load.stores import STEP, entry, kafka, of_states, written
from streamstate.errors import InvalidArgumentError, UnknownEpochError
from streamstate.state_inspect.load.trend import Numbers, ahead, clock

TIMES: Numbers = np.arange(120, dtype="float64") * STEP


def test_a_line_leads_to_its_limit(tmp_path: Path) -> None:
    """Ten rows an epoch: the limit is as many epochs away as it is rows, divided by ten."""
    found = of_states(tmp_path, range(100, 400, 10)).load().forecast(state=490)
    assert found.level == 390
    assert found.reached is not None
    assert (found.reached - found.at).total_seconds() == pytest.approx(10 * STEP)
    assert found.earliest == found.latest == found.reached  # the line has been right all along
    assert "At epoch 29 the state is 390 rows, and reaches 490 rows at " in str(found)


def test_bytes_and_backlog_have_forecasts_too(tmp_path: Path) -> None:
    """A size is that of memory and files."""
    loads = [kafka(1, 100 * epoch, size=1_000_000 * (epoch + 1) - 10) for epoch in range(30)]
    load = written(tmp_path, [entry(epoch, found) for epoch, found in enumerate(loads)]).load()
    for found in (load.forecast(state="40MB"), load.forecast(backlog=3_900)):
        assert found.reached is not None
        assert (found.reached - found.at) == timedelta(seconds=10 * STEP)
    assert "30.00 MB, and reaches 40.00 MB" in str(load.forecast(state="40 MB"))


def test_a_level_that_falls_or_stays_never_gets_there(tmp_path: Path) -> None:
    """The forecast says so, and does not name a time."""
    falls = of_states(tmp_path / "falls", range(1000, 100, -30)).load().forecast(state=2_000)
    assert falls.never
    assert "never reaches 2,000 rows at this trend" in str(falls)
    assert of_states(tmp_path / "stays", [50] * 30).load().forecast(state=51).never


def test_a_limit_that_is_reached_is_reached(tmp_path: Path) -> None:
    """Its time is that of the epoch."""
    found = of_states(tmp_path, range(100, 400, 10)).load().forecast(state=390)
    assert found.reached == found.at
    assert "reaches the limit" in str(found)


def test_a_forecast_can_be_made_from_the_past(tmp_path: Path) -> None:
    """It does not see later epochs."""
    rows = [*range(100, 400, 10), *[390] * 30]
    load = of_states(tmp_path, rows).load()
    found = load.forecast(state=490, at=29)
    assert found.epoch == 29
    assert found.reached is not None
    with pytest.raises(UnknownEpochError, match="Epoch 99 is not captured"):
        load.forecast(state=490, at=99)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({}, "Expected either state= or backlog="),
        ({"state": 10, "backlog": 10}, "Expected either"),
        ({"state": "much"}, "expected a size such as '10GB'"),
        ({"state": -1}, "state=-1"),
        ({"state": "1MB"}, "are known at 4 epochs, and a forecast needs 8"),
    ],
)
def test_wrong_limits_are_refused_in_words(tmp_path: Path, limits: dict[str, int | str], said: str) -> None:
    """Each message says what would be right."""
    with pytest.raises(InvalidArgumentError, match=said):
        of_states(tmp_path, [1, 2, 3, 4]).load().forecast(**limits)  # type: ignore[arg-type]  # that is the point


def test_growth_that_slows_down_is_not_drawn_as_a_line() -> None:
    """A state whose keys become known: the line through the newest epochs is too early."""
    levels = 1000 * np.log1p(TIMES / 50)
    actual = 50 * (np.exp(levels[-1] * 1.15 / 1000) - 1) - TIMES[-1]
    assert ahead(TIMES, levels, levels[-1] * 1.15).seconds == pytest.approx(actual, rel=0.2)
    slope = (levels[-1] - levels[-31]) / (TIMES[-1] - TIMES[-31])
    assert levels[-1] * 0.15 / slope < 0.8 * actual


def test_growth_that_speeds_up_is_not_drawn_as_a_line() -> None:
    """A backlog under a load that grows."""
    levels = TIMES**2
    actual = np.sqrt(levels[-1] * 1.5) - TIMES[-1]
    assert ahead(TIMES, levels, levels[-1] * 1.5).seconds == pytest.approx(actual, rel=0.1)


@pytest.mark.parametrize("seed", range(10))
def test_noise_widens_the_range_and_does_not_move_the_forecast(seed: int) -> None:
    """A line with noise: within a tenth, and between its bounds."""
    levels = 50 * TIMES + np.random.default_rng(seed).normal(0, 1_500, len(TIMES)) + 5_000
    actual = (90_000 - 5_000) / 50 - TIMES[-1]
    found = ahead(TIMES, levels, 90_000)
    assert found.seconds == pytest.approx(actual, rel=0.2)
    assert found.earliest < found.seconds < found.latest


def test_a_backlog_that_began_to_grow_is_forecast_from_then_on() -> None:
    """The quiet time before says nothing."""
    levels = np.concatenate([np.zeros(180), np.arange(1, 121) * 30.0])
    times: Numbers = np.arange(300, dtype="float64") * STEP
    assert ahead(times, levels, 4_600).seconds == pytest.approx(1_000 / 30 * STEP, rel=0.2)


def test_what_grows_by_the_epoch_is_forecast_by_the_epoch() -> None:
    """The first epochs are slow; those to come have the pace of the newest."""
    epochs: Numbers = np.arange(30, dtype="float64")
    times = np.cumsum(np.where(epochs < 10, 8.0, 2.0))
    even = clock(times, epochs, 6 * epochs)
    assert ahead(even, 6 * epochs, 6 * 39).seconds == pytest.approx(10 * 2.0)
    assert clock(times, epochs, 3 * times + 1) is times, "by the time, the rate is steady"


def test_single_epochs_do_not_matter() -> None:
    """Medians: an epoch with a hundred times the backlog changes nothing."""
    levels = 50 * TIMES + 10
    levels[40] *= 100
    assert ahead(TIMES, levels, 90_000).seconds == pytest.approx((90_000 - levels[-1]) / 50, rel=0.02)


@pytest.mark.parametrize("limit", [20.0, 2.0])
def test_a_level_that_jumped_once_warns_of_nothing(limit: float) -> None:
    """It falls, so that no limit above it is reached at this trend; but it has surprised the trend before."""
    levels = np.array([9, 8, 7, 6, *[5] * 9, 10, 9, 8, 7, 6, 5, 4, 3, 2, 2, 2], dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ahead(np.arange(float(len(levels))), levels, limit)
    assert (found.earliest, found.latest) == (0.0, np.inf)
