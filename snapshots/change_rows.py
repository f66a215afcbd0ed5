"""Turns what Spark returns into rows of the changelog: one row per key and epoch in which the key changed.

Two classes follow a state table from one epoch to the next:

- ``FeedFollower`` reads the change feed. It knows how many rows each live key has, from which list elements get their
  positions and the manifest its counts.
- ``WholeFollower`` reads the whole state at each epoch, if Spark has no feed, and compares it with the epoch before, so
  that the log still contains only what changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.change_log import DELETE, PUT
from streamstate.snapshots.duckdb_sql import embedded, listed, quoted, same
from streamstate.snapshots.key_digests import KeyCounts, KeyDigests
from streamstate.snapshots.list_positions import Lists, grouped, replay, settle
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION, POSITION, Columns
from streamstate.snapshots.state_reader import StateRows

# Rows digested at once when following starts, which bounds its memory.
_REPLAYED = 1_000_000


@dataclass(frozen=True)
class EpochChanges:
    """What one epoch adds to a changelog, and how many rows are live after it."""

    epoch: int
    rows: pa.Table
    live: int


class FeedFollower:
    """Follows a state table by its change feed.

    It remembers digests of the live keys, not the keys. If two keys share a digest (see :class:`KeyDigests` for the
    chance), the manifest's row count may be off by one; rows are never identified by digest alone. The positions of
    list elements do depend on digests, which have 128 bits there.

    Args:
        columns: the table's columns.
        log: the changelog's content where following starts, piece by piece: the key columns of the live rows; or,
            together with ``_epoch`` and ``_change``, of all rows since a keyframe, ordered by epoch.
    """

    def __init__(self, columns: Columns, log: Iterable[pa.Table] = ()) -> None:
        self._columns = columns
        self.keys = columns.keys
        self._is_list = POSITION in columns.keys
        self._keys = columns.spark_keys
        self._digests = KeyDigests(self._keys, exact=self._is_list)
        self._live = KeyCounts(self._digests.dtype, "int64" if self._is_list else "uint8")
        self._db = embedded()
        for piece in log:
            for start in range(0, piece.num_rows, _REPLAYED):
                self._replay(piece.slice(start, _REPLAYED))

    def changes(self, feed: StateRows, epochs: Sequence[int]) -> Iterator[EpochChanges]:
        """The change rows of consecutive epochs, from the feed that covers them."""
        digests = self._digests.of(feed.rows)
        places = _places(feed.rows[EPOCH])
        for epoch in epochs:
            where = places.get(epoch, [slice(0, 0)])
            rows, keys = _sliced(feed.rows, where), np.concatenate([digests[place] for place in where])
            log = self._list_rows(rows, keys) if self._is_list else self._keyed_rows(rows, keys)
            yield EpochChanges(epoch, log, self._live.total)

    def _keyed_rows(self, rows: pa.Table, digests: npt.NDArray[Any]) -> pa.Table:
        """The last row of each key in the epoch."""
        order = np.argsort(digests, kind="stable")
        again = digests[order][1:] == digests[order][:-1]
        if again.any():
            last = self._last_rows(rows, np.sort(order[np.append(again, False) | np.insert(again, 0, False)]))
            rows, digests = rows.filter(pa.array(last)), digests[last]
        self._live.put(*last_of_each(digests, _flags(rows, CHANGE, "delete") ^ True))
        return as_log(rows, self._columns)

    def _last_rows(self, rows: pa.Table, suspects: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Which rows are the last of their key; only the suspects have digests that occur more than once."""
        self._db.register("feed", rows.select(self._keys).take(suspects).append_column("_row", pa.array(suspects)))
        found = self._db.sql(f"SELECT max(_row) AS _row FROM feed GROUP BY {listed(self._keys)}").fetchnumpy()["_row"]
        self._db.unregister("feed")
        last = np.ones(rows.num_rows, np.bool_)
        last[suspects] = False
        last[found] = True
        return last

    def _list_rows(self, rows: pa.Table, digests: npt.NDArray[Any]) -> pa.Table:
        """The elements, with the positions that they have at the epoch's end."""
        distinct, first, numbers = grouped(digests)
        lists = Lists(numbers, first, self._live.get(distinct))
        settled = settle(lists, _flags(rows, CHANGE, "append") ^ True, _flags(rows, CHANGE, "delete"))
        self._live.put(distinct, settled.lengths)
        kept = rows.take(settled.put).append_column(POSITION, pa.array(settled.put_positions))
        gone = rows.take(settled.gone).append_column(POSITION, pa.array(settled.gone_positions))
        return pa.concat_tables([as_log(kept, self._columns, PUT), as_log(gone, self._columns, DELETE)])

    def _replay(self, log: pa.Table) -> None:
        """Update the live keys from rows of the log."""
        digests = self._digests.of(log)
        deletes = _flags(log, CHANGE, DELETE) if CHANGE in log.schema.names else np.zeros(len(digests), np.bool_)
        if not self._is_list:
            self._live.put(*last_of_each(digests, ~deletes))
            return
        positions = log[POSITION].to_numpy()
        for places in (_places(log[EPOCH]) if EPOCH in log.schema.names else {0: [slice(None)]}).values():
            for place in places:
                distinct, first, numbers = grouped(digests[place])
                lists = Lists(numbers, first, self._live.get(distinct))
                self._live.put(distinct, replay(lists, positions[place], deletes[place]))


def _flags(rows: pa.Table, column: str, value: str) -> npt.NDArray[np.bool_]:
    """Per row, whether a column has a value."""
    return np.asarray(pc.equal(rows[column], value).to_numpy(), np.bool_)


def last_of_each(digests: npt.NDArray[Any], counts: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """The distinct digests, sorted, each with its last count."""
    order = np.argsort(digests, kind="stable")
    ordered = digests[order]
    last = np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]
    return ordered[last], counts[order][last].astype(np.uint8)


def _places(epochs: pa.ChunkedArray) -> dict[int, list[slice]]:
    """Where each epoch's rows are: Spark returns them partition by partition, ordered by epoch within a partition."""
    numbers = epochs.to_numpy()
    edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    places: dict[int, list[slice]] = {}
    for start, end in itertools.pairwise(edges):
        if start < end:
            places.setdefault(int(numbers[start]), []).append(slice(start, end))
    return places


def _sliced(rows: pa.Table, places: Sequence[slice]) -> pa.Table:
    """Some slices of the rows, without a copy."""
    return pa.concat_tables([rows.slice(place.start, place.stop - place.start) for place in places])


class WholeFollower:
    """Follows a state table by comparing the whole state at each epoch with that at the epoch before.

    Args:
        columns: the table's columns.
        state: the key and value columns of all rows at the epoch where following starts.
    """

    def __init__(self, columns: Columns, state: pa.Table) -> None:
        self._columns = columns
        self.keys = columns.keys
        self._names = columns.names
        self._state = state
        self._db: duckdb.DuckDBPyConnection = embedded()

    def changes(self, whole: StateRows, epochs: Sequence[int]) -> Iterator[EpochChanges]:
        """The change rows of some epochs, from the whole state at each of them."""
        places = _places(whole.rows[EPOCH])
        for epoch in epochs:
            current = with_positions(_sliced(whole.rows, places.get(epoch, [slice(0, 0)])), self._columns)
            yield EpochChanges(epoch, self._compared(current, epoch), current.num_rows)
            self._state = current.select(self._names)

    def _compared(self, current: pa.Table, epoch: int) -> pa.Table:
        put = current.take(self._only_in(current.select(self._names), self._state, self._names))
        gone = self._state.take(self._only_in(self._state, current.select(self._names), self._columns.keys))
        fixed = {EPOCH: pa.array([epoch] * gone.num_rows, pa.int64()), PARTITION: pa.nulls(gone.num_rows, pa.int32())}
        dropped = pa.table({**fixed, **{name: gone[name] for name in gone.column_names}})
        return pa.concat_tables([as_log(put, self._columns, PUT), as_log(dropped, self._columns, DELETE)])

    def _only_in(self, left: pa.Table, right: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
        numbered = left.append_column("_row", pa.array(range(left.num_rows), pa.int64()))
        self._db.register("left_rows", numbered)
        self._db.register("right_rows", right)
        found = self._db.sql(
            f"SELECT _row FROM left_rows ANTI JOIN right_rows ON {same('left_rows', 'right_rows', names)} ORDER BY _row"
        ).to_arrow_table()["_row"]
        self._db.unregister("left_rows")
        self._db.unregister("right_rows")
        return found


def with_positions(rows: pa.Table, columns: Columns) -> pa.Table:
    """Rows of whole states; list elements are numbered per epoch and key, in Spark's order."""
    if POSITION not in columns.keys:
        return rows
    keys = [EPOCH, *columns.spark_keys]
    db = embedded()
    db.register("rows", rows.select(keys).append_column("_row", pa.array(range(rows.num_rows), pa.int64())))
    positions = db.sql(
        f"SELECT row_number() OVER (PARTITION BY {listed(keys)} ORDER BY _row) - 1 AS {quoted(POSITION)}"
        " FROM rows ORDER BY _row"
    ).to_arrow_table()
    return rows.append_column(POSITION, positions[POSITION])


def as_log(rows: pa.Table, columns: Columns, change: str | None = None) -> pa.Table:
    """The rows in the log's columns and order; a delete has a key and no values.

    Without ``change``, each row's own change counts: Spark's ``delete`` is a delete, everything else a put.
    """
    count = rows.num_rows
    if change is None:
        deleted = pc.equal(rows[CHANGE], "delete")
        marks: pa.Array | pa.ChunkedArray = pc.if_else(deleted, DELETE, PUT)
    else:
        marks = pa.array([change] * count, pa.string())
    arrays = {EPOCH: rows[EPOCH], CHANGE: marks, PARTITION: rows[PARTITION]}
    arrays |= {key: rows[key] for key in columns.keys}
    for value in columns.values:
        arrays[value] = pa.nulls(count, rows[value].type) if change == DELETE else rows[value]
    return pa.table(arrays)
