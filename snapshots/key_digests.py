"""Digests of keys and counts per digest: what capture remembers of the live keys, instead of the keys.

The counts are a log-structured merge tree (O'Neil et al., "The Log-Structured Merge-Tree", 1996) of NumPy arrays: runs
of sorted digests, in which the newest run that has a digest counts, and a run is merged with the one below once it is
no longer much smaller. An epoch costs in proportion to the keys that changed. A large lowest run moves to disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamstate.snapshots.duckdb_sql import embedded, listed, quoted

Digests: TypeAlias = npt.NDArray[Any]
Counts: TypeAlias = npt.NDArray[Any]

# A run is merged into the one below if that is at most this many times as large.
_GROWTH = 4
# Digests that a run keeps in memory; a larger run is mapped from an unnamed temporary file.
_IN_MEMORY = 4_000_000
_BLOCK = 1_000_000
# How many bytes of a SHA-256 are kept.
_WIDTH = 16


class KeyDigests:
    """Computes digests of key columns of any type that DuckDB can group by; equal keys have equal digests, as do NULLs.

    A digest has 64 bits and is fast; two of n keys share one with a chance of about n²/2⁶⁵, which is 1 in 400,000 for
    10 million keys. An ``exact`` one has 128 bits of a cryptographic hash (a chance of n²/2¹²⁹), for uses that must
    never confuse two keys.
    """

    def __init__(self, keys: Sequence[str], *, exact: bool = False) -> None:
        self._keys = [*keys]
        self._exact = exact
        self._db = embedded()

    @property
    def dtype(self) -> str:
        """NumPy's name for the type of the digests."""
        return f"S{_WIDTH}" if self._exact else "uint64"

    def of(self, rows: pa.Table) -> npt.NDArray[Any]:
        """The digest of each row's key, in the rows' order."""
        self._db.register("rows", rows.select(self._keys))
        try:
            if not self._exact:
                return np.asarray(self._db.sql(f"SELECT hash({listed(self._keys)}) AS d FROM rows").fetchnumpy()["d"])
            # A sort key is DuckDB's encoding of any value as bytes; equal values have equal sort keys.
            sort_key = ", ".join(f"{quoted(key)}, 'ASC NULLS LAST'" for key in self._keys)
            found = self._db.sql(f"SELECT unhex(sha256(create_sort_key({sort_key})))[1:{_WIDTH}] AS d FROM rows")
            return _as_bytes(found.to_arrow_table()["d"])
        finally:
            self._db.unregister("rows")


@dataclass(frozen=True)
class _Run:
    """Sorted, unique digests and the count of each."""

    digests: Digests
    counts: Counts

    def find(self, digests: Digests) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Where sorted digests would be inserted, and which of them the run has."""
        at = np.searchsorted(self.digests, digests)
        at[at == len(self.digests)] = 0
        return at, self.digests[at] == digests


class KeyCounts:
    """A map from digests of keys to counts; digests that are not in it have the count 0.

    It takes 9 to 24 bytes per key. Beyond ``in_memory`` keys it takes little memory: the operating system can drop the
    mapped pages at any time. Digests have a type of fixed width and an order, such as ``uint64`` or ``S16``.
    """

    def __init__(self, digest: str = "uint64", count: str = "uint8", *, in_memory: int = _IN_MEMORY) -> None:
        self._digest, self._count = np.dtype(digest), np.dtype(count)
        self._in_memory = in_memory
        self._runs: list[_Run] = []
        self.total = 0
        """The sum of all counts."""

    def get(self, digests: Digests) -> Counts:
        """The counts of some sorted digests."""
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
        """Set the counts of some sorted, unique digests."""
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
        """Both runs as one; the lowest run needs no zeros."""
        blocks = _blocks(older, newer)
        if lowest:
            blocks = ((digests[counts > 0], counts[counts > 0]) for digests, counts in blocks)
        if len(older.digests) + len(newer.digests) > self._in_memory:
            return self._mapped(blocks)
        pieces = [*blocks]
        return _Run(np.concatenate([keys for keys, _ in pieces]), np.concatenate([counts for _, counts in pieces]))

    def _mapped(self, blocks: Iterable[tuple[Digests, Counts]]) -> _Run:
        with tempfile.TemporaryFile() as digests, tempfile.TemporaryFile() as counts:
            length = 0
            for block_digests, block_counts in blocks:
                digests.write(block_digests.tobytes())
                counts.write(block_counts.tobytes())
                length += len(block_digests)
            # A mapping stays valid after the file is closed and deleted.
            return _Run(_map(digests, self._digest, length), _map(counts, self._count, length))


def _blocks(older: _Run, newer: _Run) -> Iterator[tuple[Digests, Counts]]:
    """The merged runs, in blocks of bounded size, so that a mapped run is never in memory as a whole."""
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
    # A stable sort of two sorted runs is a merge.
    order = np.argsort(digests, kind="stable")
    return digests[order], counts[order]


def _map(file: IO[bytes], dtype: np.dtype[Any], length: int) -> npt.NDArray[Any]:
    file.flush()
    return np.memmap(file, dtype, "r", shape=(length,)) if length else np.empty(0, dtype)


def _as_bytes(digests: pa.ChunkedArray) -> npt.NDArray[np.bytes_]:
    width = pa.binary(_WIDTH)
    flat = pa.concat_arrays(digests.cast(width).chunks) if digests.num_chunks else pa.array([], width)
    return np.frombuffer(flat.buffers()[1] or b"", f"S{_WIDTH}", len(flat), flat.offset * _WIDTH)
