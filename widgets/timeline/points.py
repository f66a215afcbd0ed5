"""What is measured of each epoch, and of many epochs taken together where a plot has no room for each.

All of it comes from the manifest; the state itself is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count, groupby
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry

__all__ = ["MEASURES", "Measure", "Point", "bin_width", "binned", "points"]

Number = int | float


@dataclass(frozen=True)
class Measure:
    """One thing that is measured of every epoch.

    Attributes:
        name: its key in :attr:`Point.values`.
        title: what it is called.
        meaning: what it is, for those who do not know the word.
        unit: rows, or seconds.
        mark: how it is drawn: amounts of an epoch as bars, what stands at its end as a line.
        fold: what stands for several epochs: their ``sum``, the ``last`` of them, or the ``max``.
    """

    name: str
    title: str
    meaning: str
    unit: Literal["rows", "seconds"]
    mark: Literal["bars", "line"]
    fold: Literal["sum", "last", "max"]


MEASURES = (
    Measure("input", "Input rows", "rows that the epoch read from the sources", "rows", "bars", "sum"),
    Measure("rows", "State rows", "live rows of all state tables after the epoch", "rows", "line", "last"),
    Measure("changes", "Changes", "rows of state that the epoch put or deleted", "rows", "bars", "sum"),
    Measure("duration", "Duration", "from when Spark planned the epoch to its commit", "seconds", "bars", "max"),
    Measure("lag", "Watermark lag", "how far the watermark lies behind the commit", "seconds", "line", "max"),
    Measure("capture", "Capture lag", "from the commit to when the epoch was captured", "seconds", "line", "max"),
)


@dataclass(frozen=True)
class Point:
    """One epoch, or a bin of several."""

    first: int
    last: int
    captured: tuple[int, ...] = ()
    gaps: tuple[int, ...] = ()
    committed: datetime | None = None
    """When the last of them was."""
    run: str | None = None
    """Spark's id of the run that made the last of them."""
    values: Mapping[str, Number | None] = field(default_factory=dict)


def points(entries: Sequence[Entry]) -> list[Point]:
    """A point for each row of the manifest; a gap has no values."""
    return [_point(entry) for entry in entries]


def bin_width(first: int, last: int, limit: int) -> int:
    """The number of epochs a bin holds, so that there are at most ``limit`` bins from one epoch to another.

    It is one of 1, 2, 5, 10, 20, 50, …, so that the bins stay the same while a query goes on for a while.

    Example:
        >>> bin_width(0, 499, 500), bin_width(0, 500, 500), bin_width(0, 9_999, 500)
        (1, 2, 20)
    """
    widths = (step * int(10**power) for power in count() for step in (1, 2, 5))
    return next(width for width in widths if last // width - first // width < limit)


def binned(found: Sequence[Point], width: int) -> list[Point]:
    """Points of ``width`` epochs each, that begin at multiples of it; the last ends with the newest epoch."""
    if width == 1:
        return list(found)
    return [_folded(list(group)) for _, group in groupby(found, lambda point: point.first // width)]


def _point(entry: Entry) -> Point:
    if not entry.captured:
        return Point(entry.epoch, entry.epoch, gaps=(entry.epoch,), values=dict.fromkeys(_NAMES))
    epoch = entry.epoch
    return Point(epoch, epoch, (epoch,), (), entry.committed_at, entry.run_id, dict(_values(entry)))


def _values(entry: Entry) -> Iterator[tuple[str, Number | None]]:
    # Spark's watermark stands at 1970 until the first event has come.
    watermark = entry.watermark if entry.watermark and entry.watermark.timestamp() > 0 else None
    yield "input", entry.input_rows
    yield "rows", sum(facts.rows for facts in entry.tables.values())
    yield "changes", sum(facts.changes for facts in entry.tables.values())
    yield "duration", _seconds(entry.began_at, entry.committed_at)
    yield "lag", _seconds(watermark, entry.committed_at)
    yield "capture", _seconds(entry.committed_at, entry.captured_at)


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else round((end - start).total_seconds(), 3)


def _folded(group: Sequence[Point]) -> Point:
    """Several points as one."""
    captured = [point for point in group if point.captured]
    newest = captured[-1] if captured else group[-1]
    return Point(
        group[0].first,
        group[-1].last,
        tuple(epoch for point in group for epoch in point.captured),
        tuple(epoch for point in group for epoch in point.gaps),
        newest.committed,
        newest.run,
        {measure.name: _value(measure, captured) for measure in MEASURES},
    )


def _value(measure: Measure, group: Sequence[Point]) -> Number | None:
    known = [value for point in group if (value := point.values[measure.name]) is not None]
    if not known:
        return None
    if measure.fold == "sum":
        return sum(known)
    return known[-1] if measure.fold == "last" else max(known)


_NAMES = [measure.name for measure in MEASURES]
