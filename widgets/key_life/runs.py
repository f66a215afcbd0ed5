"""One column of a key through the epochs: the runs in which its value stayed, as few as can be drawn."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal

from streamstate.widgets.key_life.story import Story
from streamstate.widgets.values import canonical, plain

__all__ = ["Kind", "Run", "binned", "kind_of", "measure", "runs_of"]

Kind = Literal["number", "time", "other"]


@dataclass(frozen=True)
class Run:
    """Epochs ``start`` up to, not including, ``end``, in which a column held one value.

    A bin stands for several runs: ``value`` is the last of them, ``low`` and ``high`` the extremes, ``count`` how many.
    ``change`` is the number of the change that began it.
    """

    start: int
    end: int
    value: Any
    change: int
    low: Any = None
    high: Any = None
    count: int = 1


def kind_of(story: Story, column: int) -> Kind:
    """How a column is drawn: as a line of numbers or times, or as labelled stretches."""
    values = [plain(change.values[column]) for change in story.changes if not change.gone]
    known = [value for value in values if value is not None]
    if all(measure(value) is None for value in known):
        return "other"
    if all(isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in known):
        return "number"
    return "time" if all(isinstance(value, dt.date) for value in known) else "other"


def runs_of(story: Story, column: int) -> list[Run]:
    """The runs of one column, ascending; where the key was written again with the same value, the run goes on."""
    runs: list[Run] = []
    for spell in story.spells:
        value = plain(story.changes[spell.change].values[column])
        last = runs[-1] if runs else None
        if last is not None and last.end == spell.start and canonical(last.value) == canonical(value):
            runs[-1] = Run(last.start, spell.end, last.value, last.change)
        else:
            runs.append(Run(spell.start, spell.end, value, spell.change))
    return runs


def binned(runs: Sequence[Run], limit: int) -> list[Run]:
    """At most ``limit`` runs: where there are more, those that begin in the same stretch of epochs are one.

    Example:
        >>> [(run.start, run.end, run.count) for run in binned([Run(n, n + 1, n, n) for n in range(6)], 3)]
        [(0, 2, 2), (2, 4, 2), (4, 6, 2)]
    """
    if len(runs) <= limit:
        return list(runs)
    first = runs[0].start
    width = math.ceil((runs[-1].start - first + 1) / limit)
    return list(_merged(runs, first, width))


def _merged(runs: Sequence[Run], first: int, width: int) -> Iterator[Run]:
    for _, group in groupby(runs, lambda run: (run.start - first) // width):
        several = list(group)
        known = sorted((one for one in several if measure(one.value) is not None), key=lambda run: measure(run.value))
        last = several[-1]
        low, high = (known[0].value, known[-1].value) if known else (None, None)
        yield Run(several[0].start, last.end, last.value, last.change, low, high, len(several))


def measure(value: Any) -> Any:
    """A value as a place on an axis: a number, or an ISO 8601 time; None where it has none (null, NaN, text)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dt.datetime):  # as a clock here shows it: the picture has no zone of its own
        return (value.astimezone() if value.tzinfo else value).replace(tzinfo=None).isoformat()
    return f"{value.isoformat()}T00:00:00" if isinstance(value, dt.date) else None
