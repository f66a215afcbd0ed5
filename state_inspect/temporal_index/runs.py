"""Captured epochs that follow each other without a gap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamstate.snapshots.manifest import Entry


@dataclass
class Run:
    """Epochs of one state table between two gaps; retention may have thinned them."""

    first: int
    last: int
    before: int | None = None
    """The last epoch before the gap that precedes it."""
    keyframes: dict[int, int | None] = field(default_factory=dict)
    """For each epoch the keyframe that reading it starts from; None: the table's beginning."""

    @property
    def starts_anew(self) -> bool:
        """Whether it begins with a keyframe, because what came before is not known."""
        return self.keyframes[self.first] == self.first

    def base(self, epoch: int) -> int:
        """From where an epoch is read: its keyframe, or the first epoch of a run that begins from nothing."""
        keyframe = self.keyframes[epoch]
        return self.first if keyframe is None else keyframe

    def keyframe_at(self, base: int) -> int | None:
        """The keyframe to read at a base; None where the run begins from nothing."""
        return base if base > self.first or self.starts_anew else None


def runs_of(entries: Sequence[Entry], table: str, held: Sequence[int] = ()) -> list[Run]:
    """The runs of a state table, ascending.

    Args:
        entries: the manifest.
        table: the state table.
        held: keyframes that its log holds, ascending, which entries before the next may not name.
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


def _newest(named: int | None, held: Sequence[int], first: int, epoch: int) -> int | None:
    """The newest keyframe of a run that an epoch can be read from."""
    at = bisect_right(held, epoch)
    if at == 0 or held[at - 1] < first:
        return named
    return held[at - 1] if named is None else max(named, held[at - 1])


def base(runs: Sequence[Run], epoch: int) -> int:
    """From where an epoch is read; for one before the first, from where the table begins."""
    run = next((run for run in runs if epoch in run.keyframes), None)
    return runs[0].first if run is None else run.base(epoch)
