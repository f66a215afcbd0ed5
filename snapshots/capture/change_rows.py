"""From the state's rows to rows of the change log: one row per key and epoch in which the key changed.

Two classes follow a state table from one epoch to the next:

- ``FeedFollower`` reads the change feed. It needs nothing of the state, except the lengths of the lists that change.
- ``WholeFollower`` reads the whole state at each epoch, if Spark has no feed, and compares it with the epoch before, so
  that the log still contains only what changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, PARTITION, POSITION, Columns
from streamstate.snapshots.spark.state_reader import StateRows
from streamstate.snapshots.store.changelog import DELETE, PUT
from streamstate.snapshots.store.duckdb_sql import embedded, listed, quoted, same
from streamstate.snapshots.store.list_positions import (
    Flags,
    ListChanges,
    ListLengths,
    Lists,
    grouped,
    list_digests,
    settle,
)

_MOST_CODES = 2**62


@dataclass(frozen=True)
class EpochChanges:
    """The rows that one epoch adds to a change log."""

    epoch: int
    rows: pa.Table
    live: int | None = None
    """The number of rows that live after it, if the whole state was read."""
    is_keyframe: bool = False
    """True if the rows are all live keys, with which the log begins again."""


class FeedFollower:
    """A follower of a state table by its change feed.

    Args:
        columns: the table's columns.
        lists: for a table of lists, their lengths where following starts; by default the table begins empty.
    """

    def __init__(self, columns: Columns, lists: ListLengths | None = None) -> None:
        self._columns = columns
        self.keys = columns.keys
        self._keys = columns.spark_keys
        self._lists = (lists or ListLengths(self._keys)) if POSITION in columns.keys else None

    def changes(self, feed: StateRows, epochs: Sequence[int]) -> Iterator[EpochChanges]:
        """Return the change rows of consecutive epochs, from the feed that covers them."""
        lists = None if self._lists is None else _PassLists(self._lists, feed.rows.select(self._keys))
        places = _places(feed.rows[EPOCH])
        for epoch in epochs:
            where = places.get(epoch, [slice(0, 0)])
            rows = _sliced(feed.rows, where)
            yield EpochChanges(epoch, self._keyed_rows(rows) if lists is None else self._list_rows(rows, lists, where))
        if lists is not None:
            lists.remember()

    def _keyed_rows(self, rows: pa.Table) -> pa.Table:
        """Return the last row of each key in the epoch."""
        last = last_rows(rows.select(self._keys))
        return as_log(rows if last is None else rows.filter(pa.array(last)), self._columns)

    def _list_rows(self, rows: pa.Table, lists: _PassLists, where: Sequence[slice]) -> pa.Table:
        """Return the elements, with the positions that they have at the epoch's end."""
        settled = lists.settled(where, _flags(rows, CHANGE, "append") ^ True, _flags(rows, CHANGE, "delete"))
        kept = rows.take(settled.put).append_column(POSITION, pa.array(settled.put_positions))
        gone = rows.take(settled.gone).append_column(POSITION, pa.array(settled.gone_positions))
        return pa.concat_tables([as_log(kept, self._columns, PUT), as_log(gone, self._columns, DELETE)])


class _PassLists:
    """The lists that occur in the feed of a pass, with their lengths as of the epoch that was settled last."""

    def __init__(self, known: ListLengths, keys: pa.Table) -> None:
        self._known = known
        self._digests, first, self._numbers = grouped(list_digests(keys))
        self._lengths = known.of(keys.take(first), self._digests)

    def settled(self, where: Sequence[slice], restarts: Flags, deletes: Flags) -> ListChanges:
        """Apply one epoch, whose rows are at some places of the feed, to the lists."""
        numbers = np.concatenate([self._numbers[place] for place in where])
        occurring, first, of_row = grouped(numbers)
        settled = settle(Lists(of_row, first, self._lengths[occurring]), restarts, deletes)
        self._lengths[occurring] = settled.lengths
        return settled

    def remember(self) -> None:
        """Keep the lengths for the passes that follow."""
        self._known.put(self._digests, self._lengths)


def _flags(rows: pa.Table, column: str, value: str) -> npt.NDArray[np.bool_]:
    """Per row, whether a column has a value."""
    return np.asarray(pc.equal(rows[column], value).to_numpy(), np.bool_)


def _places(epochs: pa.ChunkedArray) -> dict[int, list[slice]]:
    """Return the places of each epoch's rows: Spark orders them by partition, then by epoch."""
    numbers = epochs.to_numpy()
    edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    places: dict[int, list[slice]] = {}
    for start, end in itertools.pairwise(edges):
        if start < end:
            places.setdefault(int(numbers[start]), []).append(slice(start, end))
    return places


def _sliced(rows: pa.Table, places: Sequence[slice]) -> pa.Table:
    """Return some slices of the rows, without a copy."""
    return pa.concat_tables([rows.slice(place.start, place.stop - place.start) for place in places])


class WholeFollower:
    """A follower of a state table that compares the whole state at each epoch with that at the epoch before.

    Args:
        columns: the table's columns.
        state: the key and value columns of all rows at the epoch where following starts.
    """

    def __init__(self, columns: Columns, state: pa.Table) -> None:
        self._columns = columns
        self.keys = columns.keys
        self._names = columns.names
        self._state = state
        self._db = embedded()

    def changes(self, whole: StateRows, epochs: Sequence[int]) -> Iterator[EpochChanges]:
        """Return the change rows of some epochs, from the whole state at each of them."""
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
    """Return rows of whole states; list elements are numbered per epoch and key, in Spark's order."""
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
    """Return the rows in the log's columns and order; a delete has a key and no values.

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


def last_rows(keys: pa.Table) -> npt.NDArray[np.bool_] | None:
    """For each row of key columns, whether its key does not come again; None if no key does.

    NULL equals NULL, NaN equals NaN, and the two zeros of a floating-point number are equal, as in DuckDB.
    """
    if _are_distinct(keys):
        return None
    database = embedded()
    database.register("keys", keys.append_column("_row", pa.array(np.arange(keys.num_rows))))
    grouped = database.sql(f"SELECT max(_row) AS _row FROM keys GROUP BY {listed(keys.column_names)}")
    last = np.zeros(keys.num_rows, np.bool_)
    last[grouped.fetchnumpy()["_row"]] = True
    return last


def _are_distinct(keys: pa.Table) -> bool:
    """Return whether no two rows are equal; False, too, where only DuckDB can compare them."""
    codes, bound = np.zeros(keys.num_rows, np.int64), 1
    for column in _flat(keys):
        if column is None:
            return False
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        size = max(len(encoded.dictionary), 1)
        if size == keys.num_rows:
            return True
        bound *= size
        if bound > _MOST_CODES:
            return False
        codes = codes * size + encoded.indices.to_numpy()
    codes.sort()
    return not (codes[1:] == codes[:-1]).any()


def _flat(keys: pa.Table) -> Iterator[pa.Array | None]:
    """Return the columns, those of structs too; None for one that Arrow does not compare as DuckDB does."""
    for column in keys.columns:
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        yield from _fields(array)


def _fields(array: pa.Array) -> Iterator[pa.Array | None]:
    if pa.types.is_struct(array.type):
        for field in array.flatten():  # a null struct becomes one of nulls, so that both count as equal
            yield from _fields(field)
    elif pa.types.is_nested(array.type) or pa.types.is_floating(array.type):
        yield None
    else:
        yield array
