"""What a dashboard shows for one selection, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streamstate.widgets.chart import Chart
from streamstate.widgets.dashboard.operators import Operators
from streamstate.widgets.dashboard.spread import Spread

__all__ = ["Trouble", "View"]

_WHOLE = 4_000


@dataclass(frozen=True)
class Trouble:
    """Something that is wrong: who has it, in a line, and all of it."""

    what: str
    short: str
    whole: str = ""

    def message(self) -> dict[str, str]:
        """In JSON types, cut to what a person reads."""
        cut = self.whole if len(self.whole) <= _WHOLE else self.whole[:_WHOLE] + "…"
        return {"what": self.what, "short": self.short, "whole": cut if cut != self.short else ""}


@dataclass(frozen=True)
class View:
    """The dashboard at one moment."""

    name: str
    epoch: int | None = None
    """The newest captured epoch."""
    state: str = ""
    """What the query does, in a word; empty where nobody in this process runs it."""
    facts: Sequence[tuple[str, str]] = ()
    troubles: Sequence[Trouble] = ()
    operators: Operators | None = None
    charts: Mapping[str, Chart] = field(default_factory=dict)
    tables: Sequence[str] = ()
    spread: Spread | None = None
    key: Mapping[str, Any] | None = None

    def message(self) -> dict[str, Any]:
        """In JSON types."""
        return {
            "name": self.name,
            "epoch": self.epoch,
            "state": self.state,
            "facts": [list(fact) for fact in self.facts],
            "troubles": [one.message() for one in self.troubles],
            "operators": self.operators.message() if self.operators else None,
            "charts": {name: chart.message() for name, chart in self.charts.items()},
            "tables": list(self.tables),
            "spread": _spread(self.spread, self.key) if self.spread else None,
        }


def _spread(spread: Spread, key: Mapping[str, Any] | None) -> dict[str, Any]:
    from streamstate.widgets.values import canonical

    wanted = None if key is None else canonical(key)
    return {
        "table": spread.table,
        "epoch": spread.epoch,
        "epochs": spread.epochs,
        "sentences": spread.sentences,
        "chart": spread.chart().message() if len(spread.rows) > 1 else None,
        "columns": list(spread.columns),
        "keys": [
            {
                "cells": [asdict(each) for each in one.cells],
                "writes": one.writes,
                "last": one.last,
                "chosen": wanted is not None and canonical(one.key) == wanted,
            }
            for one in spread.keys
        ],
    }
