"""Keys whose rows came too late: the answer says that they were dropped, and shows them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from operators.queries import OTHERS, WINDOWS
from operators.running import INPUT, Query, Run, with_settings

import streamstate as ss
from streamstate.reports import History
from streamstate.widgets.why import panel_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def rows(*given: tuple[str, int, float]) -> pa.Table:
    """Rows of a key, a number, and an hour of the day."""
    times = [DAY + dt.timedelta(hours=hour) for _, _, hour in given]
    return pa.table([[key for key, _, _ in given], [number for _, number, _ in given], times], schema=INPUT)


def described(spark: SparkSession, folder: Path, query: Query, *inputs: pa.Table) -> History:
    """A captured and described query over some inputs."""
    run = Run(spark, folder)
    run.start_with(query, inputs)
    run.capture()
    ss.open_store(run.store)["q"].describe(
        lambda: query.build(run.inputs.stream(with_settings(spark))), mode=query.mode
    )
    return run.history


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Sums by hour. After two epochs the watermark is at 11:00; the last one has a row behind it."""
    inputs = rows(("a", 1, 10)), rows(("a", 2, 12)), rows(("a", 2, 12)), rows(("b", 3, 9), ("a", 4, 12.5))
    return described(spark, tmp_path_factory.mktemp("late"), WINDOWS["tumbling window"], *inputs)


def hour(start: int) -> dict[str, Any]:
    """The window that begins at an hour."""
    return {"start": DAY + dt.timedelta(hours=start), "end": DAY + dt.timedelta(hours=start + 1)}


def epoch_of(history: History, input_rows: int) -> int:
    """The epoch that read so many rows; others read none, and only move the watermark."""
    return next(epoch for epoch in history.captured() if history.inputs(epoch).count() == input_rows)


def test_a_key_whose_rows_came_late_is_told_from_one_without_rows(history: History) -> None:
    """The row is shown, with how far the watermark was past the end of its window."""
    epoch = epoch_of(history, 2)
    why = history.why(epoch, table="op0", k="b", window=hour(9))
    assert (why.count(), why.dropped, why.cause) == (0, 1, None)
    assert "0 input rows, 1 row dropped as late; its state did not change" in str(why)
    [late] = why.late_rows.sides["rows"].toPandas().to_dict("records")
    assert (late["v"], late["_late_by"]) == (3, pd.Timedelta(hours=1))
    assert "The late rows" in why._repr_html_()
    absent = history.why(epoch, table="op0", k="c", window=hour(9))
    assert (absent.count(), absent.dropped) == (0, 0)
    assert "late" not in str(absent)


def test_the_panel_of_a_view_shows_the_late_rows(history: History) -> None:
    """Below the input, and counted in the summary."""
    key = {"k": "b", "window": hour(9)}
    panel = panel_of(history.why(epoch_of(history, 2), table="op0", key=key), key)
    assert panel.summary == "0 input rows fell on it · 1 row dropped as late · its state did not change"
    assert panel.tables[-1].title == "Dropped as late"
    assert [cell.text for cell in panel.tables[-1].rows[0].cells][:2] == ["b", "3"]


@pytest.mark.slow
def test_no_row_is_late_before_there_is_a_watermark(history: History) -> None:
    """Spark begins with that of 1970, which is none."""
    first = history.late(0)
    assert (first.watermark, first.count(), first.came) == (None, 0, 1)
    assert str(first) == "op0, epoch 0: 0 of 1 rows dropped: there was no watermark yet"
    counted = history.late_counts()
    assert pd.isna(counted["watermark"][0])
    assert counted["groups"][0] == 0
    assert history.why(0, table="op0", k="a", window=hour(10)).dropped == 0


@pytest.mark.slow
def test_a_session_counts_the_late_rows_that_it_would_have_had(spark: SparkSession, tmp_path: Path) -> None:
    """Not those of the key's other sessions."""
    inputs = (
        rows(("a", 1, 10)),
        rows(("a", 2, 14)),
        rows(("a", 2, 14)),
        rows(("a", 3, 10.1), ("a", 4, 8), ("a", 5, 14.1)),
    )
    history = described(spark, tmp_path, WINDOWS["session window"], *inputs)
    epoch = epoch_of(history, 3)
    why = history.why(epoch, table="op0", k="a", sessionStartTime=DAY + dt.timedelta(hours=10))
    assert [row["v"] for row in why.late_rows.sides["rows"].collect()] == [3]
    assert (why.count(), why.dropped) == (0, 1)


@pytest.mark.slow
def test_rows_on_time_and_late_rows_of_a_key_are_counted_apart(spark: SparkSession, tmp_path: Path) -> None:
    """One row of a key may be late, and another not."""
    inputs = rows(("a", 1, 10)), rows(("a", 2, 12)), rows(("a", 2, 12)), rows(("b", 3, 9), ("b", 4, 12), ("c", 5, 9))
    history = described(spark, tmp_path, OTHERS["dropDuplicatesWithinWatermark"], *inputs)
    why = history.why(epoch_of(history, 3), table="op0", k="b")
    assert (why.count(), why.dropped) == (1, 1)
    assert "1 input row, 1 row dropped as late; cause: input" in str(why)
