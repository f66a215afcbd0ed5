"""What stands beside the slider: where epochs are missing, where the query was restarted, and where forks begin.

A slider counts positions, the captured epochs one after the other; a gap lies between two of them.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect.forks import Forked

__all__ = ["Mark", "Marks", "marks"]

APART = 100
"""Marks of one kind that are drawn one by one; more are drawn together, in as many places."""
_NAMED = 3
"""Epochs that a fact names one by one."""

Kind = Literal["gap", "restart", "fork"]
_KINDS: tuple[Kind, ...] = ("gap", "restart", "fork")


@dataclass(frozen=True)
class Mark:
    """One mark: its kind, its place from 0 (the first epoch) to 1 (the last), and what it says."""

    kind: Kind
    place: float
    title: str
    count: int = 1


@dataclass(frozen=True)
class Marks:
    """The marks of a slider, and the same in words: a label and a text for each kind that there is."""

    drawn: Sequence[Mark] = ()
    facts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class _Found:
    """A mark before it is put in its place: the position on the slider, the epochs that it is about, its words."""

    position: float
    first: int
    last: int
    title: str
    short: str


def marks(name: str, entries: Sequence[Entry], forks: Sequence[Forked] = ()) -> Marks:
    """The marks of a query's epochs.

    Args:
        name: the query.
        entries: its manifest, ascending.
        forks: the forks that the store knows of it.

    Example:
        >>> marks("delays", []).facts
        ()
    """
    captured = [entry.epoch for entry in entries if entry.captured]
    if not captured:
        return Marks()
    found: dict[Kind, list[_Found]] = {
        "gap": [*_gaps(entries, captured)],
        "restart": [*_restarts(entries)],
        "fork": [*_forks(name, captured, forks)],
    }
    end = max(1, len(captured) - 1)
    drawn = [mark for kind in _KINDS for mark in _drawn(kind, found[kind], end)]
    facts = [(_plural(kind, len(found[kind])), _named(found[kind])) for kind in _KINDS if found[kind]]
    origin = [("forked from", f"{one.parent} after epoch {one.epoch}") for one in forks if one.name == name]
    return Marks(drawn, (*facts, *origin))


def _gaps(entries: Sequence[Entry], captured: Sequence[int]) -> Iterator[_Found]:
    for missing, run in itertools.groupby(entries, lambda entry: not entry.captured):
        if missing:
            epochs = [entry.epoch for entry in run]
            short = _span(epochs[0], epochs[-1])
            many = "epoch" if len(epochs) == 1 else f"{len(epochs):,} epochs,"
            title = f"Gap: {many} {short} could not be captured"
            yield _Found(bisect_left(captured, epochs[0]) - 0.5, epochs[0], epochs[-1], title, short)


def _restarts(entries: Sequence[Entry]) -> Iterator[_Found]:
    captured = [entry for entry in entries if entry.captured]
    for position, (before, entry) in enumerate(itertools.pairwise(captured), 1):
        if before.run_id and entry.run_id and before.run_id != entry.run_id:
            title = f"Restart: the query was started again before epoch {entry.epoch}"
            yield _Found(position, entry.epoch, entry.epoch, title, f"at {entry.epoch}")


def _forks(name: str, captured: Sequence[int], forks: Iterable[Forked]) -> Iterator[_Found]:
    for one in sorted(forks, key=lambda fork: fork.epoch):
        if one.parent == name:
            position = max(0, bisect_right(captured, one.epoch) - 1)
            title = f"Fork: {one.name} goes its own way after epoch {one.epoch}"
            yield _Found(position, one.epoch, one.epoch, title, f"{one.name} after {one.epoch}")


def _drawn(kind: Kind, found: Sequence[_Found], end: int) -> Iterator[Mark]:
    """One by one, or together where there are too many to be told apart."""
    if len(found) <= APART:
        yield from (Mark(kind, _place(one.position, end), one.title) for one in found)
        return
    for _, together in itertools.groupby(found, lambda one: int(_place(one.position, end) * (APART - 1) + 0.5)):
        group = [*together]
        place = _place((group[0].position + group[-1].position) / 2, end)
        title = (
            group[0].title
            if len(group) == 1
            else f"{len(group):,} {kind}s, epochs {_span(group[0].first, group[-1].last)}"
        )
        yield Mark(kind, place, title, len(group))


def _place(position: float, end: int) -> float:
    return round(min(1.0, max(0.0, position / end)), 5)


def _named(found: Sequence[_Found]) -> str:
    if len(found) <= _NAMED:
        return ", ".join(one.short for one in found)
    return f"{len(found):,}, the last {found[-1].short}"


def _plural(kind: Kind, many: int) -> str:
    return kind if many == 1 else f"{kind}s"


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}–{last}"
