"""How many rows each key of a state table holds, at a cost per epoch that follows the keys that changed.

A log-structured merge tree (O'Neil et al., "The Log-Structured Merge-Tree", 1996) of NumPy arrays: runs of sorted
digests, the newest run with a digest counts, and runs are merged when the next one is no longer much smaller. The
lowest run leaves memory once it is large.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

Digests: TypeAlias = npt.NDArray[Any]
Counts: TypeAlias = npt.NDArray[Any]

# A run is merged into the one below when that is at most so many times as large.
_GROWTH = 4
# Digests in memory; a larger run goes into an unnamed temporary file and is mapped.
_IN_MEMORY = 4_000_000
_BLOCK = 1_000_000


@dataclass(frozen=True)
class _Run:
    """Digests, sorted and unique, and the count of each."""

    digests: Digests
    counts: Counts

    def find(self, digests: Digests) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Where sorted digests would stand, and which of them are there."""
        at = np.searchsorted(self.digests, digests)
        at[at == len(self.digests)] = 0
        return at, self.digests[at] == digests


class KeyCounts:
    """A map from digests of keys to counts; digests that it does not hold count 0.

    It takes 9 to 24 bytes a key, and not much memory for more than ``in_memory`` keys: the system can drop the
    mapped pages at any time.

    Args:
        digest: the digests' type, of fixed width and with an order, such as ``uint64`` or ``S16``.
        count: the counts' type.
        in_memory: digests that one run keeps in memory.
    """

    def __init__(self, digest: str = "uint64", count: str = "uint8", *, in_memory: int = _IN_MEMORY) -> None:
        self._digest, self._count = np.dtype(digest), np.dtype(count)
        self._in_memory = in_memory
        self._runs: list[_Run] = []
        self.total = 0
        """The sum of all counts."""

    def get(self, digests: Digests) -> Counts:
        """The count of each of some digests, which are sorted."""
        counts = np.zeros(len(digests), self._count)
        missing = np.arange(len(digests))
        for run in reversed(self._runs):
            at, found = run.find(digests[missing])
            counts[missing[found]] = run.counts[at[found]]
            missing = missing[~found]
            if not len(missing):
                break
        return counts

    def put(self, digests: Digests, counts: Counts) -> None:
        """Set the counts of some digests, which are sorted and unique."""
        before = self.get(digests)
        changed = before != counts
        if not changed.any():
            return
        self.total += int(counts.sum(dtype=np.int64)) - int(before.sum(dtype=np.int64))
        self._runs.append(_Run(digests[changed], counts[changed].astype(self._count)))
        while len(self._runs) > 1 and len(self._runs[-2].digests) <= _GROWTH * len(self._runs[-1].digests):
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(self._merged(older, newer, lowest=not self._runs))
        if len(self._runs) == 1 and not len(self._runs[0].digests):
            self._runs.clear()

    def _merged(self, older: _Run, newer: _Run, *, lowest: bool) -> _Run:
        """Both runs as one; zeros say something to lower runs only."""
        blocks = _blocks(older, newer)
        if lowest:
            blocks = ((digests[counts > 0], counts[counts > 0]) for digests, counts in blocks)
        if len(older.digests) + len(newer.digests) > self._in_memory:
            return self._mapped(blocks)
        pieces = [*blocks]
        return _Run(np.concatenate([one for one, _ in pieces]), np.concatenate([one for _, one in pieces]))

    def _mapped(self, blocks: Iterable[tuple[Digests, Counts]]) -> _Run:
        with tempfile.TemporaryFile() as digests, tempfile.TemporaryFile() as counts:
            length = 0
            for some, their in blocks:
                digests.write(some.tobytes())
                counts.write(their.tobytes())
                length += len(some)
            # A mapping outlives its file's name and handle.
            return _Run(_map(digests, self._digest, length), _map(counts, self._count, length))


def _blocks(older: _Run, newer: _Run) -> Iterator[tuple[Digests, Counts]]:
    """The two runs merged, in blocks of bounded size, so that a mapped run is never in memory as a whole."""
    start = 0
    for low in range(0, len(older.digests), _BLOCK):
        block = _Run(older.digests[low : low + _BLOCK], older.counts[low : low + _BLOCK])
        last = low + _BLOCK >= len(older.digests)
        end = len(newer.digests) if last else int(np.searchsorted(newer.digests, block.digests[-1], side="right"))
        yield _block(block, _Run(newer.digests[start:end], newer.counts[start:end]))
        start = end


def _block(older: _Run, newer: _Run) -> tuple[Digests, Counts]:
    at, replaced = older.find(newer.digests)
    kept = np.ones(len(older.digests), np.bool_)
    kept[at[replaced]] = False
    digests = np.concatenate([older.digests[kept], newer.digests])
    counts = np.concatenate([older.counts[kept], newer.counts])
    # Two sorted runs: a stable sort finds them and merges.
    order = np.argsort(digests, kind="stable")
    return digests[order], counts[order]


def _map(file: IO[bytes], dtype: np.dtype[Any], length: int) -> npt.NDArray[Any]:
    file.flush()
    return np.memmap(file, dtype, "r", shape=(length,)) if length else np.empty(0, dtype)
