"""How fast a query is: small plots over its newest epochs, from the manifest and from Spark's reports."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streamstate.widgets.chart import ACCENT, CHANGED, Chart
from streamstate.widgets.dashboard.sample import BATCHES

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.widgets.dashboard.sample import Batch

__all__ = ["charts", "watermark_lag"]

_UNITS = ((1.0, "s"), (60.0, "min"), (3_600.0, "h"), (86_400.0, "days"))
_WHOLE = "datum.value === floor(datum.value) ? format(datum.value, ',d') : ''"  # there is no half of an epoch

Points = list[tuple[int, float]]


def charts(entries: Sequence[Entry], batches: Sequence[Batch]) -> dict[str, Chart]:
    """The plots that there is something for, by name.

    Args:
        entries: the manifest, ascending.
        batches: Spark's reports, ascending; empty where the query is not of this process.
    """
    newest = entries[-BATCHES:]
    found: dict[str, Chart] = {}
    rates = list(_rates(newest, batches))
    if len({one["epoch"] for one in rates}) > 1:
        found["rates"] = Chart("Rows a second, by epoch", _lines("rows a second", colours=True), rates, height=84)
    if len(batches) > 1:
        found["duration"] = _plot("Batch duration", [(one.epoch, one.milliseconds / 1_000) for one in batches])
    elif len(gaps := _between_commits(newest)) > 1:
        found["duration"] = _plot("Time between commits", gaps)
    lags = [(entry.epoch, lag) for entry in newest if (lag := watermark_lag(entry)) is not None]
    if len(lags) > 1:
        found["watermark"] = _plot("Watermark behind the commit", lags)
    return found


def watermark_lag(entry: Entry) -> float | None:
    """Seconds from an epoch's watermark to its commit; None where there is none: Spark's first is 1970."""
    if entry.watermark is None or entry.committed_at is None or entry.watermark.timestamp() <= 0:
        return None
    return (entry.committed_at - entry.watermark).total_seconds()


def _rates(entries: Sequence[Entry], batches: Sequence[Batch]) -> Iterator[Mapping[str, Any]]:
    """Input and processed rows a second; without Spark's reports, input between the commits of two epochs."""
    for batch in batches:
        if batch.input_per_second is not None:
            yield {"epoch": batch.epoch, "value": round(batch.input_per_second, 3), "what": "input"}
        if batch.processed_per_second is not None:
            yield {"epoch": batch.epoch, "value": round(batch.processed_per_second, 3), "what": "processed"}
    for before, entry in pairwise(entries if not batches else ()):
        seconds = _seconds(before.committed_at, entry.committed_at)
        if entry.captured and before.captured and entry.input_rows is not None and seconds:
            yield {"epoch": entry.epoch, "value": round(entry.input_rows / seconds, 3), "what": "input"}


def _between_commits(entries: Sequence[Entry]) -> Points:
    found = ((entry, _seconds(before.committed_at, entry.committed_at)) for before, entry in pairwise(entries))
    return [(entry.epoch, seconds) for entry, seconds in found if seconds is not None]


def _seconds(start: dt.datetime | None, end: dt.datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def _plot(label: str, points: Points) -> Chart:
    """One line, in the unit that fits its largest value."""
    largest = max(abs(value) for _, value in points)
    each, unit = [one for one in _UNITS if largest >= one[0]][-1:][0] if largest >= 1 else (0.001, "ms")
    rows = [{"epoch": epoch, "value": round(value / each, 3), "what": label.lower()} for epoch, value in points]
    return Chart(f"{label} in {unit}, by epoch", _lines(unit, colours=False), rows, height=60)


def _lines(title: str, *, colours: bool) -> dict[str, Any]:
    colour: dict[str, Any] = {"value": ACCENT}
    dash: dict[str, Any] = {}
    if colours:
        legend = {"title": None, "orient": "top", "symbolType": "stroke"}
        names = ["input", "processed"]
        colour = {"field": "what", "scale": {"domain": names, "range": [ACCENT, CHANGED]}, "legend": legend}
        dash = {
            "strokeDash": {"field": "what", "scale": {"domain": names, "range": [[1, 0], [4, 3]]}, "legend": legend}
        }
    return {
        "mark": {"type": "line", "point": {"size": 12}, "strokeWidth": 1.5},
        "encoding": {
            "x": {
                "field": "epoch",
                "type": "quantitative",
                "title": None,
                "scale": {"zero": False, "nice": False},
                "axis": {"labelExpr": _WHOLE, "grid": False},
            },
            "y": {"field": "value", "type": "quantitative", "title": title, "axis": {"tickCount": 3, "minExtent": 40}},
            "color": colour,
            "tooltip": [
                {"field": "epoch", "title": "epoch", "format": ",d"},
                {"field": "what", "title": "what"},
                {"field": "value", "title": title, "format": ",.3~f"},
            ],
            **dash,
        },
    }
