"""Progress of epochs: their sources' offsets and the watermark, from a store's manifest or a checkpoint's logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from streamstate.snapshots.checkpoint.bindings import FORMAT
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.source_progress import recorded_by_source
from streamstate.snapshots.store.entries import Entries

MOST = 500
"""The newest epochs that are looked at."""
RECENT = 16
"""The newest epochs that mostly show that the watermark moves."""
_FEWEST = 5
"""Epochs with input in which a watermark must not have moved."""
_USUAL = 2
"""A standstill has to be this many times longer than any before."""
_NO_WATERMARK = datetime(1970, 1, 1, tzinfo=UTC)


def begun(watermark: datetime | None) -> datetime | None:
    """Return a watermark; None if it is the one of 1970 with which Spark begins."""
    return watermark if watermark is not None and watermark > _NO_WATERMARK else None


@dataclass(frozen=True)
class EpochProgress:
    """An epoch's offsets, and the watermark that it leaves."""

    epoch: int
    watermark: datetime | None
    """The watermark that the next epoch begins with; None if there is none."""
    offsets: str | None
    """The sources' end offsets as JSON; None if they are not known."""

    @cached_property
    def sources(self) -> Mapping[str, Any]:
        """The end offset of each source by its name or place, without what only binds shared variables."""
        known = recorded_by_source(self.offsets)
        return {str(source): offset for source, offset in known.items() if FORMAT not in str(offset)}

    def read_more_than(self, before: EpochProgress | None) -> bool:
        """Return True if the epoch read anything that the one before had not read."""
        if before is None or self.offsets is None or before.offsets is None:
            return self.offsets is not None
        if FORMAT in self.offsets:
            return self.sources != before.sources
        return self.offsets != before.offsets


@dataclass(frozen=True)
class Standstill:
    """The time for which the watermark has not moved."""

    since: int | None
    """The epoch that moved it last; None if there is no watermark yet."""
    read: tuple[int, ...]
    """The epochs that have read rows since."""
    longest: int
    """The most epochs with input in which it did not move before."""

    @classmethod
    def of(cls, progress: Sequence[EpochProgress]) -> Standstill:
        """Return the standstill at the end of some epochs."""
        since, read, longest = None, list[int](), 0
        for before, epoch in zip([None, *progress], progress, strict=False):
            if epoch.watermark != (None if before is None else before.watermark):
                since, longest = epoch.epoch, max(longest, len(read))
                read.clear()
            elif epoch.read_more_than(before):
                read.append(epoch.epoch)
        return cls(since, tuple(read), longest)

    @property
    def is_unusual(self) -> bool:
        """True if it is long, and longer than any before."""
        return len(self.read) >= _FEWEST and len(self.read) > _USUAL * self.longest

    @property
    def input_since(self) -> int:
        """The epoch since which it is long enough to look unusual."""
        return self.read[-_FEWEST]


def stands_still(entries: Entries, recent: Sequence[EpochProgress]) -> bool:
    """Return True if the watermark does not move, for unusually long, or if the newest epochs leave none.

    ``recent`` has the progress of the newest epochs, which mostly shows that it moves.
    """
    if not recent:
        return False
    moved = recent[0].watermark != recent[-1].watermark
    if (moved or len(entries) <= RECENT) and len(Standstill.of(recent).read) < _FEWEST:
        return False
    return recent[-1].watermark is None or Standstill.of(progress_in_store(entries)).is_unusual


def progress_in_store(entries: Entries, most: int = MOST) -> list[EpochProgress]:
    """Return the progress of the newest captured epochs, ascending."""
    entries = entries.newest_of(most)
    watermarks, left, offsets = (entries.values(name) for name in ("watermark", "next_watermark", "offsets"))
    # Where Spark had purged an epoch's commit, the next epoch says which watermark it left.
    after = [*watermarks[1:], None]
    columns = zip(
        entries.epochs.tolist(),
        entries.is_captured.tolist(),
        left,
        after,
        watermarks,
        offsets,
        strict=True,
    )
    return [
        EpochProgress(epoch, begun(own or later or first), read)
        for epoch, captured, own, later, first, read in columns
        if captured
    ]


def progress_in_checkpoint(checkpoint: CheckpointFiles, epochs: Iterable[int]) -> list[EpochProgress]:
    """Return the progress of some committed epochs of a checkpoint, ascending."""
    found = []
    for epoch in epochs:
        if (planned := checkpoint.planned(epoch)) is not None:
            watermark = begun(checkpoint.next_watermark_at(epoch) or planned.watermark)
            found.append(EpochProgress(epoch, watermark, json.dumps(planned.sources)))
    return found
