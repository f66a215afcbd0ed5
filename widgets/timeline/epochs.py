"""The measures of each epoch in a timeline, and the marks between epochs.

It comes from the manifest, and the rows from the index where that is loaded; the state itself is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count, groupby, pairwise
from typing import TYPE_CHECKING, Literal

from streamstate.snapshots.checkpoint.commit_times import OFFSETS
from streamstate.state_inspect.analytics.watermark_lags import behind_commit

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.snapshots.store.registry import CapturedVersion, ForkPoint
    from streamstate.widgets.timeline.variable_marks import DecisionMark, VariableMark

Number = int | float


@dataclass(frozen=True)
class Measure:
    """Something that is measured of every epoch.

    Attributes:
        name: its key in :attr:`EpochPoint.values`.
        title: its name in the view.
        meaning: its definition, for the tooltip.
        unit: of its values.
        mark: how it is drawn: amounts per epoch as bars, levels at its end as a line.
        fold: how several epochs are combined in a bin.
    """

    name: str
    title: str
    meaning: str
    unit: Literal["rows", "seconds"]
    mark: Literal["bars", "line"]
    fold: Literal["sum", "last", "max"]


MEASURES = (
    Measure("input", "Input rows", "rows that the epoch read from its sources", "rows", "bars", "sum"),
    Measure("rows", "State rows", "live rows of all state tables after the epoch", "rows", "line", "last"),
    Measure("changes", "Changes", "state rows that the epoch put or deleted", "rows", "bars", "sum"),
    Measure("duration", "Duration", "from planning the epoch to its commit", "seconds", "bars", "max"),
    Measure(
        "lag",
        "Watermark lag",
        "how far the watermark is behind the commit; in historic data, behind the newest event",
        "seconds",
        "line",
        "max",
    ),
    Measure("capture", "Capture lag", "from the commit to the capture", "seconds", "line", "max"),
)


@dataclass(frozen=True)
class EpochPoint:
    """An epoch, or a bin of several."""

    first: int
    last: int
    captured: tuple[int, ...] = ()
    gaps: tuple[int, ...] = ()
    committed: datetime | None = None
    """The commit time of the last one."""
    run: str | None = None
    """Spark's id of the run that committed the last one."""
    values: Mapping[str, Number | None] = field(default_factory=dict)


def points(entries: Sequence[Entry], lag: Callable[[Entry], timedelta | None] = behind_commit) -> list[EpochPoint]:
    """A point for each row of the manifest; a gap has no values. ``lag`` is how far an epoch's watermark lags."""
    return [_point(entry, lag) for entry in entries]


def bin_width(first: int, last: int, limit: int) -> int:
    """Return the number of epochs per bin, so that there are at most ``limit`` bins from ``first`` to ``last``.

    It is one of 1, 2, 5, 10, 20, 50, …, so that the bins rarely change while a query runs.

    Example:
        >>> bin_width(0, 499, 500), bin_width(0, 500, 500), bin_width(0, 9_999, 500)
        (1, 2, 20)
    """
    widths = (step * int(10**power) for power in count() for step in (1, 2, 5))
    return next(width for width in widths if last // width - first // width < limit)


def binned(found: Sequence[EpochPoint], width: int) -> list[EpochPoint]:
    """Bins of ``width`` epochs, starting at multiples of it; the last one ends with the newest epoch."""
    if width == 1:
        return list(found)
    return [_folded(list(group)) for _, group in groupby(found, lambda point: point.first // width)]


def _point(entry: Entry, lag: Callable[[Entry], timedelta | None]) -> EpochPoint:
    if not entry.captured:
        unknown = dict.fromkeys(measure.name for measure in MEASURES)
        return EpochPoint(entry.epoch, entry.epoch, gaps=(entry.epoch,), values=unknown)
    epoch = entry.epoch
    return EpochPoint(epoch, epoch, (epoch,), (), entry.committed_at, entry.run_id, dict(_values(entry, lag(entry))))


def _values(entry: Entry, lag: timedelta | None) -> Iterator[tuple[str, Number | None]]:
    yield "input", entry.input_rows
    yield "rows", entry.rows
    yield "changes", sum(facts.changes for facts in entry.tables.values())
    # In a copied checkpoint both are the time of planning.
    yield "duration", None if entry.time_source == OFFSETS else seconds_between(entry.began_at, entry.committed_at)
    yield "lag", None if lag is None else seconds(lag)
    yield "capture", seconds_between(entry.committed_at, entry.captured_at)


def seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    """Seconds from one time to another, to the millisecond; None if either is unknown."""
    return None if start is None or end is None else seconds(end - start)


def seconds(span: timedelta) -> float:
    """Convert a span to seconds, to the millisecond."""
    return round(span.total_seconds(), 3)


def _folded(group: Sequence[EpochPoint]) -> EpochPoint:
    """Several points as a single one."""
    captured = [point for point in group if point.captured]
    newest = captured[-1] if captured else group[-1]
    return replace(
        newest,
        first=group[0].first,
        last=group[-1].last,
        captured=tuple(epoch for point in group for epoch in point.captured),
        gaps=tuple(epoch for point in group for epoch in point.gaps),
        values={measure.name: _value(measure, captured) for measure in MEASURES},
    )


def _value(measure: Measure, group: Sequence[EpochPoint]) -> Number | None:
    if measure.fold == "last":
        return group[-1].values[measure.name] if group else None
    known = [value for point in group if (value := point.values[measure.name]) is not None]
    if not known:
        return None
    return sum(known) if measure.fold == "sum" else max(known)


RULES = 100
"""The most restarts that are marked; the newest are kept."""


@dataclass(frozen=True)
class ForkMark:
    """A fork after ``epoch``: into ``query``, or, if not ``outwards``, from it."""

    epoch: int
    query: str
    outwards: bool

    def __str__(self) -> str:
        return f"Forked {'into' if self.outwards else 'from'} {self.query} after epoch {self.epoch}."


@dataclass(frozen=True)
class VersionMark:
    """The start of a version of a pipeline's flow after ``epoch``: of this one, or of the next."""

    epoch: int
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class EpochMarks:
    """Return the marks among some epochs: gaps, restarts, and the starts of forks or of this one."""

    gaps: Sequence[tuple[int, int]] = ()
    """Inclusive ranges; if there are more than :data:`RULES`, those of a bin are merged."""
    restarts: Sequence[int] = ()
    """The first epochs of new runs of the query, at most the newest :data:`RULES`."""
    restarted: int = 0
    """The number of restarts."""
    forks: Sequence[ForkMark] = ()
    variables: Sequence[VariableMark | DecisionMark] = ()
    """Where versions of shared variables begin that were set, and decisions act, at most the newest :data:`RULES`."""
    versions: Sequence[VersionMark] = ()


def marks(
    single: Sequence[EpochPoint],
    shown: Sequence[EpochPoint],
    divided: Sequence[ForkMark],
    variables: Sequence[VariableMark | DecisionMark] = (),
    versions: Sequence[VersionMark] = (),
) -> EpochMarks:
    """Return the marks among some epochs, which are ``shown`` in bins.

    Args:
        single: the epochs.
        shown: the same in bins.
        divided: all forks of the query.
        variables: all versions of shared variables that were set, and all decisions that acted.
        versions: the starts of this version of a flow, and of the next.
    """
    # Epochs of an unknown run are skipped.
    known = [point for point in single if point.run is not None]
    restarts = [after.first for before, after in pairwise(known) if before.run != after.run]
    gaps = _gaps(single)
    first, last = single[0].first, single[-1].last
    return EpochMarks(
        gaps if len(gaps) <= RULES else _gaps(shown),
        restarts[-RULES:],
        len(restarts),
        [fork for fork in divided if first - 1 <= fork.epoch <= last],
        [mark for mark in variables if first <= mark.epoch <= last][-RULES:],
        [mark for mark in versions if first - 1 <= mark.epoch <= last],
    )


def forks(points: Sequence[ForkPoint], name: str) -> list[ForkMark]:
    """Return the mark of a query's own origin, then those of its forks, by epoch."""
    own = [ForkMark(point.epoch, point.parent, outwards=False) for point in points if point.name == name]
    outwards = [ForkMark(point.epoch, point.name, outwards=True) for point in points if point.parent == name]
    return own + sorted(outwards, key=lambda mark: mark.epoch)


def versions(version: CapturedVersion | None, newest: int) -> Iterator[VersionMark]:
    """Yield the starts of a query as a version of a flow, and of the next one after its newest epoch."""
    if version is not None and version.before:
        text = f"Version {version.number} of the flow begins: a full refresh ended {version.before}."
        yield VersionMark(-1, text)
    if version is not None and version.after:
        yield VersionMark(
            newest, f"A full refresh ended this version after epoch {newest}: {version.after} is the next."
        )


def _gaps(shown: Sequence[EpochPoint]) -> list[tuple[int, int]]:
    """Adjacent gaps as one range; gaps of the same bin are merged, with the epochs between them."""
    found: list[tuple[int, int]] = []
    for gaps in (point.gaps for point in shown if point.gaps):
        adjacent = bool(found) and gaps[0] == found[-1][1] + 1
        first = found.pop()[0] if adjacent else gaps[0]
        found.append((first, gaps[-1]))
    return found
