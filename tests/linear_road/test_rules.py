"""The paper's rules, worked by hand: the oracle and the query's processor answer alike."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.linear_road.query import Road, drive
from benchmarks.linear_road.traffic import EXIT, EXPENDITURE, TOLL
from linear_road.small_roads import Answered, Row, balance, by_oracle, by_query, report, rows_of

VISITOR = 999


@pytest.fixture(params=[by_oracle, by_query], ids=["oracle", "query"])
def answered(request: pytest.FixtureRequest, tmp_path: Path) -> Answered:
    """Returns the answers to rows, one way or the other."""
    return partial(request.param, folder=tmp_path)


def crowd(count: int, *, spd: int, seg: int = 10, minute: int = 0, first: int = 1) -> list[Row]:
    """Cars that report twice from a segment in a minute."""
    seconds = (60 * minute, 60 * minute + 30)
    return [report(second, vid, seg, spd=spd) for vid in range(first, first + count) for second in seconds]


def notices(answers: pd.DataFrame, vid: int = VISITOR, kind: int = 0) -> list[tuple[int, ...]]:
    """A car's toll notifications: time, segment, average speed, toll."""
    chosen = answers[(answers["vid"] == vid) & (answers["type"] == kind)]
    return [tuple(map(int, row)) for row in chosen[["time", "seg", "lav", "value"]].to_numpy()]


def test_a_toll_is_for_more_than_50_cars_below_40_mph(answered: Answered) -> None:
    """It is twice the square of the cars above 50, by the minute before."""
    cases = {10: (60, 30, 200), 20: (51, 39, 2), 30: (50, 30, 0), 40: (60, 40, 0), 50: (60, 39, 200)}
    rows = []
    for seg, (cars, spd, _toll) in cases.items():
        rows += [*crowd(cars, spd=spd, seg=seg, first=100 * seg), report(60, seg, seg)]
    answers = answered(rows_of(rows))
    for seg, (_cars, spd, toll) in cases.items():
        assert notices(answers, vid=seg) == [(60, seg, spd, toll)]


def test_a_toll_is_charged_when_the_car_goes_on_to_another_segment(answered: Answered) -> None:
    """Only then: the balance follows the report of the same second."""
    way = [report(60, VISITOR, 10), report(90, VISITOR, 11), report(120, VISITOR, 12)]
    answers = answered(rows_of([*crowd(60, spd=30), *way, balance(60, VISITOR), balance(90, VISITOR)]))
    assert notices(answers, kind=2) == [(60, 0, 0, 0), (90, 0, 0, 200)]
    assert [notice[:2] for notice in notices(answers)] == [(60, 10), (90, 11), (120, 12)]


def test_a_car_that_leaves_pays_nothing_for_its_last_segment(answered: Answered) -> None:
    """It gets no notification in the exit lane; its account waits until it is back."""
    trip = [report(60, VISITOR, 9), report(90, VISITOR, 10), report(120, VISITOR, 10, lane=EXIT)]
    back = [report(300, VISITOR, 50, lane=0), balance(300, VISITOR)]
    crowds = [*crowd(60, spd=30), *crowd(55, spd=30, seg=9, first=100)]
    answers = answered(rows_of([*crowds, *trip, balance(120, VISITOR), *back]))
    assert notices(answers) == [(60, 9, 30, 50), (90, 10, 30, 200), (300, 50, 0, 0)]
    assert notices(answers, kind=2) == [(120, 0, 0, 50), (300, 0, 0, 50)]


def test_the_average_is_of_five_minutes_of_averages_of_cars(answered: Answered) -> None:
    """A car counts once a minute, a minute without cars not at all; the result is rounded down."""
    rows = [report(0, 1, 10, spd=10), report(30, 1, 10, spd=30), report(0, 2, 10, spd=60), report(30, 2, 11)]
    rows += [report(180, 3, 10, spd=61)]
    rows += [report(240, VISITOR, 10, spd=20), report(300, VISITOR + 1, 10, spd=0), report(360, VISITOR + 2, 10)]
    answers = answered(rows_of(rows))
    # Minute 0 has (20 + 60) / 2 = 40, minute 3 has 61, minute 4 has 20, minute 5 has 0.
    assert notices(answers, VISITOR) == [(240, 10, 50, 0)]
    assert notices(answers, VISITOR + 1) == [(300, 10, 40, 0)]
    assert notices(answers, VISITOR + 2) == [(360, 10, 27, 0)]


def crash() -> list[Row]:
    """Two cars that report from one place: an accident from second 95, when the later one has four times, until 210."""
    stands = [report(30 * at, 1, 20, spd=0, lane=2) for at in range(7)]
    return [*stands, report(210, 1, 21), *(report(5 + 30 * at, 2, 20, spd=0, lane=2) for at in range(9))]


def test_an_accident_warns_who_comes_near_until_it_is_cleared(answered: Answered) -> None:
    """Those who enter one of five segments up to it, in the minutes after those in which it was there."""
    warned = [(130, 16, 0), (250, 16, 0), (130, 20, 0)]
    not_warned = [(100, 16, 0), (300, 16, 0), (130, 15, 0), (130, 21, 0), (130, 20, 1)]
    others = [report(time, 100 + at, seg, dir=way) for at, (time, seg, way) in enumerate(warned + not_warned)]
    answers = answered(rows_of([*crash(), *others]))
    for at, (time, *_where) in enumerate(warned):
        assert notices(answers, 100 + at, kind=1) == [(time, 20, 0, 0)]
    assert (answers["type"] == 1).sum() == len(warned)


def test_near_an_accident_there_is_no_toll(answered: Answered) -> None:
    """The segment before the five has one."""
    crowds = [*crowd(60, spd=10, seg=16, minute=1, first=100), *crowd(60, spd=10, seg=15, minute=1, first=200)]
    answers = answered(rows_of([*crash(), *crowds, report(130, VISITOR, 15), report(160, VISITOR, 16)]))
    assert notices(answers) == [(130, 15, 10, 200), (160, 16, 10, 0)]


def test_cars_in_two_lanes_or_stopped_three_times_are_no_accident(answered: Answered) -> None:
    """Both cars report four times from one position of one lane."""
    lanes = [report(30 * at + vid, vid, 20, spd=0, lane=vid) for at in range(4) for vid in (1, 2)]
    thrice = [report(30 * at + vid, vid, 22, spd=0) for at in range(3) for vid in (3, 4)]
    answers = answered(rows_of([*lanes, *thrice, report(130, VISITOR, 20)]))
    assert not (answers["type"] == 1).any()


def test_expenditures_are_those_of_the_historical_table(answered: Answered, tmp_path: Path) -> None:
    """Of the day and the expressway."""
    tolls = np.zeros((3, 70), TOLL)
    tolls["toll"][2, 5], tolls["xway"][2, 5] = 77, 1
    (tmp_path / "past").mkdir()
    np.save(tmp_path / "past" / "0.npy", tolls)
    asked = [{"type": EXPENDITURE, "time": 0, "vid": 2, "qid": xway, "day": 5, "xway": xway} for xway in (0, 1)]
    answers = answered(rows_of([report(0, 2, 1), *asked]))
    assert answers.loc[answers["type"] == 3, ["qid", "value"]].to_numpy().tolist() == [[0, 0], [1, 77]]


def test_a_second_that_comes_too_late_is_an_error() -> None:
    """The query never answers from half of a second."""
    road = Road()
    list(drive(rows_of([report(5, 1, 1)]), road, {}, {}))
    with pytest.raises(ValueError, match="second 4 arrives after second 5"):
        list(drive(rows_of([report(4, 2, 1)]), road, {}, {}))
