"""Positions of list elements: Spark's change feed returns them in order, the change log stores their positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ListChanges:
    """The changes of one epoch to lists; rows are given by their numbers in the epoch's feed."""

    put: Ints
    """The rows whose elements are in their lists at the end of the epoch."""
    put_positions: Ints
    gone: Ints
    """For each position that a list lost, any row of that list."""
    gone_positions: Ints
    lengths: Ints
    """The length of each list after the epoch."""


@dataclass(frozen=True)
class Lists:
    """The lists that occur in an epoch's feed.

    ``of_row`` is the number of each row's list, ``first_row`` a row of each list, ``lengths`` how long each was.
    """

    of_row: Ints
    first_row: Ints
    lengths: Ints


def grouped(digests: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Ints, Ints]:
    """Return the distinct digests, sorted; a row of each; and for each row the number of its digest."""
    distinct, first, numbers = np.unique(digests, return_index=True, return_inverse=True)
    return distinct, first.astype(np.int64), numbers.astype(np.int64)


def settle(lists: Lists, restarts: Flags, deletes: Flags) -> ListChanges:
    """Apply an epoch's feed to lists: an update restarts a list, a delete ends it, an append extends it.

    Args:
        lists: the lists, as they were before the epoch.
        restarts: per row, whether it is an update or a delete.
        deletes: per row, whether it is a delete.
    """
    rows = np.arange(len(lists.of_row))
    restart = np.full(len(lists.lengths), -1, np.int64)
    np.maximum.at(restart, lists.of_row[restarts], rows[restarts])
    put = np.flatnonzero(~deletes & (rows >= restart[lists.of_row]))
    kept = np.where(restart < 0, lists.lengths, 0)
    added = np.bincount(lists.of_row[put], minlength=len(kept))
    lengths = kept + added
    lost = np.maximum(lists.lengths - lengths, 0)
    return ListChanges(
        put,
        _ranks(lists.of_row[put], added) + kept[lists.of_row[put]],
        np.repeat(lists.first_row, lost),
        _counting(lost) + np.repeat(lengths, lost),
        lengths,
    )


def _ranks(numbers: Ints, sizes: Ints) -> Ints:
    """For each row, how many earlier rows have its number; ``sizes`` is how often each number occurs."""
    ranks = np.empty(len(numbers), np.int64)
    ranks[np.argsort(numbers, kind="stable")] = _counting(sizes)
    return ranks


def _counting(sizes: Ints) -> Ints:
    """0, 1, … size − 1 for each size, one after another."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
