"""Values in the cells of the state browser."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from streamstate.state_inspect.cell_text import CELL, WHOLE, canonical, cell
from streamstate.state_inspect.frames import as_html, as_text, frame_tuples, to_pandas
from streamstate.widgets.state_browser.rows import LIMIT, whole_value


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the user's time zone to one that is not UTC."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


MOMENT = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("EWR", "EWR"),
        (7, "7"),
        (True, "true"),
        (np.int64(7), "7"),
        (0.1 + 0.2, "0.3"),
        (Decimal("1.10"), "1.10"),
        (None, "null"),
        (pd.NA, "null"),
        (pd.NaT, "null"),
        (float("nan"), "nan"),
        ("", "(empty)"),
        (b"\x00\xff", "0x00ff"),
        ("two\nlines", "two\\nlines"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        (MOMENT, "2013-01-01 06:00:00 +01:00"),
        (pd.Timestamp(MOMENT), "2013-01-01 06:00:00 +01:00"),
        (dt.datetime(2013, 1, 1, 5), "2013-01-01 05:00:00"),  # noqa: DTZ001 (Spark's timestamps without a zone)
        (dt.date(2013, 1, 1), "2013-01-01"),
        ({"legs": ["EWR", "ORD"], "n": None}, "{legs: [EWR, ORD], n: null}"),
        (np.array([1, 2]), "[1, 2]"),
        (
            {"start": MOMENT, "end": MOMENT + dt.timedelta(hours=1)},
            "2013-01-01 06:00 +1h",
        ),
    ],
)
def test_a_value_is_one_readable_line(value: Any, text: str) -> None:
    """Times are in the user's zone, and invisible characters are escaped."""
    assert cell(value).text == text


def test_null_and_empty_text_differ_from_their_words() -> None:
    """The text "null" is not mistaken for a missing value."""
    assert (cell("null").kind, cell(None).kind, cell("").kind) == ("text", "null", "null")


@pytest.mark.parametrize("value", ["x" * 1_000_000, b"x" * 1_000_000, list(range(1_000_000)), {"a": "x" * 1_000_000}])
def test_a_long_value_is_truncated_with_an_ellipsis(value: Any) -> None:
    """The text of the tooltip is bounded too, however long the value is."""
    shown = cell(value)
    assert len(shown.text) == CELL
    assert shown.text.endswith("…")
    assert shown.whole is not None
    assert CELL < len(shown.whole) < WHOLE + 50


def test_a_rounded_number_keeps_its_exact_form() -> None:
    """Six digits are shown; the tooltip has the exact number."""
    assert cell(12.123456789).whole == "12.123456789"
    assert cell(12.5).whole is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (np.int64(1), 1, True),
        (pd.Timestamp(MOMENT), MOMENT, True),
        (np.array([1, 2]), [1, 2], True),
        ({"a": [1]}, {"a": np.array([1])}, True),
        (None, pd.NA, True),
        (float("nan"), float("nan"), True),
        (None, float("nan"), False),
        ("1", 1, False),
        ([1, 2], [2, 1], False),
    ],
)
def test_values_are_compared_as_the_state_compares_them(one: Any, other: Any, same: bool) -> None:
    """Conversions by pandas on the way do not matter."""
    assert (canonical(one) == canonical(other)) is same
    hash(canonical(one))


def test_a_missing_number_in_a_frame_is_not_nan() -> None:
    """A frame of ours tells them apart, in text too."""
    frame = to_pandas(pa.table({"mean": [1.5, None, float("nan")]}))
    assert [value for (value,) in frame_tuples(frame)][:2] == [1.5, None]
    assert as_text(frame).split() == ["mean", "1.5", "null", "nan"]
    assert as_html(frame, missing="").count("<td></td>") == 1


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (dt.timedelta(days=1), "+1d"),
        (dt.timedelta(minutes=90), "+1h 30min"),
        (dt.timedelta(seconds=10), "+10s"),
        (dt.timedelta(milliseconds=500), "+0.5s"),
        (dt.timedelta(0), "+0s"),
    ],
)
def test_a_window_is_its_start_and_its_length(length: dt.timedelta, text: str) -> None:
    """Windows as keys take little room; the tooltip has both ends with their zone."""
    shown = cell({"start": MOMENT, "end": MOMENT + length})
    assert (shown.text, shown.kind) == (f"2013-01-01 06:00 {text}", "window")
    assert shown.whole is not None
    assert shown.whole.startswith("2013-01-01 06:00:00 – ")
    assert shown.whole.endswith(" +01:00")


def test_a_window_is_not_rounded() -> None:
    """Windows may begin at any microsecond."""
    start = MOMENT + dt.timedelta(seconds=7, microseconds=1)
    assert cell({"start": start, "end": start}).text == "2013-01-01 06:00:07.000001 +0s"


def test_a_time_that_another_zone_cannot_express_stays_in_its_own() -> None:
    """Such as the end of all times, as which data often have the year 9999."""
    assert cell(dt.datetime.max.replace(tzinfo=dt.UTC)).text == "9999-12-31 23:59:59.999999 +00:00"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("two\nlines\u202e", "two\nlines\u202e"),
        (b"\x00\xff", "0x00ff"),
        (None, "null"),
        (True, "true"),
        (12.123456789, "12.123456789"),
        (MOMENT, "2013-01-01 06:00:00 +01:00"),
        ({"legs": ["שדה", None], "at": MOMENT}, '{"legs": ["שדה", null], "at": "2013-01-01 06:00:00 +01:00"}'),
        ([("EWR", 2)], '[["EWR", 2]]'),
    ],
)
def test_a_whole_value_is_not_shortened_or_escaped(value: Any, text: str) -> None:
    """It is meant to be copied: text as it is, exact numbers, nested values as JSON."""
    assert whole_value("column", {"k": 1}, value).text == text


def test_a_whole_value_has_a_limit_and_says_its_size() -> None:
    """The page does not receive more than it can show."""
    found = whole_value("column", {"k": 1}, "x" * (LIMIT + 5))
    assert (len(found.text), found.size) == (LIMIT, LIMIT + 5)


@pytest.mark.parametrize(
    "text", ["\U0001f469\u200d\U0001f467", "\u0645\u06cc\u200c\u062e", "שלום", "\U0001f1eb\U0001f1f7"]
)
def test_text_of_any_script_is_shown_as_it_is(text: str) -> None:
    """Joining characters of letters and emoji belong to the text, although they are invisible."""
    assert cell(text).text == text
