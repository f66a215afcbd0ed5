"""The drawing of a timeline: plain data, JSON for a page, text and still HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streamstate.snapshots.calls.html import Html, joined, tag
from streamstate.state_inspect.advice import Advice
from streamstate.state_inspect.cell_text import Cell, timestamp
from streamstate.widgets.model import first_row
from streamstate.widgets.number_text import amount, span
from streamstate.widgets.still import frame, table
from streamstate.widgets.timeline.actions import ROWS, WINDOWS, TimelineSelection
from streamstate.widgets.timeline.charts import AXIS, charts, mark_rows, rows, shown_measures
from streamstate.widgets.timeline.epochs import MEASURES, EpochMarks, EpochPoint, ForkMark, Measure

STILL_POINTS = 80
"""The most points of a still picture, which is stored in the notebook."""
_STILL_ROWS = 10
"""Epochs in the table of a saved notebook."""
_SIGNS = ("gaps", "restarts", "forks", "variables", "versions")
_NAMED = 3
"""Settings of shared variables that the caption names; the epochs of all are marked."""


@dataclass(frozen=True)
class TimelineDrawing:
    """All epochs, those of the window in bins of ``width`` epochs with their marks, and all forks of the query.

    Example:
        >>> TimelineDrawing("delays").text()
        'delays: no epoch captured yet'
    """

    name: str
    every: Sequence[EpochPoint] = ()
    points: Sequence[EpochPoint] = ()
    width: int = 1
    marks: EpochMarks = field(default_factory=EpochMarks)
    forks: Sequence[ForkMark] = ()
    selection: TimelineSelection = field(default_factory=TimelineSelection)
    notes: Sequence[str] = ()
    """Sentences for what the plots cannot show."""
    advice: Sequence[Advice] = ()

    @property
    def waiting(self) -> bool:
        """True if no epoch has been captured yet."""
        return not any(point.captured for point in self.every)

    @property
    def newest(self) -> EpochPoint:
        """The newest captured epoch."""
        return next(point for point in reversed(self.every) if point.captured)

    @property
    def uncounted(self) -> bool:
        """True if the state rows of some epochs are not counted yet."""
        return any(point.captured and point.values["rows"] is None for point in self.points)

    def message(self) -> dict[str, Any]:
        """Return the drawing as JSON types."""
        if self.waiting:
            return {"name": self.name, "waiting": True}
        return {
            "name": self.name,
            "waiting": False,
            "axis": {"labels": AXIS, "from": self.points[0].first - 0.5, "to": self.points[-1].last + 0.5},
            "measures": [self._measure(measure) for measure in shown_measures(self.points)],
            "charts": [chart.message() | {"rows": None} for chart in charts(self.name, self.points, self.width)],
            "points": _by_column(rows(self.points), self.points),
            "marks": mark_rows(self.points, self.marks),
            "gaps": [list(run) for run in self.marks.gaps],
            "caption": list(self.caption()),
            "legend": {kind: bool(getattr(self.marks, kind)) for kind in _SIGNS},
            "facts": list(self.facts()),
            "advice": [{"text": advice.text, "evidence": advice.evidence} for advice in self.advice],
            "window": {"chosen": self.selection.window, "offered": self._windows()},
            "selected": self.selected(),
            "uncounted": self.uncounted,
            "epochs": [self.every[0].first, self.every[-1].last],
            "table": self._page() if self.selection.as_table else None,
        }

    def text(self) -> str:
        """Return the drawing as a line of text, and a line for each advice."""
        return "\n".join([f"{self.name}: " + " · ".join(self._parts()), *map(str, self.advice)])

    def html(self) -> Html:
        """Return the drawing as still pictures and a table of the newest epochs, without scripts."""
        body = () if self.waiting else (self._still_advice(), self._pictures(), self._still_table())
        return frame(self.name, self._parts(), *body)

    def facts(self) -> Iterator[str]:
        """Return the facts about the whole query in the head."""
        captured = sum(len(point.captured) for point in self.every)
        missing = len(self.every) - captured
        yield f"{amount(captured, 'epoch')} captured"
        if missing:
            yield amount(missing, "gap")
        newest = self.newest
        yield f"newest {newest.last}" + (f", committed {timestamp(newest.committed)}" if newest.committed else "")

    def caption(self) -> Iterator[str]:
        """Return the sentences below the plots, including what they leave out."""
        first, last = self.points[0].first, self.points[-1].last
        yield f"Epochs {first}–{last}." if first != last else f"Epoch {first}."
        if self.width > 1:
            yield (
                f"Each bar or point stands for up to {self.width:,} epochs: "
                "their sum, last value or maximum, as the titles say."
            )
        if self.marks.restarted > len(self.marks.restarts):
            yield f"The newest {len(self.marks.restarts)} of {self.marks.restarted:,} restarts are marked."
        yield from map(str, [*self.marks.versions, *self.forks])
        yield from map(str, self.marks.variables[-_NAMED:])
        if len(self.marks.variables) > _NAMED:
            yield f"Set earlier: {amount(len(self.marks.variables) - _NAMED, 'more version')}."
        shown = shown_measures(self.points)
        said = {"rows", "lag"} if self.notes else {"rows"}
        absent = [measure.title.lower() for measure in MEASURES if measure not in shown and measure.name not in said]
        if absent:
            yield f"Not recorded for these epochs: {', '.join(absent)}."
        yield from self.notes
        if self.uncounted:
            yield "State rows are counted once the state at these epochs has been read, for example by a state browser."

    def selected(self) -> dict[str, Any] | None:
        """Return the selection in words and numbers."""
        epoch, start = self.selection.epoch, self.selection.start
        if epoch is None:
            return None
        text = f"epoch {epoch} selected" if start is None else f"epochs {start}–{epoch} selected"
        low = epoch if start is None else start
        outside = low > self.points[-1].last or epoch < self.points[0].first
        return {"text": text, "from": low, "to": epoch, "facts": list(self._sums(low, epoch)), "outside": outside}

    def _windows(self) -> list[int | None]:
        """Return the windows that do not show all epochs anyway, and all."""
        return [*(count for count in WINDOWS if count < len(self.every)), None]

    def _measure(self, measure: Measure) -> dict[str, str]:
        fold = "" if self.width == 1 else f"{measure.fold} of {self.width:,}"
        return asdict(measure) | {"fold": fold}

    def _sums(self, first: int, last: int) -> Iterator[str]:
        """Return the totals of an interval."""
        within = [point for point in self.every if first <= point.first <= last]
        if first != last:
            missing = sum(len(point.gaps) for point in within)
            gaps = f", {missing:,} of them {'a gap' if missing == 1 else 'gaps'}" if missing else ""
            yield f"{len(within):,} epochs{gaps}"
        for measure in MEASURES:
            known = [value for point in within if (value := point.values[measure.name]) is not None]
            if known and measure.fold == "sum":
                yield f"{sum(known):,} {measure.title.lower()}"

    def _page(self) -> dict[str, Any]:
        """Return a page of all epochs, newest first."""
        offset = first_row(self.selection.page, ROWS, len(self.every))
        return {
            "rows": [table_row(point) for point in self.every[::-1][offset : offset + ROWS]],
            "titles": [measure.title for measure in MEASURES],
            "offset": offset,
            "total": len(self.every),
            "page": offset // ROWS,
        }

    def _parts(self) -> Iterator[str]:
        if self.waiting:
            yield "no epoch captured yet"
            return
        yield from self.facts()
        texts = table_row(self.newest)["cells"]
        yield from (f"{measure.title.lower()} {text}" for measure, text in zip(MEASURES, texts, strict=True) if text)
        if selected := self.selected():
            yield selected["text"]

    def _pictures(self) -> Html:
        data = [*rows(self.points), *mark_rows(self.points, self.marks)]
        pictures = [tag("div", chart.svg()) for chart in charts(self.name, self.points, self.width, data)]
        return joined(pictures, tag("p", tag("small", " ".join([*self.caption(), *self._legend()]))))

    def _still_advice(self) -> Html | None:
        items = [tag("li", f"{advice.text} {advice.evidence}") for advice in self.advice]
        return tag("ul", items) if items else None

    def _legend(self) -> Iterator[str]:
        if self.marks.gaps:
            yield "Grey: gaps."
        if self.marks.restarts:
            yield "Dashed: restarts."
        if self.marks.forks:
            yield "Orange: forks."
        if self.marks.variables:
            yield "Green, dotted: a shared variable was set, or a policy decided."
        if self.marks.versions:
            yield "Thick: a version of the flow begins."

    def _still_table(self) -> Html:
        heads = ["Epoch", "Committed", *(measure.title for measure in MEASURES)]
        newest = map(table_row, self.every[::-1][:_STILL_ROWS])
        return table(f"The newest epochs of {self.name}", heads, map(_still_row, newest))


def table_row(point: EpochPoint) -> dict[str, Any]:
    """Return an epoch as a row of texts."""
    return {
        "epoch": point.last,
        "gap": not point.captured,
        "committed": timestamp(point.committed) if point.committed else "",
        "run": (point.run or "")[:8],
        "cells": [value_text(measure, point.values) for measure in MEASURES],
    }


def value_text(measure: Measure, values: Mapping[str, Any]) -> str:
    """Return a value as text; empty if it is not known."""
    value = values.get(measure.name)
    if value is None:
        return ""
    return f"{value:,}" if measure.unit == "rows" else span(value)


def _still_row(row: Mapping[str, Any]) -> list[Cell | str]:
    committed = "not captured: a gap" if row["gap"] else row["committed"]
    return [f"{row['epoch']}", committed, *(Cell(text, "number") for text in row["cells"])]


def _by_column(data: Sequence[Mapping[str, Any]], points: Sequence[EpochPoint]) -> dict[str, list[Any]]:
    """Return the rows by column, which takes a third of the space, and what the tooltips say."""
    columns = {name: [row[name] for row in data] for name in data[0] if name != "kind"}
    return columns | {
        "committed": [timestamp(point.committed) if point.committed else "" for point in points],
        "run": [(point.run or "")[:8] for point in points],
        "captured": [len(point.captured) for point in points],
        "gaps": [len(point.gaps) for point in points],
    }
