"""The marks beside the slider: gaps, restarts of the query, and forks.

The slider counts positions, the captured epochs one after another; a gap lies between two of them.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from streamstate.widgets.number_text import ranges

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.snapshots.store.registry import ForkPoint

APART = 100
"""The most marks of one kind that are drawn one by one; beyond that, neighbours are merged into as many places."""
_NAMED = 3
"""The most epochs that a text lists one by one."""

MarkKind = Literal["gap", "restart", "fork"]


@dataclass(frozen=True)
class SliderMark:
    """A mark: its kind, its place from 0 (the first epoch) to 1 (the last), and its tooltip."""

    kind: MarkKind
    place: float
    title: str
    count: int = 1


@dataclass(frozen=True)
class SliderMarks:
    """The marks of a slider, and the same in words: a label and a text for each kind."""

    drawn: Sequence[SliderMark] = ()
    facts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class _Found:
    """A mark before it is placed: its position on the slider, its epochs, its tooltip and a short text."""

    position: float
    first: int
    last: int
    title: str
    short: str


def slider_marks(name: str, entries: Sequence[Entry], forks: Sequence[ForkPoint] = ()) -> SliderMarks:
    """Return the marks of a query's epochs, from its manifest and from the store's forks."""
    captured = [entry.epoch for entry in entries if entry.captured]
    if not captured:
        return SliderMarks()
    found: dict[MarkKind, list[_Found]] = {
        "gap": [*_gaps(entries, captured)],
        "restart": [*_restarts(entries)],
        "fork": [*_forks(name, captured, forks)],
    }
    end = max(1, len(captured) - 1)
    drawn = [mark for kind, marks in found.items() for mark in _drawn(kind, marks, end)]
    facts = [(kind if len(marks) == 1 else f"{kind}s", _named(marks)) for kind, marks in found.items() if marks]
    origin = [("forked from", f"{fork.parent} after epoch {fork.epoch}") for fork in forks if fork.name == name]
    return SliderMarks(drawn, (*facts, *origin))


def _gaps(entries: Sequence[Entry], captured: Sequence[int]) -> Iterator[_Found]:
    for first, last in ranges([entry.epoch for entry in entries if not entry.captured]):
        short = _span(first, last)
        many = "epoch" if first == last else f"{last - first + 1:,} epochs,"
        title = f"Gap: {many} {short} could not be captured"
        yield _Found(bisect_left(captured, first) - 0.5, first, last, title, short)


def _restarts(entries: Sequence[Entry]) -> Iterator[_Found]:
    captured = [entry for entry in entries if entry.captured]
    for position, (before, entry) in enumerate(itertools.pairwise(captured), 1):
        if before.run_id and entry.run_id and before.run_id != entry.run_id:
            title = f"Restart: the query was restarted before epoch {entry.epoch}"
            yield _Found(position, entry.epoch, entry.epoch, title, f"at {entry.epoch}")


def _forks(name: str, captured: Sequence[int], forks: Iterable[ForkPoint]) -> Iterator[_Found]:
    for fork in sorted(forks, key=lambda fork: fork.epoch):
        if fork.parent == name:
            position = max(0, bisect_right(captured, fork.epoch) - 1)
            title = f"Fork: {fork.name} branches off after epoch {fork.epoch}"
            yield _Found(position, fork.epoch, fork.epoch, title, f"{fork.name} after {fork.epoch}")


def _drawn(kind: MarkKind, found: Sequence[_Found], end: int) -> Iterator[SliderMark]:
    """Yield one by one, or merged if there are too many to tell apart."""
    if len(found) <= APART:
        yield from (SliderMark(kind, _place(mark.position, end), mark.title) for mark in found)
        return
    for _, together in itertools.groupby(found, lambda mark: int(_place(mark.position, end) * (APART - 1) + 0.5)):
        group = [*together]
        place = _place((group[0].position + group[-1].position) / 2, end)
        title = f"{len(group):,} {kind}s, epochs {_span(group[0].first, group[-1].last)}"
        yield SliderMark(kind, place, group[0].title if len(group) == 1 else title, len(group))


def _place(position: float, end: int) -> float:
    return round(min(1.0, max(0.0, position / end)), 5)


def _named(found: Sequence[_Found]) -> str:
    if len(found) <= _NAMED:
        return ", ".join(mark.short for mark in found)
    return f"{len(found):,}, the last {found[-1].short}"


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}–{last}"
