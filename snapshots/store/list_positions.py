"""Positions of list elements: Spark's change feed returns them in order, the change log stores their positions.

Appended elements begin at the list's length, which is in the change log. So it is looked up, for the lists that change,
and remembered for those that changed lately. What is remembered has a bound that does not depend on the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, POSITION
from streamstate.snapshots.store.changelog import DELETE
from streamstate.snapshots.store.duckdb_sql import embedded, listed, quoted, same, spilling

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Digests: TypeAlias = npt.NDArray[Any]
Log: TypeAlias = "pa.Table | pa.RecordBatchReader"

# Lists whose lengths are remembered, at about 120 bytes each.
_REMEMBERED = 200_000
# How many bytes of a SHA-256 are kept.
_WIDTH = 16
# The number of a list, or its length: a name that no key column has.
_LIST = "_row"


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


class ListLengths:
    """The lengths of a table's lists where a pass begins.

    The first look-up reads the log for the lists in question only. A second one means that epochs are followed: it
    reads the lengths of all lists, so that no third is needed unless there are more lists than can be remembered.

    Args:
        keys: the table's key columns, without the position.
        log: returns the rows that make up the state where the pass begins: epoch, change, keys and position. None: the
            table begins empty, and all lists are remembered.
        begins_empty: whether the table has no lists yet.
        most: how many lists to remember.
    """

    def __init__(
        self,
        keys: Sequence[str],
        log: Callable[[], Log] | None = None,
        *,
        begins_empty: bool = False,
        most: int = _REMEMBERED,
    ) -> None:
        self._keys = [*keys]
        self._log = log
        self._most = most
        # The lists that changed lately, and those that did before; the older half is forgotten at the bound.
        self._recent: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}
        self._has_all = begins_empty or log is None
        self._lookups = 0

    def of(self, lists: pa.Table, digests: Digests) -> Ints:
        """Return the lengths of distinct lists, given by their keys and the digests of the keys."""
        found = np.array([self._known(digest) for digest in digests.tolist()], np.int64)
        if (found < 0).any() and not self._has_all:
            self._lookups += 1
            if self._lookups > 1:
                self._remember_all(lists.schema)
                found = np.array([self._known(digest) for digest in digests.tolist()], np.int64)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            found[missing] = 0 if self._has_all else self._looked_up(lists.take(missing))
        return found

    def put(self, digests: Digests, lengths: Ints) -> None:
        """Remember the lengths that lists have now."""
        for digest, length in zip(digests.tolist(), lengths.tolist(), strict=True):
            self._older.pop(digest, None)
            if length or not self._has_all:
                self._recent[digest] = length
            else:
                self._recent.pop(digest, None)
            if len(self._recent) > self._most // 2 and self._log is not None:
                self._has_all = self._has_all and not self._older
                self._older, self._recent = self._recent, {}

    def _known(self, digest: bytes) -> int:
        """Return the length of a list; −1 if it is not remembered."""
        length = self._recent.get(digest)
        return self._older.get(digest, -1) if length is None else length

    def _looked_up(self, lists: pa.Table) -> Ints:
        assert self._log is not None
        wanted = lists.append_column(_LIST, pa.array(np.arange(lists.num_rows)))
        with spilling() as database:
            database.register("wanted", wanted)
            database.register("log", self._log())
            rows = database.sql(
                f"SELECT {_LIST}, count(*) AS n FROM (SELECT {_LIST} FROM log JOIN wanted ON"
                f" {same('log', 'wanted', self._keys)} GROUP BY {_LIST}, {quoted(POSITION)}"
                f" HAVING arg_max({CHANGE}, {EPOCH}) <> '{DELETE}') GROUP BY {_LIST}"
            ).fetchnumpy()
        lengths = np.zeros(lists.num_rows, np.int64)
        lengths[rows[_LIST]] = rows["n"]
        return lengths

    def _remember_all(self, schema: pa.Schema) -> None:
        """Read the lengths of all lists, unless there are too many."""
        if self._log is None or self._lookups > 2:
            return
        keys, most = listed(self._keys), self._most // 2
        with spilling() as database:
            database.register("log", self._log())
            found = database.sql(
                f"SELECT {keys}, count(*) AS {_LIST} FROM (SELECT {keys} FROM log GROUP BY {keys}, {quoted(POSITION)}"
                f" HAVING arg_max({CHANGE}, {EPOCH}) <> '{DELETE}') GROUP BY {keys} LIMIT {most + 1}"
            ).to_arrow_table()
        if found.num_rows > most:
            return
        digests = list_digests(found.select(self._keys).cast(pa.schema([schema.field(key) for key in self._keys])))
        self._recent, self._older = dict(zip(digests.tolist(), found[_LIST].to_pylist(), strict=True)), {}
        self._has_all = True


def list_digests(keys: pa.Table) -> Digests:
    """For each row of key columns a digest of 128 bits; equal keys have equal digests, and NULL equals NULL.

    The columns may have any type that DuckDB can group by. The hash is a cryptographic one, because no two lists may
    ever be confused: two of n share a digest with a chance of about n²/2¹²⁹.
    """
    database = embedded()
    database.register("keys", keys)
    # A sort key is DuckDB's encoding of any value as bytes; equal values have equal sort keys.
    sort_key = ", ".join(f"{quoted(name)}, 'ASC NULLS LAST'" for name in keys.column_names)
    found = database.sql(f"SELECT unhex(sha256(create_sort_key({sort_key})))[1:{_WIDTH}] AS d FROM keys")
    width = pa.binary(_WIDTH)
    digests = found.to_arrow_table()["d"].cast(width)
    flat = pa.concat_arrays(digests.chunks) if digests.num_chunks else pa.array([], width)
    return np.frombuffer(flat.buffers()[1] or b"", f"S{_WIDTH}", len(flat), flat.offset * _WIDTH)
