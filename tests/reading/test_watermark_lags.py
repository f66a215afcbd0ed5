"""Lags of the watermark: behind the commit or, in historic data, behind the newest event."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pandas as pd
from synthetic import START, write

import streamstate as ss
from streamstate.reports import History
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.plan_table import store_plan
from streamstate.snapshots.store.query_plans.query_plan import EventTime, QueryPlan
from streamstate.state_inspect.analytics.watermark_lags import WatermarkLags
from streamstate.widgets import QueryDashboard
from streamstate.widgets.timeline.actions import TimelineSelection
from streamstate.widgets.timeline.model import TimelineModel

FIVE_MINUTES = EventTime("t", 300_000, ("0",))


def at(minute: int, year: int = 2013) -> datetime:
    """A minute after ten o'clock, years before the epochs were committed."""
    return START.replace(year=year, hour=10, minute=minute)


def historic(folder: Path, *watermarks: EventTime, since: int = 0) -> History:
    """Three epochs over events of 2013, each of which moves the watermark by ten minutes, and the plan's watermarks."""
    moves = pairwise([at(0), at(10), at(20), at(30)])
    facts = [{"watermark": now, "next_watermark": after} for now, after in moves]
    write(folder, [{"a": 1}, {"a": 2}, {"a": 3}], facts=facts)
    store_plan(Layout.at(folder), "q", QueryPlan("append", "4.3.0", {}, {}, event_times=watermarks), since)
    return ss.open_store(folder)["q"]


def test_the_newest_event_follows_from_the_query_s_delay(tmp_path: Path) -> None:
    """The watermark after an epoch is that far behind it. Before the plan is known, so is the event unknown."""
    newest = historic(tmp_path, FIVE_MINUTES, since=1).watermark_lag()["newest_event"]
    assert newest.isna().to_list() == [True, False, False]
    assert newest.to_list()[1:] == [at(25), at(35)]


def test_of_several_watermarks_nobody_knows_the_newest_event(tmp_path: Path) -> None:
    """One of them may be further than the others."""
    history = historic(tmp_path, FIVE_MINUTES, EventTime("u", 0, ("1",)))
    assert history.watermark_lag()["newest_event"].isna().all()


def test_in_historic_data_the_lag_is_that_behind_the_newest_event(tmp_path: Path) -> None:
    """4,966 days behind the commit would say nothing."""
    history = historic(tmp_path, FIVE_MINUTES)
    lags = WatermarkLags(history.recorded)
    assert (lags.historic, lags.reference) == (True, "the newest event")
    assert [lags.of(entry) for entry in history.recorded.entries()] == [timedelta(minutes=15)] * 3
    shown = TimelineModel(history).view(TimelineSelection())
    assert [point.values["lag"] for point in shown.points] == [900] * 3
    facts = dict(QueryDashboard(history).model.drawing(QueryDashboard(history).selection).kept.facts)
    assert "(15 min 0 s behind the newest event, which is 4,747 days old)" in facts["watermark"]


def test_without_a_plan_historic_data_have_no_lag(tmp_path: Path) -> None:
    """The timeline says why, instead of a line at 4,747 days."""
    history = historic(tmp_path)
    shown = TimelineModel(history).view(TimelineSelection())
    assert [point.values["lag"] for point in shown.points] == [None] * 3
    assert "Historic data: the watermark is 4,747 days behind the commit." in shown.caption()
    assert not any("watermark lag" in sentence for sentence in shown.caption())
    facts = dict(QueryDashboard(history).model.drawing(QueryDashboard(history).selection).kept.facts)
    assert facts["watermark"].endswith("(historic data)")


def test_other_data_have_a_lag_behind_the_commit(tmp_path: Path) -> None:
    """Also if the newest event is known: how old it is matters."""
    write(tmp_path, [{"a": 1}], facts=[{"watermark": START - timedelta(minutes=9), "next_watermark": START}])
    store_plan(Layout.at(tmp_path), "q", QueryPlan("append", "4.3.0", {}, {}, event_times=(FIVE_MINUTES,)), 0)
    history = ss.open_store(tmp_path)["q"]
    lags = WatermarkLags(history.recorded)
    assert (lags.historic, lags.of(history.recorded.live_entry())) == (False, timedelta(minutes=9))
    assert history.watermark_lag()["newest_event"].to_list() == [pd.Timestamp(START + timedelta(minutes=5))]
    facts = dict(QueryDashboard(history).model.drawing(QueryDashboard(history).selection).kept.facts)
    assert facts["watermark"].endswith("(9 min 0 s behind the commit)")
