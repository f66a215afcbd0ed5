"""From where to where an epoch read its sources, and the files in between.

The checkpoint says so or, where Spark has purged that, the store. The files must be unchanged: Spark reads a missing
file as no rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from streamstate.errors import EpochGoneError, NotReplayableError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.file_source_log import entries, log_upto
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles
from streamstate.snapshots.checkpoint.source_offsets import file_batch
from streamstate.state_inspect.captured_query import CapturedQuery

_SHOWN = 3


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


@dataclass(frozen=True)
class ReadFile:
    """A file that an epoch read."""

    path: str
    modified_at: int
    """Its modification time as Spark saw it, in milliseconds since 1970."""


def source_log(files: ReadableFiles, checkpoint: str, source: SourceRange) -> dict[str, str]:
    """Return the names and texts of a file source's log up to the end of an epoch."""
    return log_upto(files, f"{checkpoint}/{source.log}", batch_of(source.end))


def read_files(log: Mapping[str, str], source: SourceRange) -> list[ReadFile]:
    """Return the files that an epoch read, of the log up to its end."""
    first, last = batch_of(source.start) + 1, batch_of(source.end)
    found = {}
    for text in log.values():
        for entry in entries(text):
            if first <= int(str(entry["batchId"])) <= last:
                path = str(entry["path"])
                found[path] = ReadFile(path, int(str(entry["timestamp"])))
    return list(found.values())


def batch_of(offset: str | None) -> int:
    """Return the number of the source's batch that an offset of a file source ends with; -1: before the first."""
    batch = file_batch(offset)
    return -1 if batch is None else batch


def check_unchanged(name: str, epoch: int, changed: Mapping[str, str]) -> None:
    """Raise if files are gone or changed: ``changed`` has what happened to each, by path."""
    if not changed:
        return
    listed = ", ".join(f"{path} {what}" for path, what in list(changed.items())[:_SHOWN])
    more = f" and {len(changed) - _SHOWN:,} more" if len(changed) > _SHOWN else ""
    raise NotReplayableError(
        f"The input of epoch {epoch} of {name} has changed: {listed}{more}.\n"
        "Restore the files. Spark would read a missing file as no rows, and a changed one as it is now."
    )
