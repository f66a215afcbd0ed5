"""An epoch's progress in its sources, in a form that can be compared between queries.

End offsets can be compared between queries if they count something that the source itself numbers, as in Kafka and
Delta. The offset of Spark's file source counts the query's own batches, so two queries over one folder number the same
files differently. But the checkpoint lists the files: ``sources/<i>/<batch>`` those of one batch, and every tenth,
``<batch>.compact``, those of all earlier batches too. So the manifest keeps a digest of the files read up to an epoch:
the sum of the files' hashes, which does not depend on their order (a multiset hash: Clarke et al., "Incremental
Multiset Hash Functions", 2003).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from streamstate.snapshots.checkpoint.source_offsets import file_batch, parsed
from streamstate.snapshots.store.names import is_number

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.filesystem import ReadableFiles

FILES, OFFSET = "files", "offset"
"""The kinds of sources: those whose log lists files, and those whose offset itself says how far they were read."""

SourceFacts: TypeAlias = "dict[str, Any] | None"
"""The facts of one source; None if nothing is known."""

_MODULUS = 2**128
_COMPACT = ".compact"
_FIRST_READ = 64 * 1024
# Spark may compact its log and delete the compacted files between listing and reading them.
_ATTEMPTS = 3


def sources_after(
    files: ReadableFiles, checkpoint: str, before: str | None, offsets: Sequence[str | None], names: Sequence[str] = ()
) -> str | None:
    """Return the ``sources`` column of an epoch's row in the manifest; None if nothing is known of any source.

    The cost is proportional to the number of files read since ``before``, the column's value for an earlier epoch.
    The sources' end offsets and names (none if they have no names) are in the query's order.
    """
    known: dict[str | int, SourceFacts] = recorded_by_source(before)
    sources: Sequence[str | int] = names or range(len(offsets))
    found = {
        source: _source(files, f"{checkpoint}/sources/{source}", known.get(source), offset)
        if offset is not None
        else known.get(source)
        for source, offset in zip(sources, offsets, strict=True)
    }
    if not any(found.values()):
        return None
    return json.dumps(found if names else [*found.values()], separators=(",", ":"))


def by_source(held: dict[str, Any] | list[Any]) -> dict[str | int, Any]:
    """Return the manifest's facts of each source, by its name or, if it has none, by its place in the query."""
    return dict(held.items() if isinstance(held, dict) else enumerate(held))


def recorded_by_source(column: str | None) -> dict[str | int, Any]:
    """Return what the manifest's column ``offsets`` or ``sources`` has of each source; nothing if it is null."""
    return {} if column is None else by_source(json.loads(column))


def _source(files: ReadableFiles, folder: str, before: SourceFacts, offset: str) -> SourceFacts:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return _facts(files, folder, before, offset)
    # The log has an unknown form. Capture does not depend on it.
    return None


def _facts(files: ReadableFiles, folder: str, before: SourceFacts, offset: str) -> SourceFacts:
    batch = file_batch(offset)
    if batch is not None:
        prefix = _Prefix.of(before)
        if prefix.batch > batch:
            prefix = _Prefix()
        after = prefix.advanced(files, folder, batch)
        return after.facts() if after is not None else None
    return before if before is not None and before.get("kind") == OFFSET else _started(files, folder)


def first_read(facts: Mapping[str, Any], files: Sequence[tuple[str, int]]) -> list[tuple[str, int]] | None:
    """Return the files that a source had read, if these are the oldest of those that are there.

    Args:
        facts: what the manifest says of the source, of kind ``FILES``.
        files: the paths and times of the files that are there.
    """
    oldest = sorted(files, key=lambda file: (file[1], file[0]))[: facts["files"]]
    digest = sum(_Taken(path, time, 0).digest for path, time in oldest) % _MODULUS
    return oldest if len(oldest) == facts["files"] and digest == int(facts["digest"], 16) else None


def _started(files: ReadableFiles, folder: str) -> SourceFacts:
    start = recorded_start(files, folder)
    return {"kind": OFFSET} if start is None else {"kind": OFFSET, "start": start}


def recorded_start(files: ReadableFiles, folder: str) -> Any:
    """Return the start of a source, which Kafka's source and some others record once; None if there is none."""
    # Kafka's source writes a zero byte first, for compatibility with very old versions of Spark.
    version, _, start = (files.text(f"{folder}/0") or "").lstrip("\0").partition("\n")
    return parsed(start) if version == "v1" else None


@dataclass(frozen=True)
class _Prefix:
    """The files that a source has read up to one of its own batches."""

    batch: int = -1
    count: int = 0
    digest: int = 0
    under: str | None = None
    """The innermost folder that contains all of them."""

    @classmethod
    def of(cls, facts: SourceFacts) -> _Prefix:
        """Return the manifest's facts of a source; the beginning if it has none."""
        if facts is None or facts.get("kind") != FILES:
            return cls()
        return cls(facts["batch"], facts["files"], int(facts["digest"], 16), facts["under"])

    def facts(self) -> dict[str, Any]:
        return {
            "kind": FILES,
            "files": self.count,
            "digest": f"{self.digest:032x}",
            "under": self.under,
            "batch": self.batch,
        }

    def advanced(self, files: ReadableFiles, folder: str, batch: int) -> _Prefix | None:
        """Return the prefix up to a later batch; None if the source's log no longer has the batches between."""
        if batch <= self.batch:
            return self
        for _ in range(_ATTEMPTS):
            taken = [*_taken(files, folder, self.batch, batch)]
            # Every batch has files, and no batch is missing.
            if {file.batch for file in taken} == {*range(self.batch + 1, batch + 1)}:
                return self._with(taken, batch)
        return None

    def _with(self, taken: Sequence[_Taken], batch: int) -> _Prefix:
        digest = (self.digest + sum(file.digest for file in taken)) % _MODULUS
        under = self.under
        for folder in {file.path.rsplit("/", 1)[0] for file in taken}:
            under = folder if under is None else _common(under, folder)
        return _Prefix(batch, self.count + len(taken), digest, under)


@dataclass(frozen=True)
class _Taken:
    """A line of a file source's log: a file, and the batch that read it."""

    path: str
    timestamp: int
    batch: int

    @property
    def digest(self) -> int:
        """A file that was written again is another file, so its time counts."""
        named = f"{self.path}\n{self.timestamp}".encode()
        return int.from_bytes(hashlib.blake2b(named, digest_size=16).digest())


def _taken(files: ReadableFiles, folder: str, after: int, last: int) -> Iterator[_Taken]:
    """Return the files of the batches after one, up to another, if the log still has them."""
    if last == after + 1:
        # The usual case, without listing the log, which is long if batches are frequent.
        found = _lines(files.text(f"{folder}/{last}")) or _end_of_compact(files, f"{folder}/{last}{_COMPACT}", after)
        if found:
            yield from (file for file in found if after < file.batch <= last)
            return
    names = files.names(folder)
    plain = {int(name) for name in names if is_number(name)}
    compacted = [name.removesuffix(_COMPACT) for name in names if name.endswith(_COMPACT)]
    compacts = sorted(int(name) for name in compacted if is_number(name))
    while after < last:
        holding = [batch for batch in compacts if batch > after]
        within = [batch for batch in holding if batch <= last]
        if within:
            found, upto = _end_of_compact(files, f"{folder}/{within[-1]}{_COMPACT}", after), within[-1]
        elif after + 1 in plain:
            found, upto = _lines(files.text(f"{folder}/{after + 1}")), after + 1
        elif holding:
            found, upto = _end_of_compact(files, f"{folder}/{holding[0]}{_COMPACT}", after), last
        else:
            return
        yield from (file for file in found if after < file.batch <= last)
        after = upto


def _end_of_compact(files: ReadableFiles, path: str, after: int) -> list[_Taken]:
    """Return the lines of the batches after one. They ascend, so reading starts near the end of the file."""
    size = _FIRST_READ
    while True:
        text = files.tail(path, size)
        found = _lines(text)
        if text is None or text.startswith("v") or (found and found[0].batch <= after):
            return found
        size *= 8


def _lines(text: str | None) -> list[_Taken]:
    found = []
    for line in (text or "").splitlines():
        if line.startswith("{"):
            file = json.loads(line)
            found.append(_Taken(file["path"], file["timestamp"], file["batchId"]))
    return found


def _common(first: str, second: str) -> str:
    """Return the folders with which two paths begin."""
    pairs = zip(first.split("/"), second.split("/"), strict=False)
    return "/".join(left for left, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
