"""Progress of epochs: their sources' offsets and the watermark, from a store's manifest or a checkpoint's logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from streamstate.snapshots.checkpoint.bindings import FORMAT
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.source_progress import recorded_by_source
from streamstate.snapshots.store.entries import Entries
from streamstate.state_inspect.unix_time import begun

MOST = 500
"""The newest epochs that are looked at."""


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


def progress_in_store(entries: Entries) -> list[EpochProgress]:
    """Return the progress of the newest captured epochs, ascending."""
    first = max(len(entries) - MOST, 0)
    watermarks, left, offsets = (entries.values(name)[first:] for name in ("watermark", "next_watermark", "offsets"))
    # Where Spark had purged an epoch's commit, the next epoch says which watermark it left.
    after = [*watermarks[1:], None]
    columns = zip(
        entries.epochs[first:].tolist(),
        entries.is_captured[first:].tolist(),
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
