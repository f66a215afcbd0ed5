"""Which part of its sources an epoch reflects, in a form that can be compared between queries.

An epoch's end offsets compare between queries where they count something that the source itself numbers, as Kafka's
and Delta's do. The offset of Spark's file source counts the query's own batches: two queries over one folder give the
same files different numbers. What the source took is in the checkpoint, though: ``sources/<i>/<batch>`` lists the files
of each of its batches, and every tenth, ``<batch>.compact``, those of all before as well. So the manifest keeps a
digest of the files that an epoch and all before it took: the sum of the files' hashes, which does not depend on the
order in which they came (a multiset hash: Clarke et al., "Incremental Multiset Hash Functions", 2003).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from streamstate.snapshots.filesystem import Files

FILES, OFFSET = "files", "offset"
"""The kinds of sources: whose log lists files, and whose offset says itself how far it was read."""

Facts: TypeAlias = "dict[str, Any] | None"
"""What is known of one source; None: nothing."""

_MODULUS = 2**128
_COMPACT = ".compact"
_FIRST_READ = 64 * 1024
# Spark may compact its log, and delete what it compacted, between our listing it and our reading it.
_ATTEMPTS = 3


def sources_after(files: Files, checkpoint: str, before: str | None, offsets: Sequence[str | None]) -> str | None:
    """The ``sources`` column of an epoch's row in the manifest; None where nothing is known of any source.

    What it costs follows the files that came since ``before``.

    Args:
        files: reads the checkpoint.
        checkpoint: the checkpoint's path.
        before: the same of an earlier epoch; None: of none.
        offsets: the epoch's end offset of each source, in the query's order.
    """
    known: list[Facts] = json.loads(before) if before is not None else []
    known += [None] * (len(offsets) - len(known))
    found = [
        _source(files, f"{checkpoint}/sources/{at}", known[at], offset) if offset is not None else known[at]
        for at, offset in enumerate(offsets)
    ]
    return json.dumps(found, separators=(",", ":")) if any(found) else None


def _source(files: Files, folder: str, before: Facts, offset: str) -> Facts:
    try:
        return _told(files, folder, before, offset)
    except (ValueError, KeyError, TypeError):
        # A log in a form that we do not know: capture does not depend on it, and None says that nothing is known.
        return None


def _told(files: Files, folder: str, before: Facts, offset: str) -> Facts:
    batch = _batch_of_file_source(offset)
    if batch is not None:
        prefix = _Prefix.of(before)
        if prefix.batch > batch:
            prefix = _Prefix()
        after = prefix.advanced(files, folder, batch)
        return after.facts() if after is not None else None
    return before if before is not None and before.get("kind") == OFFSET else _started(files, folder)


def _batch_of_file_source(offset: str) -> int | None:
    """The number of the source's own batch, for a file source's offset."""
    try:
        parsed = json.loads(offset)
    except ValueError:
        return None
    if not isinstance(parsed, dict) or [*parsed] != ["logOffset"]:
        return None
    return int(parsed["logOffset"])


def _started(files: Files, folder: str) -> Facts:
    """Where a source began, which Kafka's and some others write down once."""
    text = files.text(f"{folder}/0")
    facts: dict[str, Any] = {"kind": OFFSET}
    # Kafka's source writes a zero byte first, for versions of Spark that nobody runs any more.
    version, _, start = (text or "").lstrip("\0").partition("\n")
    if version == "v1":
        try:
            facts["start"] = json.loads(start)
        except ValueError:
            facts["start"] = start
    return facts


@dataclass(frozen=True)
class _Prefix:
    """The files that a source took up to one of its own batches."""

    batch: int = -1
    count: int = 0
    digest: int = 0
    under: str | None = None
    """The innermost folder that holds all of them."""

    @classmethod
    def of(cls, facts: Facts) -> _Prefix:
        """What the manifest says of a source; the beginning where it says nothing."""
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

    def advanced(self, files: Files, folder: str, batch: int) -> _Prefix | None:
        """The same with all batches up to one; None where the source's log no longer tells them."""
        if batch <= self.batch:
            return self
        for _ in range(_ATTEMPTS):
            taken = [*_taken(files, folder, self.batch, batch)]
            # A batch without files is not written, and none is left out.
            if {one.batch for one in taken} == {*range(self.batch + 1, batch + 1)}:
                return self._with(taken, batch)
        return None

    def _with(self, taken: Sequence[_Taken], batch: int) -> _Prefix:
        digest = (self.digest + sum(one.digest for one in taken)) % _MODULUS
        under = self.under
        for folder in {one.path.rsplit("/", 1)[0] for one in taken}:
            under = folder if under is None else _common(under, folder)
        return _Prefix(batch, self.count + len(taken), digest, under)


@dataclass(frozen=True)
class _Taken:
    """A line of a file source's log: one file, and the source's batch that took it."""

    path: str
    timestamp: int
    batch: int

    @property
    def digest(self) -> int:
        """A file that was written anew is another file: its time counts."""
        named = f"{self.path}\n{self.timestamp}".encode()
        return int.from_bytes(hashlib.blake2b(named, digest_size=16).digest())


def _taken(files: Files, folder: str, after: int, last: int) -> Iterator[_Taken]:
    """The files that the batches after one, up to another, took, as far as the log tells."""
    if last == after + 1:
        # The usual case; listing the log takes longer the quicker the query's batches follow each other.
        found = _lines(files.text(f"{folder}/{last}")) or _end_of_compact(files, f"{folder}/{last}{_COMPACT}", after)
        if found:
            yield from (one for one in found if after < one.batch <= last)
            return
    names = files.names(folder)
    plain = {int(name) for name in names if name.isdigit()}
    compacts = sorted(int(name.removesuffix(_COMPACT)) for name in names if _is_compact(name))
    while after < last:
        holding = [one for one in compacts if one > after]
        within = [one for one in holding if one <= last]
        if within:
            found, upto = _end_of_compact(files, f"{folder}/{within[-1]}{_COMPACT}", after), within[-1]
        elif after + 1 in plain:
            found, upto = _lines(files.text(f"{folder}/{after + 1}")), after + 1
        elif holding:
            found, upto = _end_of_compact(files, f"{folder}/{holding[0]}{_COMPACT}", after), last
        else:
            return
        yield from (one for one in found if after < one.batch <= last)
        after = upto


def _is_compact(name: str) -> bool:
    return name.endswith(_COMPACT) and name.removesuffix(_COMPACT).isdigit()


def _end_of_compact(files: Files, path: str, after: int) -> list[_Taken]:
    """The lines of the batches after one; they ascend, so that those before need not be read."""
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
            one = json.loads(line)
            found.append(_Taken(one["path"], one["timestamp"], one["batchId"]))
    return found


def _common(one: str, other: str) -> str:
    pairs = zip(one.split("/"), other.split("/"), strict=False)
    return "/".join(left for left, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
