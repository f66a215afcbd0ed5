"""The epochs that a contract grants, with their commit times, which need not ascend: clocks go back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.sharing.protocol import AskedError
from streamstate.snapshots.store.entries import Entries

_Integers = np.ndarray[Any, np.dtype[np.int64]]

_NO_VERSION = "This version is not available."
_START, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class GrantedEpochs:
    """Epochs and their commit times. They never change, and each question is a binary search.

    Args:
        epochs: the epochs, ascending.
        times: their commit times in microseconds since 1970, in any order.
        until: the time, likewise, from which one of the epochs is no longer granted; None: all stay granted.
    """

    def __init__(self, epochs: _Integers, times: _Integers, until: int | None = None) -> None:
        self._epochs, self._times, self._until = epochs, times, until

    @classmethod
    def of(cls, entries: Entries, since: int, keep: float | None, now: datetime) -> GrantedEpochs:
        """Return the captured epochs of a manifest that are granted at a moment.

        Args:
            entries: the manifest.
            since: the first epoch that is granted.
            keep: the seconds after its commit for which an epoch is granted; None: for good.
            now: the moment.
        """
        times = entries.column("committed_at").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        there = entries.is_captured & pc.is_valid(times).to_numpy() & (entries.epochs >= since)
        committed: _Integers = pc.fill_null(times, 0).to_numpy()
        if keep is None:
            return cls(entries.epochs[there], committed[there])
        kept = round(min(keep * 1e6, 2.0**61))
        there &= committed > microseconds(now) - kept
        return cls(entries.epochs[there], committed[there], int(committed[there].min()) + kept if there.any() else None)

    def all_granted(self, now: datetime) -> bool:
        """Return whether all of them are still granted at a later moment."""
        return self._until is None or microseconds(now) < self._until

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._epochs)

    def __contains__(self, epoch: object) -> bool:
        """Return whether an epoch is granted."""
        return isinstance(epoch, int) and self._place(epoch) is not None

    @property
    def newest(self) -> int:
        """The newest epoch.

        Raises:
            AskedError: there is none.
        """
        if not len(self):
            raise AskedError(404, _NO_VERSION)
        return int(self._epochs[-1])

    def at(self, epoch: int) -> datetime:
        """Return the commit time of an epoch.

        Raises:
            AskedError: it is not granted.
        """
        return _START + timedelta(microseconds=int(self._times[self._required(epoch)]))

    def before(self, epoch: int) -> int | None:
        """Return the granted epoch before one; None: there is none.

        Raises:
            AskedError: the one is not granted.
        """
        place = self._required(epoch)
        return int(self._epochs[place - 1]) if place else None

    def at_or_before(self, moment: datetime) -> int:
        """Return the newest epoch that was committed by a moment.

        Raises:
            AskedError: there is none.
        """
        # The last of these minima that is not later is the time of the last epoch that is not later.
        place = int(np.searchsorted(self._earliest_from, microseconds(moment), side="right"))
        if not place:
            raise AskedError(400, "No version was committed by this time.")
        return int(self._epochs[place - 1])

    def at_or_after(self, moment: datetime) -> int:
        """Return the first epoch that was committed at a moment or later.

        Raises:
            AskedError: there is none.
        """
        place = int(np.searchsorted(self._latest_until, microseconds(moment), side="left"))
        if place == len(self):
            raise AskedError(400, "No version was committed at this time or later.")
        return int(self._epochs[place])

    def between(self, first: int, last: int) -> Sequence[int]:
        """Return the granted epochs from one to another; both need not be granted."""
        start, end = (
            np.searchsorted(self._epochs, first, side="left"),
            np.searchsorted(self._epochs, last, side="right"),
        )
        found: list[int] = self._epochs[start:end].tolist()
        return found

    @cached_property
    def _earliest_from(self) -> _Integers:
        """For each epoch the earliest commit time from it on, which ascends."""
        found: _Integers = np.minimum.accumulate(self._times[::-1])[::-1]
        return found

    @cached_property
    def _latest_until(self) -> _Integers:
        """For each epoch the latest commit time until it, which ascends."""
        found: _Integers = np.maximum.accumulate(self._times)
        return found

    def _required(self, epoch: int) -> int:
        place = self._place(epoch)
        if place is None:
            raise AskedError(400, _NO_VERSION)
        return place

    def _place(self, epoch: int) -> int | None:
        place = int(np.searchsorted(self._epochs, epoch))
        return place if place < len(self) and self._epochs[place] == epoch else None


def microseconds(at: datetime) -> int:
    """Return a time as microseconds since 1970, exactly."""
    return (at - _START) // _MICROSECOND
