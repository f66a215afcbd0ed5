"""The log of a file source: the files that were read up to an epoch, and no later ones.

Spark's file source looks up in this log which files it has already read. With an entry too many, the fork would never
read that file; with one too few, it would read it twice. ``sources/<i>/<batch>`` lists the files of one of the source's
batches; every tenth, ``<batch>.compact``, also those of all batches before, whose files are deleted after a while.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from streamstate.errors import NotReplayableError
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles
from streamstate.snapshots.store.names import is_number

_COMPACT = ".compact"
_INTERVAL = 10
# Spark may compact the log, and delete what it compacted, between listing and reading.
_ATTEMPTS = 3


def log_upto(files: ReadableFiles, folder: str, last: int) -> dict[str, str]:
    """Return the names and texts of a log's files as of one of the source's batches; -1: before its first."""
    for _ in range(_ATTEMPTS):
        log = _Log.listed(files, folder)
        if (found := log.upto(last)) is not None:
            return found
    raise NotReplayableError(
        f"{folder} no longer lists the files of the source's batches up to {last}.\n"
        "Spark's log of the source is damaged, or was deleted by hand. Choose a later epoch."
    )


def read_at_start(files: ReadableFiles, folder: str, batch: int) -> dict[int, str]:
    """Return the names of the files that Spark reads when it starts, by the source's batch, whether they exist or not.

    Those are the newest compacted file and all later ones: also of batches that no epoch has been planned with.
    """
    log = _Log.listed(files, folder)
    newest = max([batch, *log.plain, *log.compact])
    base = log.base(newest)
    return {number: f"{number}{_COMPACT if number == base else ''}" for number in range(max(base, 0), newest + 1)}


def entries(text: str) -> Iterator[dict[str, object]]:
    """Return the entries of a log file: ``path``, ``timestamp`` and ``batchId`` of each file that was read."""
    return (json.loads(line) for line in text.splitlines() if line.startswith("{"))


@dataclass(frozen=True)
class _Log:
    """A source's log as it was listed."""

    files: ReadableFiles
    folder: str
    plain: frozenset[int]
    compact: tuple[int, ...]

    @classmethod
    def listed(cls, files: ReadableFiles, folder: str) -> _Log:
        names = files.names(folder)
        compact = (name.removesuffix(_COMPACT) for name in names if name.endswith(_COMPACT))
        numbers = sorted(int(name) for name in compact if is_number(name))
        return cls(files, folder, frozenset(int(name) for name in names if is_number(name)), tuple(numbers))

    @property
    def interval(self) -> int:
        """Every how many batches the log is compacted."""
        if len(self.compact) > 1:
            return self.compact[-1] - self.compact[-2]
        first = self.compact[0] + 1 if self.compact else _INTERVAL
        return _INTERVAL if first % _INTERVAL == 0 else first

    def base(self, last: int) -> int:
        """Return the newest batch up to another whose file is compacted; −1 if there is none."""
        return (last + 1) // self.interval * self.interval - 1

    def upto(self, last: int) -> dict[str, str] | None:
        """Return the log's files up to a batch; None if part of it is gone."""
        base = self.base(last)
        found: dict[str, str] = {}
        if base >= 0:
            if (compacted := self._compacted(base)) is None:
                return None
            found[f"{base}{_COMPACT}"] = compacted
        for batch in range(base + 1, last + 1):
            if (text := self._batch(batch)) is None:
                return None
            found[str(batch)] = text
        return found

    def _compacted(self, base: int) -> str | None:
        """Return the text of a batch's compacted file, rebuilt if it was deleted."""
        if base in self.compact:
            return self.files.text(f"{self.folder}/{base}{_COMPACT}")
        return self._from_later(base, 0)

    def _batch(self, batch: int) -> str | None:
        if batch in self.plain:
            return self.files.text(f"{self.folder}/{batch}")
        return self._from_later(batch, batch)

    def _from_later(self, upto: int, since: int) -> str | None:
        """Return the entries of some batches, from a compacted file that was written after them."""
        later = next((batch for batch in self.compact if batch > upto), None)
        text = None if later is None else self.files.text(f"{self.folder}/{later}{_COMPACT}")
        if text is None:
            return None
        version, *lines = text.splitlines()
        kept = [line for line in lines if line.startswith("{") and since <= json.loads(line)["batchId"] <= upto]
        return "\n".join([version, *kept]) if kept else None
