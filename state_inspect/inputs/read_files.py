"""The files that an epoch read, which must be unchanged: Spark reads a missing file as no rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamstate.errors import NotReplayableError
from streamstate.snapshots.checkpoint.file_source_log import entries, log_upto
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles
from streamstate.snapshots.checkpoint.source_offsets import file_batch
from streamstate.state_inspect.inputs.epoch_offsets import SourceRange

_SHOWN = 3


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
