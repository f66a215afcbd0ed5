"""What a timeline shows for one selection, as plain data: built in the kernel, drawn elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamstate.widgets.timeline.charts import AXIS, charts, mark_rows, rows, shown_measures
from streamstate.widgets.timeline.marks import Fork, Marks
from streamstate.widgets.timeline.points import MEASURES, Measure, Point
from streamstate.widgets.timeline.selection import ROWS, WINDOWS, Selection
from streamstate.widgets.timeline.spans import span
from streamstate.widgets.values import timestamp

__all__ = ["View", "value_text"]


@dataclass(frozen=True)
class View:
    """Everything one drawing needs.

    Attributes:
        name: the query's.
        every: all epochs, a point each.
        points: those of the window, in bins of ``width`` epochs.
        width: epochs a bin.
        marks: what happened in the window.
        forks: all forks of the query, also outside the window.
        selection: what was chosen.
    """

    name: str
    every: Sequence[Point] = ()
    points: Sequence[Point] = ()
    width: int = 1
    marks: Marks = field(default_factory=Marks)
    forks: Sequence[Fork] = ()
    selection: Selection = field(default_factory=Selection)

    @property
    def waiting(self) -> bool:
        """Whether no epoch has been captured yet."""
        return not any(point.captured for point in self.every)

    @property
    def newest(self) -> Point:
        """The newest captured epoch."""
        return next(point for point in reversed(self.every) if point.captured)

    @property
    def in_window(self) -> int:
        """Epochs of the window."""
        return sum(len(point.captured) + len(point.gaps) for point in self.points)

    def message(self) -> dict[str, Any]:
        """The view as JSON types: what goes to a page."""
        if self.waiting:
            return {"name": self.name, "waiting": True}
        return {
            "name": self.name,
            "waiting": False,
            "axis": {"labels": AXIS, "from": self.points[0].first - 0.5, "to": self.points[-1].last + 0.5},
            "measures": [self._measure(measure) for measure in shown_measures(self.points)],
            "charts": [chart.message() | {"rows": None} for chart in charts(self.name, self.points, self.width)],
            "points": _columns(rows(self.points), self.points),
            "marks": mark_rows(self.points, self.marks),
            "gaps": [list(run) for run in self.marks.gaps],
            "caption": list(self.caption()),
            "legend": {
                "gaps": bool(self.marks.gaps),
                "restarts": bool(self.marks.restarts),
                "forks": bool(self.marks.forks),
            },
            "facts": list(self.facts()),
            "window": {"chosen": self.selection.window, "offered": self._windows()},
            "selected": self.selected(),
            "epochs": [self.every[0].first, self.every[-1].last],
            "table": self._table() if self.selection.table else None,
        }

    def _windows(self) -> list[int | None]:
        """The windows that would show something else than all."""
        return [*(size for size in WINDOWS if size < len(self.every)), None]

    def _measure(self, measure: Measure) -> dict[str, str]:
        title = measure.title
        fold = "" if self.width == 1 else f"{measure.fold} of {self.width:,}"
        return {"name": measure.name, "title": title, "meaning": measure.meaning, "unit": measure.unit, "fold": fold}

    def facts(self) -> Iterator[str]:
        """What is said of the whole query."""
        captured = sum(len(point.captured) for point in self.every)
        missing = len(self.every) - captured
        yield f"{captured:,} {'epoch' if captured == 1 else 'epochs'} captured"
        if missing:
            yield f"{missing:,} {'gap' if missing == 1 else 'gaps'}"
        newest = self.newest
        yield f"newest {newest.last}" + (f", committed {timestamp(newest.committed)}" if newest.committed else "")

    def caption(self) -> Iterator[str]:
        """What the plots show, and what they leave out."""
        first, last = self.points[0].first, self.points[-1].last
        yield f"Epochs {first}–{last}." if first != last else f"Epoch {first}."
        if self.width > 1:
            yield (
                f"Each bar or point stands for up to {self.width:,} epochs: "
                "their sum, the last, or the largest, as the titles say."
            )
        if self.marks.restarted > len(self.marks.restarts):
            yield f"The newest {len(self.marks.restarts)} of {self.marks.restarted:,} restarts are marked."
        yield from map(str, self.forks)
        absent = [measure.title.lower() for measure in MEASURES if measure not in shown_measures(self.points)]
        if absent:
            yield f"Not recorded for these epochs: {', '.join(absent)}."

    def selected(self) -> dict[str, Any] | None:
        """What was chosen, in words and numbers."""
        epoch, start = self.selection.epoch, self.selection.start
        if epoch is None:
            return None
        text = f"epoch {epoch} selected" if start is None else f"epochs {start}–{epoch} selected"
        low = epoch if start is None else start
        outside = low > self.points[-1].last or epoch < self.points[0].first
        return {"text": text, "from": low, "to": epoch, "told": list(self._told(low, epoch)), "outside": outside}

    def _told(self, first: int, last: int) -> Iterator[str]:
        """What an interval amounts to."""
        within = [point for point in self.every if first <= point.first <= last]
        if first != last:
            missing = sum(len(point.gaps) for point in within)
            yield f"{len(within):,} epochs" + (
                f", {missing:,} of them {'a gap' if missing == 1 else 'gaps'}" if missing else ""
            )
        for measure in MEASURES:
            known = [value for point in within if (value := point.values[measure.name]) is not None]
            if known and measure.fold == "sum":
                yield f"{sum(known):,} {measure.title.lower()}"

    def _table(self) -> dict[str, Any]:
        """A page of all epochs, the newest first."""
        pages = max(0, (len(self.every) - 1) // ROWS)
        page = min(self.selection.page, pages)
        found = self.every[::-1][page * ROWS : (page + 1) * ROWS]
        return {
            "rows": list(map(table_row, found)),
            "titles": [one.title for one in MEASURES],
            "offset": page * ROWS,
            "total": len(self.every),
            "page": page,
        }


def table_row(point: Point) -> dict[str, Any]:
    """An epoch as a row of texts."""
    return {
        "epoch": point.last,
        "gap": not point.captured,
        "committed": timestamp(point.committed) if point.committed else "",
        "run": (point.run or "")[:8],
        "cells": [value_text(measure, point.values) for measure in MEASURES],
    }


def value_text(measure: Measure, values: Mapping[str, Any]) -> str:
    """One value as text; empty where it is not known."""
    value = values.get(measure.name)
    if value is None:
        return ""
    return f"{value:,}" if measure.unit == "rows" else span(value)


def _columns(data: Sequence[Mapping[str, Any]], points: Sequence[Point]) -> dict[str, list[Any]]:
    """The rows by column, which takes a third of the space, with what is told when one is pointed at."""
    columns = {name: [row[name] for row in data] for name in data[0] if name != "kind"}
    return columns | {
        "committed": [timestamp(point.committed) if point.committed else "" for point in points],
        "run": [(point.run or "")[:8] for point in points],
        "captured": [len(point.captured) for point in points],
        "gaps": [len(point.gaps) for point in points],
    }
