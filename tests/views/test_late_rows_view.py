"""The view of late rows, without a browser or Spark."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from streamstate.widgets import LateRowsView
from streamstate.widgets.charts_and_words import ChartsAndWords
from streamstate.widgets.late_rows import BINS, DELAY, LONGEST

REASON = "The input of epoch 2 of q has changed: <b>file</b> is gone."


def frame(count: int = 5, *, missing: int | None = 2, drops: bool = True) -> pd.DataFrame:
    """A frame as ``late_counts`` returns it: epoch n drops n of 100 rows, the latest of them n minutes late."""
    minutes = [pd.Timedelta(minutes=epoch * drops) for epoch in range(count)]
    known = [epoch != missing for epoch in range(count)]
    columns: dict[str, tuple[str, list[Any]]] = {
        "watermark": (
            "datetime64[us, UTC]",
            [pd.Timestamp(n, tz="UTC", unit="h") if drops else None for n in range(count)],
        ),
        "came": ("Int64", [100] * count),
        "dropped": ("Int64", [epoch * drops for epoch in range(count)]),
        "groups": ("Int64", [0] * count),
        "longest": ("timedelta64[us]", [late_by or None for late_by in minutes]),
        "longer_delay": ("timedelta64[us]", [late_by / 2 for late_by in minutes]),
    }
    made: dict[str, Any] = {"epoch": range(count)}
    for name, (kind, values) in columns.items():
        made[name] = pd.Series(
            [value if is_known else None for value, is_known in zip(values, known, strict=True)], dtype=kind
        )
    return pd.DataFrame(
        made | {"missing": pd.Series([None if is_known else REASON for is_known in known], dtype=object)}
    )


def shown(rows: pd.DataFrame) -> ChartsAndWords:
    """The view's drawing."""
    view = LateRowsView(rows, query="q")
    drawn = view.model.drawing(view.selection).kept
    assert isinstance(drawn, ChartsAndWords)
    return drawn


def test_bars_and_lines_are_the_numbers_of_the_frame() -> None:
    """A bar for each epoch; an epoch that could not be read has none, and says why."""
    bars, lines = shown(frame()).charts
    assert [row["dropped"] for row in bars.rows] == [0, 1, None, 3, 4]
    assert (bars.rows[0]["first"], bars.rows[-1]["last"]) == (-0.5, 4.5)
    assert [row["why"] for row in bars.rows] == [None, None, REASON, None, None]
    times = {what: [row["time"] for row in lines.rows if row["what"] == what] for what in (LONGEST, DELAY)}
    assert times == {LONGEST: [0, 1, None, 3, 4], DELAY: [0, 0.5, None, 1.5, 2]}
    assert "in min" in lines.label


def test_the_sentences_add_up() -> None:
    """Rows, the latest of them, the delay that is enough for every epoch, and what is not known."""
    text = repr(LateRowsView(frame(), query="q"))
    assert text.startswith("q: Epochs 0–1, 3–4: 400 rows came in, 8 were dropped as late (2.0\N{NO-BREAK SPACE}%).")
    assert "The latest was 4 min 0 s late, at epoch 4." in text
    assert "longer by 2 min 0 s would keep 99 %" in text
    assert f"Not known: 2. {REASON}" in text


def test_many_epochs_share_bars() -> None:
    """Dropped rows are added up, of lateness the largest is shown; the message stays small."""
    count = 10 * BINS
    bars, lines = shown(frame(count, missing=None)).charts
    assert len(bars.rows) == BINS
    assert sum(row["dropped"] for row in bars.rows) == sum(range(count))
    assert bars.rows[0]["dropped"] == sum(range(10))
    assert max(row["time"] for row in lines.rows) == pytest.approx((count - 1) / 60)
    assert "10 epochs per bar" in bars.label
    assert len(json.dumps(shown(frame(count)).message())) < 100_000


def test_the_still_form_has_pictures_and_no_markup_from_the_store() -> None:
    """Each picture is labelled; paths in reasons are text."""
    bundle, _ = LateRowsView(frame(), query="<i>q</i>")._repr_mimebundle_()
    html = bundle["text/html"]
    assert html.count("<svg") == 2
    assert html.count('role="img" aria-label="') == 2
    assert "<b>" not in html
    assert "<i>" not in html
    assert "<script" not in html


def test_an_operator_that_drops_nothing_says_so() -> None:
    """There is nothing to draw, also if no epoch could be read."""
    drawn = shown(frame(drops=False))
    assert not drawn.charts
    assert "drops no late rows" in drawn.text()
    assert not shown(frame(1, missing=0)).charts
