"""The late rows view: the number of dropped rows at each epoch, and their delays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from streamstate.widgets.chart import CHANGED, GAP, REMOVED, STROKES, WHOLE, Chart, bars, layer, quantity, tooltips
from streamstate.widgets.charts_and_words import KIND, ChartsAndWords
from streamstate.widgets.model import NoSelection, ViewModel
from streamstate.widgets.number_text import amount, described, percent, span, unit_for
from streamstate.widgets.view import View

BINS = 200
"""The most bars; beyond that, a bar covers several epochs: their rows in all, and the largest delay."""
LONGEST, DELAY = "latest row", "99 % of the rows"
_SHOWN = 3


def drawn(rows: pd.DataFrame, name: str) -> ChartsAndWords:
    """Return the drawing of a frame of :meth:`History.late_counts`."""
    read = rows[rows["missing"].isna()]
    charts = [*_charts(rows, name)] if len(read) and read["watermark"].notna().any() else []
    return ChartsAndWords(name, f"Late rows of {name}", [*_sentences(rows, read)], charts)


def _sentences(rows: pd.DataFrame, read: pd.DataFrame) -> Iterator[str]:
    epochs = described([int(epoch) for epoch in read["epoch"]]) if len(read) else "none"
    came, dropped = int(read["came"].sum()), int(read["dropped"].sum())
    if len(read) and read["watermark"].isna().all() and not dropped:
        none = "The operator drops no late rows, or there was no watermark yet."
        yield f"Epochs {epochs}: {amount(came, 'row')} came in. {none}"
    else:
        share = f" ({percent(dropped / came)})" if dropped else ""
        yield f"Epochs {epochs}: {amount(came, 'row')} came in, {dropped:,} were dropped as late{share}."
    if dropped:
        worst = read.loc[read["longest"].idxmax()]
        yield f"The latest was {span(worst['longest'].total_seconds())} late, at epoch {worst['epoch']}."
        longer = read["longer_delay"].max()
        if longer:
            yield f"Delays longer by {span(longer.total_seconds())} would keep 99 % of the rows at every epoch."
    for reason, part in list(rows[rows["missing"].notna()].groupby("missing", sort=False))[:_SHOWN]:
        yield f"Not known: {described([int(epoch) for epoch in part['epoch']])}. {reason}"


def _charts(rows: pd.DataFrame, name: str) -> Iterator[Chart]:
    first, last = int(rows["epoch"].iloc[0]), int(rows["epoch"].iloc[-1])
    width = math.ceil((last - first + 1) / BINS)
    bins = [*_bins(rows, width)]
    folded = "" if width == 1 else f", {width:,} epochs per bar"
    end = first - 0.5 + width * math.ceil((last - first + 1) / width)
    x = {"title": None, "axis": WHOLE, "scale": {"domain": [first - 0.5, end], "nice": False}}
    counts = [{**part, "kind": "unknown" if part["dropped"] is None else "dropped"} for part in bins]
    yield Chart(f"Late rows of {name} that were dropped, by epoch{folded}", _counts_spec(x), counts, height=90)
    longest = max((part["longest"] or 0 for part in bins), default=0)
    if longest:
        unit, seconds = unit_for(longest)
        lines = [
            {"epoch": (part["first"] + part["last"]) / 2, "what": what, "time": _in(part[field], seconds)}
            for what, field in ((LONGEST, "longest"), (DELAY, "delay"))
            for part in bins
        ]
        label = f"By how much longer the delays of {name} had to be, in {unit}, by epoch{folded}"
        yield Chart(label, _lines_spec(x, unit, points=len(bins) < 60), lines, height=90)


def _in(value: float | None, seconds: float) -> float | None:
    return None if value is None else value / seconds


def _bins(rows: pd.DataFrame, width: int) -> Iterator[dict[str, Any]]:
    """Yield the epochs, ``width`` in each bin, from half an epoch before the first to half an epoch after the last."""
    begins = int(rows["epoch"].iloc[0])
    for number, part in rows.groupby((rows["epoch"] - begins) // width):
        known = part[part["missing"].isna()]
        start = begins + int(number) * width - 0.5
        yield {
            "first": start,
            "last": start + width,
            "epochs": described([int(epoch) for epoch in part["epoch"]]),
            "dropped": int(known["dropped"].sum()) if len(known) else None,
            "came": int(known["came"].sum()) if len(known) else None,
            "longest": known["longest"].fillna(pd.Timedelta(0)).max().total_seconds() if len(known) else None,
            "delay": known["longer_delay"].max().total_seconds() if len(known) else None,
            "why": "; ".join(dict.fromkeys(part["missing"].dropna())) or None,
        }


def _counts_spec(x: dict[str, Any]) -> dict[str, Any]:
    titles = {"epochs": "epoch", "came": "came in", "dropped": "dropped", "why": "not known"}
    over = {"x": quantity("first", **x), "x2": {"field": "last"}, "tooltip": tooltips(titles)}
    rows = quantity("dropped", title="rows", axis={"tickCount": 3})
    dropped = layer("dropped", bars(many=False, color=REMOVED), **over, y=rows, y2={"datum": 0})
    return {"layer": [layer("unknown", GAP, **over), dropped]}


def _lines_spec(x: dict[str, Any], unit: str, *, points: bool) -> dict[str, Any]:
    kept = {
        "field": "what",
        "type": "nominal",
        "title": "to keep the",
        "scale": {"domain": [LONGEST, DELAY]},
        "legend": STROKES,
    }
    return {
        "mark": {"type": "line", "point": points, "tooltip": True},
        "encoding": {
            "x": quantity("epoch", **x | {"title": "epoch"}),
            "y": quantity("time", title=unit, axis={"tickCount": 3}),
            "color": kept | {"scale": {"domain": [LONGEST, DELAY], "range": [REMOVED, CHANGED]}},
            "strokeDash": kept,
        },
    }


class LateRowsModel(ViewModel[NoSelection]):
    """Draws one frame, which never changes."""

    kind = KIND

    def __init__(self, rows: pd.DataFrame, name: str) -> None:
        self.name = name
        self._drawn = drawn(rows, name)

    def newest(self) -> object:
        """Always the same."""
        return 0

    def view(self, selection: NoSelection) -> ChartsAndWords:
        """Return the sentences and the plots."""
        return self._drawn


class LateRowsView(View[NoSelection]):
    """Shows how many rows the watermark dropped at each epoch, how late they were, and which delay would keep them.

    Epochs whose input could not be read again are grey. In a saved notebook and in exported HTML the view is still
    pictures; elsewhere, a few sentences.

    Args:
        rows: the result of ``history.late_counts()``.
        query: the query's name.

    Example:
        >>> LateRowsView(store["delays_by_hour"].late_counts(), query="delays_by_hour")
        delays_by_hour: Epochs 0–14: 84 rows came in, 3 were dropped as late (3.6...%). ...
    """

    def __init__(self, rows: pd.DataFrame, *, query: str) -> None:
        self.rows = rows
        """The numbers: a row per epoch."""
        super().__init__(LateRowsModel(rows, query), NoSelection())
