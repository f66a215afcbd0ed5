"""Runs of captured epochs without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamstate.snapshots.store.entries import TableFacts


@dataclass(frozen=True)
class EpochRun:
    """Epochs of one state table between two gaps; retention may have dropped some of them."""

    epochs: np.ndarray[Any, np.dtype[np.int64]]
    """Ascending."""
    bases: np.ndarray[Any, np.dtype[np.int64]]
    """For each epoch where reading it starts: its keyframe, or the first epoch if the run begins with an empty
    table."""
    starts_at_keyframe: bool
    """True if it begins with a keyframe, because the changes before it are not known."""
    before: int | None = None
    """The last epoch before the gap that precedes the run."""

    @property
    def first(self) -> int:
        """Its first epoch."""
        return int(self.epochs[0])

    @property
    def last(self) -> int:
        """Its last epoch."""
        return int(self.epochs[-1])

    def base(self, epoch: int) -> int:
        """Return where reading an epoch, or the newest before it, starts; the run must not begin after it."""
        return int(self.bases[np.searchsorted(self.epochs, epoch, side="right") - 1])

    def keyframe_at(self, base: int) -> int | None:
        """Return the keyframe to read at a base; None if the run begins with an empty table."""
        return base if base > self.first or self.starts_at_keyframe else None

    def upto(self, last: int) -> EpochRun:
        """Return the run without the epochs after one."""
        kept = slice(int(np.searchsorted(self.epochs, last, side="right")))
        return EpochRun(self.epochs[kept], self.bases[kept], self.starts_at_keyframe, self.before)


def runs_of(facts: TableFacts, held: Sequence[int] = ()) -> list[EpochRun]:
    """Return the runs of a state table, ascending.

    ``held`` has the keyframes in its changelog, ascending: the manifest may name an older one.
    """
    places = np.flatnonzero(facts.is_captured & facts.is_there)
    if not len(places):
        return []
    gaps = np.cumsum(~facts.is_captured)[places]
    in_log = np.array(held, np.int64)
    runs: list[EpochRun] = []
    for of_run in np.split(places, np.flatnonzero(np.diff(gaps)) + 1):
        epochs, keyframes = facts.epochs[of_run], facts.keyframes[of_run]
        first = int(epochs[0])
        known = np.concatenate([[-1], in_log[np.searchsorted(in_log, first) :]])
        keyframes = np.maximum(keyframes, known[np.searchsorted(known, epochs, side="right") - 1])
        starts = bool(keyframes[0] == first)
        runs.append(
            EpochRun(epochs, np.where(keyframes < 0, first, keyframes), starts, runs[-1].last if runs else None)
        )
    return runs


def spans_until(facts: TableFacts, epoch: int) -> list[tuple[int, int, bool, int | None]]:
    """Return the runs up to an epoch: first and last epoch, whether it starts at a keyframe, the gap at its end."""
    runs = [run for run in runs_of(facts) if run.first <= epoch]
    return [
        (run.first, min(run.last, epoch), run.starts_at_keyframe, None if run is runs[-1] else run.last + 1)
        for run in runs
    ]


def base(runs: Sequence[EpochRun], epoch: int) -> int:
    """Return where reading an epoch starts; for an epoch before the first, the beginning of the table."""
    run = next((run for run in reversed(runs) if run.first <= epoch), None)
    return runs[0].first if run is None else run.base(epoch)


@dataclass(frozen=True)
class EpochSpan:
    """Some consecutive epochs of a state table."""

    low: int
    high: int
    runs: list[EpochRun]
    """The runs in them, cut off after the last epoch."""
    starts: set[int]
    """The epochs at which the changelog starts again with a keyframe."""
    is_newest: bool
    """True if the newest epoch is one of them."""


def span_of(runs: Sequence[EpochRun], first: int, last: int) -> EpochSpan:
    """Return the epochs from ``first`` to ``last`` with those around them that are read from the same keyframes."""
    held = [run for run in runs if run.first <= last]
    if not held:  # the table did not exist yet
        return EpochSpan(first, last, [], set(), is_newest=False)
    newest = held[-1]
    high = int(newest.epochs[newest.bases == newest.base(last)].max())
    low = min(first, base(runs, first))
    chosen = [run.upto(high) for run in held if run.last >= low]
    starts = {run.first for run in chosen if run.starts_at_keyframe}
    return EpochSpan(low, max(high, last), chosen, starts, is_newest=high == runs[-1].last)
