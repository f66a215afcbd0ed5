"""The drawing of a dashboard: plain data, JSON for a page, text and still HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streamstate.snapshots.calls.html import Html, joined, paragraphs, tag
from streamstate.widgets.chart import Chart
from streamstate.widgets.dashboard.operators import Operators
from streamstate.widgets.dashboard.spread import StateSpread
from streamstate.widgets.model import chosen_row
from streamstate.widgets.still import figure, frame, table

_WHOLE = 4_000
"""Characters of an error that a page gets."""


@dataclass(frozen=True)
class QueryTrouble:
    """Something that is wrong: what it concerns, a summary in a line, and the whole error."""

    what: str
    short: str
    whole: str = ""

    def message(self) -> dict[str, str]:
        """As JSON types, cut to a readable length."""
        cut = self.whole if len(self.whole) <= _WHOLE else self.whole[:_WHOLE] + "…"
        return {"what": self.what, "short": self.short, "whole": cut if cut != self.short else ""}


@dataclass(frozen=True)
class DashboardDrawing:
    """The dashboard at one moment, with the state tables to choose from, and the key that was clicked.

    Example:
        >>> DashboardDrawing("delays").text()
        'delays: no epoch captured yet'
    """

    name: str
    epoch: int | None = None
    state: str = ""
    """What the query does, in a word; empty if it does not run in this process."""
    facts: Sequence[tuple[str, str]] = ()
    """Figures with their labels."""
    troubles: Sequence[QueryTrouble] = ()
    operators: Operators | None = None
    charts: Mapping[str, Chart] = field(default_factory=dict)
    tables: Sequence[str] = ()
    spread: StateSpread | None = None
    key: Mapping[str, Any] | None = None

    def message(self) -> dict[str, Any]:
        """Return the drawing as JSON types."""
        return {
            "name": self.name,
            "epoch": self.epoch,
            "state": self.state,
            "facts": [list(fact) for fact in self.facts],
            "troubles": [trouble.message() for trouble in self.troubles],
            "operators": asdict(self.operators) if self.operators else None,
            "charts": {name: chart.message() for name, chart in self.charts.items()},
            "tables": list(self.tables),
            "spread": _spread_message(self.spread, self.key) if self.spread else None,
        }

    def text(self) -> str:
        """Return the drawing as a line of text."""
        return f"{self.name}: " + " · ".join(self._parts())

    def html(self) -> Html:
        """Return the drawing as tables and still pictures, without scripts."""
        troubles = [tag("p", tag("strong", f"{trouble.what}:"), f" {trouble.short}") for trouble in self.troubles]
        operators = _still_operators(self.operators) if self.operators else None
        pictures = map(figure, self.charts.values())
        spread = _still_spread(self.spread) if self.spread else None
        return frame(self.name, self._parts(), troubles, operators, pictures, spread)

    def _parts(self) -> Iterator[str]:
        if self.state:
            yield self.state
        yield "no epoch captured yet" if self.epoch is None else f"epoch {self.epoch}"
        yield from (f"{label} {value}" for label, value in self.facts)


def _spread_message(spread: StateSpread, key: Mapping[str, Any] | None) -> dict[str, Any]:
    chosen = chosen_row([heavy.key for heavy in spread.keys], key)
    return {
        "table": spread.table,
        "epoch": spread.epoch,
        "epochs": spread.epochs,
        "sentences": spread.sentences,
        "chart": spread.chart().message() if len(spread.rows) > 1 else None,
        "columns": list(spread.columns),
        "keys": [
            {
                "cells": [asdict(cell) for cell in heavy.cells],
                "writes": heavy.writes,
                "last": heavy.last,
                "chosen": row == chosen,
            }
            for row, heavy in enumerate(spread.keys)
        ],
    }


def _still_operators(operators: Operators) -> Html:
    rows = ([box.label, box.detail, box.figures(), ", ".join(box.tables), box.feeds] for box in operators.boxes)
    heads = ["operator", "of", "figures", "state tables", "feeds"]
    return joined(table("Operators", heads, rows), tag("p", tag("small", operators.note)))


def _still_spread(spread: StateSpread) -> Html:
    picture = tag("figure", spread.chart().svg()) if len(spread.rows) > 1 else None
    rows = [[*(cell.text for cell in heavy.cells), f"{heavy.writes:,}", f"{heavy.last}"] for heavy in spread.keys]
    heads = [*spread.columns, "writes", "last in epoch"]
    keys = table("Keys written most often", heads, rows) if rows else None
    return joined(paragraphs([tag("strong", spread.table), *spread.sentences]), picture, keys)
