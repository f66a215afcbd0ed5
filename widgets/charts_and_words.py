"""A drawing that is read rather than operated: sentences, plots below them, and at times a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamstate.snapshots.calls.html import Html, folded, joined, tag
from streamstate.state_inspect.cell_text import Cell
from streamstate.widgets.chart import Chart
from streamstate.widgets.still import frame, sentences_and_figures, table

KIND = "charts_and_words"
"""The JavaScript module that draws it."""


@dataclass(frozen=True)
class Listing:
    """Cells in columns, with a label."""

    label: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def html(self) -> Html:
        """As a still table with its label."""
        return joined(tag("p", self.label), table(self.label, self.heads, self.rows))


@dataclass(frozen=True)
class ChartsAndWords:
    """Something in words, in plots, and as a list.

    Attributes:
        name: what it is about, such as a query's name.
        label: what a screen reader calls the view.
        sentences: the words.
        charts: the plots, one below the other.
        listing: the list; None if there is none.
        unknown: what is not known of it, in sentences, folded below all else.
    """

    name: str
    label: str
    sentences: Sequence[str]
    charts: Sequence[Chart] = ()
    listing: Listing | None = None
    unknown: Sequence[str] = ()

    def message(self) -> dict[str, Any]:
        """Return the drawing as JSON types."""
        return {
            "name": self.name,
            "label": self.label,
            "sentences": list(self.sentences),
            "charts": [chart.message() for chart in self.charts],
            "listing": None if self.listing is None else asdict(self.listing),
            "unknown": list(self.unknown),
        }

    def text(self) -> str:
        """Return the sentences."""
        return " ".join([f"{self.name}:", *self.sentences, *self.unknown])

    def html(self) -> Html:
        """Return the drawing as still pictures and a table, without scripts."""
        listing = None if self.listing is None else self.listing.html()
        words = sentences_and_figures(self.sentences, self.charts)
        return frame(self.name, [], words, listing, folded("Not known", self.unknown))
