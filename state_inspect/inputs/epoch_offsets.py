"""From where to where an epoch read its sources, by the checkpoint or, where Spark has purged that, by the store."""

from __future__ import annotations

import json
from dataclasses import dataclass

from streamstate.errors import EpochGoneError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.state_inspect.captured_query import CapturedQuery


@dataclass(frozen=True)
class SourceRange:
    """The range of one source that an epoch read."""

    log: str
    """The source's own folder in the checkpoint."""
    start: str | None
    """The offset after which it read, as the source's own JSON; None: from the beginning."""
    end: str | None
    """The offset up to which it read; None if the source had nothing yet."""

    @property
    def is_empty(self) -> bool:
        """True if the epoch read nothing of it."""
        return self.end is None or self.end == self.start


def epoch_ranges(query: CapturedQuery, checkpoint: CheckpointFiles, epoch: int) -> dict[str, SourceRange]:
    """Return the ranges that an epoch read, by the source's name or its place in the query from 0.

    Raises:
        EpochGoneError: neither the checkpoint nor the store knows the offsets of the epoch, or of the one before.
    """
    ends = end_offsets(query, checkpoint, epoch)
    starts = end_offsets(query, checkpoint, epoch - 1) if epoch else {}
    return {name: SourceRange(f"sources/{name}", starts.get(name), end) for name, end in ends.items()}


def end_offsets(query: CapturedQuery, checkpoint: CheckpointFiles, epoch: int) -> dict[str, str | None]:
    """Return the end offsets of an epoch by source, as the sources' own JSON.

    Raises:
        EpochGoneError: neither the checkpoint nor the store knows them.
    """
    planned = checkpoint.planned(epoch)
    if planned is not None:
        names = planned.names or map(str, range(len(planned.offsets)))
        return dict(zip(names, planned.offsets, strict=True))
    entry = query.known_entries.of(epoch)
    if entry is None or entry.offsets is None:
        raise EpochGoneError(
            f"The offsets of epoch {epoch} of {query.name} are gone: Spark has purged them from the checkpoint, and"
            " the epoch was not captured.\nChoose a captured epoch whose predecessor was captured too."
        )
    known = json.loads(entry.offsets)
    pairs = known.items() if isinstance(known, dict) else ((str(at), offset) for at, offset in enumerate(known))
    return {name: None if offset is None else _as_json(offset) for name, offset in pairs}


def _as_json(offset: object) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)
