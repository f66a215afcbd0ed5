"""Starts of records: each has its sizes in front of it, so one is found from the one before.

A long payload is walked through from many places at once, with NumPy. All but the first are guesses: places that look
like what comes before them. A guess counts once the walk before it arrives there exactly; the part behind a wrong
guess is walked through from where that walk arrived. So the result is that of one walk from the start.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError

Positions = NDArray[np.int64]

_SAMPLE = 100  # units at the start that show what others may look like
_ALIKE = 3  # units in a row that look like those of the sample: a place where a walk starts
_APART = 4 << 10  # bytes from one walk's start to the next
_LOST = 8 * _APART  # bytes without such a place: the units are of another kind, so another sample is taken
_FEW = 8  # walks that take longer at once than one by one

_size_at = struct.Struct(">i").unpack_from


class Framing:
    """The units of one payload: records, or blobs, a key's and a value's in turn.

    Blobs are the units if nothing shows where a record starts: it has no type in front, and the sizes of some keys are
    those of some values.

    Args:
        payload: the file, decompressed.
        buffer: the same bytes, and at least 16 zero bytes.
        last: where the end mark is.
        typed: whether each record has a type in front.
        path: the file's name, for errors.
    """

    def __init__(self, payload: bytes, buffer: NDArray[np.uint8], last: int, *, typed: bool, path: str) -> None:
        self._payload = payload
        self._last = last
        self._typed = typed
        self._records = True
        self._path = path
        self._head = 5 if typed else 4  # a key's or a blob's size and, before it, the type
        self._sizes: NDArray[np.int32] = np.ndarray(len(buffer) - 3, ">i4", buffer.data, 0, (1,))

    def starts(self, first: int) -> Positions:
        """Return the starts of the records from a position on.

        Raises:
            DamagedChangelogError: the last record does not end at the end mark, or a key has a negative size.
        """
        sample, at = self._walk(first, self._last, _SAMPLE)
        if not self._typed and not self._sizes_tell(sample):
            self._records = False
            sample, at = self._walk(first, self._last, _SAMPLE)
        found = [np.array(sample, np.int64)]
        while at < self._last:
            walked, at = self._many_walks(sample, at)
            sample, at = self._walk(at, self._last, _SAMPLE)
            found += [*walked, np.array(sample, np.int64)]
        units = np.concatenate(found)
        if self._records:
            return units
        if len(units) % 2:
            raise self._ends_within()
        return units[::2]

    def _sizes_tell(self, sample: list[int]) -> bool:
        """Return whether no value among some records has the size of a key."""
        keys = {_size_at(self._payload, at)[0] for at in sample}
        return keys.isdisjoint(_size_at(self._payload, at + 4 + _size_at(self._payload, at)[0])[0] for at in sample)

    def _walk(self, at: int, end: int, most: int) -> tuple[list[int], int]:
        """Return the units from a position on, one by one, until one starts at ``end`` or later; and where that is."""
        units: list[int] = []
        try:
            while at < end and len(units) < most:
                units.append(at)
                at = self._after(at)
        except struct.error:
            raise self._ends_within() from None
        if at > self._last:
            raise self._ends_within()
        return units, at

    def _after(self, at: int) -> int:
        """Return the end of the unit at a position."""
        if self._records:
            (key,) = _size_at(self._payload, at + self._head - 4)
            if key < 0:
                raise DamagedChangelogError(f"{self._path} has a key of {key} bytes")
            at += self._head + key
        (size,) = _size_at(self._payload, at)
        return int(at + 4 + max(size, 0))

    def _many_walks(self, sample: list[int], first: int) -> tuple[list[Positions], int]:
        """Return the units from a position on, as long as they are like those of the sample; and where they end."""
        guesses = list(self._guesses(sample, first))
        reached = min(self._last, (guesses[-1] if guesses else first) + _LOST)
        begins = np.array([first, *guesses], np.int64)
        ends = np.append(begins[1:], reached)
        units, edges, arrived = self._walked(begins, ends)
        found: list[Positions] = []
        at = first
        for walk, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            if at == begin and arrived[walk] >= 0:
                found.append(units[edges[walk] : edges[walk + 1]])
                at = int(arrived[walk])
            else:
                one_by_one, at = self._walk(at, end, end - first)
                found.append(np.array(one_by_one, np.int64))
        return found, at

    def _guesses(self, sample: list[int], first: int) -> Iterator[int]:
        """Places at which a unit may start, in the distance of the walks; none after a long stretch without any."""
        heads = Counter(self._payload[at : at + self._head] for at in sample)
        ((commonest, _),) = heads.most_common(1)
        found = first
        for place in range(first + _APART, self._last - _APART, _APART):
            guess = self._payload.find(commonest, place, place + _APART)
            while guess >= 0:
                if self._is_alike(guess, heads):
                    yield guess
                    found = guess
                    break
                guess = self._payload.find(commonest, guess + 1, place + _APART)
            if place - found >= _LOST:
                return

    def _is_alike(self, at: int, heads: Counter[bytes]) -> bool:
        for _ in range(_ALIKE):
            if self._payload[at : at + self._head] not in heads:
                return False
            try:
                at = self._after(at)
            except struct.error:
                return False
        return True

    def _walked(self, begins: Positions, ends: Positions) -> tuple[Positions, list[int], Positions]:
        """Walk from all of some places at once.

        Returns the units of all walks, one walk behind the other; where each walk's units begin among them; and where
        each arrived: −1 if it left the payload, met a size that no unit has, or was one of the last few under way.
        """
        at = begins.copy()
        walking = np.flatnonzero(begins < ends)
        walks, units = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while len(walking) >= _FEW:
            here = at[walking]
            walks.append(walking)
            units.append(here)
            at[walking] = there = self._all_after(here)
            walking = walking[(there >= 0) & (there < ends[walking])]
        at[walking] = -1
        walk = np.concatenate(walks).astype(np.uint16 if len(begins) < 1 << 16 else np.int64)
        edges = np.cumsum([0, *np.bincount(walk, minlength=len(begins)).tolist()]).tolist()
        return np.concatenate(units)[np.argsort(walk, kind="stable")], edges, at

    def _all_after(self, at: Positions) -> Positions:
        """Return the ends of the units at some positions; −1 for an end outside the payload."""
        wrong = np.zeros(len(at), np.bool_)
        if self._records:
            key = self._sizes[at + self._head - 4].astype(np.int64)
            at = at + self._head + key
            wrong = (key < 0) | (at > self._last)
            at[wrong] = self._last
        there = at + 4 + np.maximum(self._sizes[at].astype(np.int64), 0)
        there[wrong | (there > self._last)] = -1
        return there

    def _ends_within(self) -> DamagedChangelogError:
        return DamagedChangelogError(f"{self._path} ends within a record")
