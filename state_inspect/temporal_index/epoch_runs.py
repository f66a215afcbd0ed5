"""Runs of captured epochs without gaps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from streamstate.snapshots.manifest import Entry


@dataclass
class Run:
    """Epochs of one state table between two gaps; retention may have dropped some of them."""

    first: int
    last: int
    before: int | None = None
    """The last epoch before the gap that precedes the run."""
    keyframes: dict[int, int | None] = field(default_factory=dict)
    """For each epoch the keyframe that reading it starts from; None for the table's beginning."""

    @property
    def starts_at_keyframe(self) -> bool:
        """Whether it begins with a keyframe, because the changes before it are not known."""
        return self.keyframes[self.first] == self.first

    def base(self, epoch: int) -> int:
        """Where reading an epoch starts: its keyframe, or the first epoch of a run that begins with an empty table."""
        keyframe = self.keyframes[epoch]
        return self.first if keyframe is None else keyframe

    def newest(self, epoch: int) -> int:
        """Its newest epoch up to one, which it does not begin after."""
        return epoch if epoch in self.keyframes else max(known for known in self.keyframes if known <= epoch)

    def keyframe_at(self, base: int) -> int | None:
        """The keyframe to read at a base; None if the run begins with an empty table."""
        return base if base > self.first or self.starts_at_keyframe else None


def runs_of(entries: Sequence[Entry], table: str, held: Sequence[int] = ()) -> list[Run]:
    """The runs of a state table, ascending.

    Args:
        entries: the manifest.
        table: the state table.
        held: keyframes in its changelog, ascending; entries may name an older one.
    """
    runs: list[Run] = []
    broken = True
    for entry in entries:
        if not entry.captured:
            broken = True
        elif table in entry.tables:
            if broken:
                runs.append(Run(entry.epoch, entry.epoch, runs[-1].last if runs else None))
            runs[-1].last = entry.epoch
            runs[-1].keyframes[entry.epoch] = _newest(entry.tables[table].keyframe, held, runs[-1].first, entry.epoch)
            broken = False
    return runs


def spans_until(entries: Sequence[Entry], table: str, epoch: int) -> list[tuple[int, int, bool, int | None]]:
    """The runs up to an epoch: first and last epoch, whether it starts at a keyframe, and the gap that ends it."""
    runs = [run for run in runs_of(entries, table) if run.first <= epoch]
    return [
        (run.first, min(run.last, epoch), run.starts_at_keyframe, None if run is runs[-1] else run.last + 1)
        for run in runs
    ]


def _newest(named: int | None, held: Sequence[int], first: int, epoch: int) -> int | None:
    """The newest keyframe of a run that an epoch can be read from."""
    at = bisect_right(held, epoch)
    if at == 0 or held[at - 1] < first:
        return named
    return held[at - 1] if named is None else max(named, held[at - 1])


def base(runs: Sequence[Run], epoch: int) -> int:
    """Where reading an epoch starts; for an epoch before the first, the beginning of the table."""
    run = next((run for run in reversed(runs) if run.first <= epoch), None)
    return runs[0].first if run is None else run.base(run.newest(epoch))


@dataclass(frozen=True)
class Part:
    """Some consecutive epochs of a state table."""

    low: int
    high: int
    runs: list[Run]
    """The runs in them, cut off after the last epoch."""
    starts: set[int]
    """The epochs at which the changelog starts again with a keyframe."""
    is_newest: bool
    """Whether the newest epoch is one of them."""


def part_of(runs: Sequence[Run], first: int, last: int) -> Part:
    """The epochs from ``first`` to ``last`` with those around them that are read from the same keyframes."""
    held = [run for run in runs if run.first <= last]
    if not held:  # the table did not exist yet
        return Part(first, last, [], set(), is_newest=False)
    keyframe = held[-1].base(held[-1].newest(last))
    high = max(epoch for epoch in held[-1].keyframes if held[-1].base(epoch) == keyframe)
    low = min(first, base(runs, first))
    chosen = [replace(run, last=min(run.last, high)) for run in held if run.last >= low]
    starts = {run.first for run in chosen if run.starts_at_keyframe}
    return Part(low, max(high, last), chosen, starts, is_newest=high == runs[-1].last)
