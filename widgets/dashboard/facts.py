"""The figures at the head of a dashboard, its problems, and the plots of its rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streamstate.operations.supervision.restart_policy import in_one_line
from streamstate.state_inspect.analytics.watermark_lags import WatermarkLags, behind_commit
from streamstate.state_inspect.cell_text import timestamp
from streamstate.widgets.chart import ACCENT, CHANGED, Chart, quantity
from streamstate.widgets.dashboard.drawing import QueryTrouble
from streamstate.widgets.dashboard.watcher import BATCHES, BatchReport, QuerySample
from streamstate.widgets.number_text import amount, rate, size, span, unit_for
from streamstate.widgets.timeline.epochs import seconds, seconds_between

if TYPE_CHECKING:
    from datetime import datetime

    from streamstate.snapshots.capture.follow import CaptureStatus
    from streamstate.snapshots.store.entries import Entry
    from streamstate.widgets.dashboard.spread import StateSpread

_SHORT = 240
_INTEGERS = "datum.value === floor(datum.value) ? format(datum.value, ',d') : ''"  # epochs have no fractions


def newest_entry(entries: Sequence[Entry]) -> Entry | None:
    """Return the newest captured epoch of a manifest; None if there is none."""
    return next((entry for entry in reversed(entries) if entry.captured), None)


def facts_of(
    entries: Sequence[Entry],
    newest: Entry | None,
    sample: QuerySample | None,
    captured: CaptureStatus | None,
    spread: StateSpread | None,
    *,
    lags: WatermarkLags,
) -> list[tuple[str, str]]:
    """The figures with their labels; unknown figures are left out. ``spread`` has the size of a table on disk."""
    facts = list(_of_epoch(newest, lags)) if newest is not None else []
    if spread is not None:
        facts.append((f"log of {spread.table}", f"{size(spread.bytes)} on disk"))
    if sample is not None and sample.batches:
        facts += _of_batch(sample.batches[-1])
    facts += _of_capture(newest, captured)
    gaps = sum(not entry.captured for entry in entries)
    return [*facts, ("gaps", amount(gaps, "epoch"))] if gaps else facts


def troubles_of(sample: QuerySample | None, captured: CaptureStatus | None, *, late: bool) -> list[QueryTrouble]:
    """Return the problems of the query and its capture; ``late`` says that Spark takes long to answer."""
    found = []
    if sample is not None and sample.problem:
        what = {"failed": "The query failed", "unreachable": "Spark does not answer"}.get(
            sample.state, "Spark cannot report the query's state"
        )
        found.append(QueryTrouble(what, _line(sample.problem), sample.problem))
    if late:
        found.append(QueryTrouble("Spark is busy", "it has not answered for some seconds; its figures are outdated."))
    for what, error in (
        ("Capture failed", captured.error if captured else None),
        ("Store maintenance failed", captured.tidy_error if captured else None),
    ):
        if error:
            found.append(QueryTrouble(what, _line(error), error))
    return found


def _of_epoch(entry: Entry, lags: WatermarkLags) -> Iterator[tuple[str, str]]:
    if entry.committed_at is not None:
        yield "committed", timestamp(entry.committed_at)
    yield "state", "not counted" if entry.rows is None else amount(entry.rows, "row")
    yield "changed", amount(sum(facts.changes for facts in entry.tables.values()), "row")
    if entry.input_rows is not None:
        yield "input", amount(entry.input_rows, "row")
    if entry.watermark is not None:
        yield "watermark", _watermark(entry, entry.watermark, lags)


def _watermark(entry: Entry, watermark: datetime, lags: WatermarkLags) -> str:
    """Return the watermark of an epoch, related to the commit or, in historic data, to the newest event."""
    since = behind_commit(entry)
    if since is None:
        return "none yet"
    if not lags.historic:
        return f"{timestamp(watermark)} ({span(since.total_seconds())} behind the commit)"
    lag = lags.behind_event(entry)
    if lag is None:
        return f"{timestamp(watermark)} (historic data)"
    old = (since - lag).total_seconds()
    return f"{timestamp(watermark)} ({span(lag.total_seconds())} behind the newest event, which is {span(old)} old)"


def _of_batch(batch: BatchReport) -> Iterator[tuple[str, str]]:
    if batch.input_per_second is not None:
        yield "arriving", rate(batch.input_per_second)
    if batch.processed_per_second is not None:
        yield "processed", rate(batch.processed_per_second)
    yield "batch", span(batch.milliseconds / 1_000)


def _of_capture(newest: Entry | None, captured: CaptureStatus | None) -> Iterator[tuple[str, str]]:
    if captured is not None:
        behind = f", {amount(captured.behind, 'epoch')} behind" if captured.behind else ""
        yield "capture", f"{captured.state}{behind}"
        if captured.by_spark:
            yield "read by Spark", ", ".join(captured.by_spark)
    if newest is not None and newest.committed_at is not None:
        delay = (newest.captured_at - newest.committed_at).total_seconds()
        if delay >= 0:
            yield "captured", f"{span(delay)} after its commit"


def _line(problem: str) -> str:
    """Return the line that says what went wrong, shortened."""
    line = in_one_line(problem)
    return line if len(line) <= _SHORT else line[: _SHORT - 1] + "…"


def charts(entries: Sequence[Entry], batches: Sequence[BatchReport], lags: WatermarkLags) -> dict[str, Chart]:
    """Return the plots of the newest epochs, by name; plots without data are left out.

    Without Spark's reports, because the query does not run in this process, the manifest's times are plotted.
    """
    newest = entries[-BATCHES:]
    found: dict[str, Chart] = {}
    rates = list(_rates(newest, batches))
    if len({row["epoch"] for row in rates}) > 1:
        found["rates"] = Chart("Rows per second, by epoch", _lines("rows per second", colours=True), rates, height=84)
    if len(batches) > 1:
        found["duration"] = _plot("Batch duration", [(batch.epoch, batch.milliseconds / 1_000) for batch in batches])
    elif len(gaps := _between_commits(newest)) > 1:
        found["duration"] = _plot("Time between commits", gaps)
    behind = [(entry.epoch, seconds(lag)) for entry in newest if (lag := lags.of(entry)) is not None]
    if len(behind) > 1:
        found["watermark"] = _plot(f"Watermark behind {lags.reference}", behind)
    return found


def _rates(entries: Sequence[Entry], batches: Sequence[BatchReport]) -> Iterator[Mapping[str, Any]]:
    """Input and processed rows per second; without Spark's reports, input between two commits."""
    for batch in batches:
        for what, value in (("input", batch.input_per_second), ("processed", batch.processed_per_second)):
            if value is not None:
                yield {"epoch": batch.epoch, "value": round(value, 3), "what": what}
    for before, entry in pairwise(entries if not batches else ()):
        seconds = seconds_between(before.committed_at, entry.committed_at)
        if entry.captured and before.captured and entry.input_rows is not None and seconds:
            yield {"epoch": entry.epoch, "value": round(entry.input_rows / seconds, 3), "what": "input"}


def _between_commits(entries: Sequence[Entry]) -> list[tuple[int, float]]:
    found = ((entry, seconds_between(before.committed_at, entry.committed_at)) for before, entry in pairwise(entries))
    return [(entry.epoch, seconds) for entry, seconds in found if seconds is not None]


def _plot(label: str, points: Sequence[tuple[int, float]]) -> Chart:
    """Return the plot of a line, in the unit that fits its largest value."""
    unit, seconds = unit_for(max(abs(value) for _, value in points))
    rows = [{"epoch": epoch, "value": round(value / seconds, 3), "what": label.lower()} for epoch, value in points]
    return Chart(f"{label} in {unit}, by epoch", _lines(unit, colours=False), rows, height=60)


def _lines(title: str, *, colours: bool) -> dict[str, Any]:
    scale, axis = {"zero": False, "nice": False}, {"labelExpr": _INTEGERS, "grid": False}
    encoding: dict[str, Any] = {
        "x": quantity("epoch", title=None, scale=scale, axis=axis),
        "y": quantity("value", title=title, axis={"tickCount": 3, "minExtent": 40}),
        "color": {"value": ACCENT},
        "tooltip": [
            {"field": "epoch", "title": "epoch", "format": ",d"},
            {"field": "what", "title": "what"},
            {"field": "value", "title": title, "format": ",.3~f"},
        ],
    }
    if colours:
        what = {"field": "what", "legend": {"title": None, "orient": "top", "symbolType": "stroke"}}
        names = ["input", "processed"]
        encoding["color"] = what | {"scale": {"domain": names, "range": [ACCENT, CHANGED]}}
        encoding["strokeDash"] = what | {"scale": {"domain": names, "range": [[1, 0], [4, 3]]}}
    return {"mark": {"type": "line", "point": {"size": 12}, "strokeWidth": 1.5}, "encoding": encoding}
