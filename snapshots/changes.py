"""From what Spark gives to what the change log holds: one row per key and epoch in which it changed.

Two followers of a state table, both standing at an epoch and moving forward:

- ``FeedFollower`` takes the change feed. It knows how many rows each live key holds, which gives list elements
  their positions and the manifest its counts.
- ``WholeFollower`` takes the whole state of each epoch, where Spark offers no feed, and compares it with the
  epoch before, so that the log still holds only what changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.change_log import DELETE, PUT, embedded, listed, quoted, same
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION, POSITION, Columns
from streamstate.snapshots.state_reader import StateRows


@dataclass(frozen=True)
class EpochChanges:
    """What one epoch adds to a change log, and how many rows are live after it."""

    epoch: int
    rows: pa.Table
    live: int


class FeedFollower:
    """Follows a state table by its change feed.

    Args:
        columns: the table's columns.
        state: the table's key columns at the epoch where following starts.
    """

    def __init__(self, columns: Columns, state: pa.Table) -> None:
        self._columns = columns
        self.keys = columns.keys
        self._keys = [key for key in columns.keys if key != POSITION]
        self._is_list = POSITION in columns.keys
        self._db = embedded()
        self._db.register("state", state.select(self._keys))
        # One row per key that was ever live; n is 0 for those that are not now.
        self._db.execute(f"CREATE TABLE live AS SELECT {listed(self._keys)}, count(*) AS n FROM state GROUP BY ALL")
        self._db.unregister("state")
        self._live = state.num_rows

    def changes(self, feed: StateRows, epochs: Sequence[int]) -> Iterator[EpochChanges]:
        """The change rows of some epochs that follow each other, from the feed that covers them."""
        for epoch in epochs:
            rows = feed.rows.filter(pc.equal(feed.rows[EPOCH], epoch))
            numbered = rows.select(self._keys).append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
            self._db.register("feed", numbered.append_column(CHANGE, rows[CHANGE]))
            log = self._list_rows(rows) if self._is_list else self._keyed_rows(rows)
            self._live += self._settle()
            self._db.unregister("feed")
            yield EpochChanges(epoch, log, self._live)

    def _keyed_rows(self, rows: pa.Table) -> pa.Table:
        """The last row of each key in the epoch counts."""
        keys = listed(self._keys)
        self._db.execute(
            f"CREATE OR REPLACE TEMP TABLE settled AS SELECT {keys}, max(_row) AS _row,"
            f" (arg_max({CHANGE}, _row) <> 'delete')::BIGINT AS n FROM feed GROUP BY ALL"
        )
        last = self._db.sql("SELECT _row FROM settled ORDER BY _row").to_arrow_table()["_row"]
        return _as_log(rows.take(last), self._columns)

    def _list_rows(self, rows: pa.Table) -> pa.Table:
        """An update restarts a list, a delete ends it, an append extends it: positions count from there."""
        keys = listed(self._keys)
        self._db.execute(
            "CREATE OR REPLACE TEMP TABLE elements AS WITH marked AS ("
            f" SELECT *, max(_row) FILTER ({CHANGE} <> 'append') OVER (PARTITION BY {keys}) AS _restart FROM feed)"
            f" SELECT marked.*, coalesce(live.n, 0) AS _before, {CHANGE} <> 'delete' AND"
            " (_restart IS NULL OR _row >= _restart) AS _kept"
            f" FROM marked LEFT JOIN live ON {same('marked', 'live', self._keys)}"
        )
        self._db.execute(
            f"CREATE OR REPLACE TEMP TABLE settled AS SELECT {keys}, any_value(_row) AS _row,"
            " any_value(_before) AS _before, count(*) FILTER (_kept)"
            " + CASE WHEN any_value(_restart) IS NULL THEN any_value(_before) ELSE 0 END AS n"
            " FROM elements GROUP BY ALL"
        )
        put = self._db.sql(
            f"SELECT _row, row_number() OVER (PARTITION BY {keys} ORDER BY _row) - 1"
            f" + CASE WHEN _restart IS NULL THEN _before ELSE 0 END AS {POSITION}"
            " FROM elements WHERE _kept ORDER BY _row"
        ).to_arrow_table()
        gone = self._db.sql(
            f"SELECT _row, unnest(range(n, _before)) AS {POSITION} FROM settled WHERE n < _before ORDER BY ALL"
        ).to_arrow_table()
        kept = rows.take(put["_row"]).append_column(POSITION, put[POSITION])
        dropped = rows.take(gone["_row"]).append_column(POSITION, gone[POSITION])
        return pa.concat_tables([_as_log(kept, self._columns, PUT), _as_log(dropped, self._columns, DELETE)])

    def _settle(self) -> int:
        """Bring ``live`` up to date with ``settled``; returns by how many rows the state grew."""
        match = same("settled", "live", self._keys)
        grown = self._db.sql(
            f"SELECT coalesce(sum(settled.n - coalesce(live.n, 0)), 0)::BIGINT FROM settled LEFT JOIN live ON {match}"
        ).fetchall()
        self._db.execute(
            f"INSERT INTO live SELECT {listed(self._keys)}, 0 FROM settled"
            f" WHERE settled.n > 0 AND NOT EXISTS (SELECT 1 FROM live WHERE {match})"
        )
        self._db.execute(f"UPDATE live SET n = settled.n FROM settled WHERE {match}")
        self._forget_dead()
        return int(grown[0][0])

    def _forget_dead(self) -> None:
        """Drop keys that are gone once they outnumber those that live: windows come and go for ever."""
        counted = self._db.sql("SELECT count(*), count(*) FILTER (n > 0) FROM live").fetchall()
        total, alive = counted[0]
        if total > 10_000 and total > 2 * alive:
            self._db.execute("CREATE OR REPLACE TABLE live AS SELECT * FROM live WHERE n > 0")


class WholeFollower:
    """Follows a state table by comparing the whole state of each epoch with that of the one before.

    Args:
        columns: the table's columns.
        state: all rows of the table at the epoch where following starts: key and value columns.
    """

    def __init__(self, columns: Columns, state: pa.Table) -> None:
        self._columns = columns
        self.keys = columns.keys
        self._names = [*columns.keys, *columns.values]
        self._state = state
        self._db: duckdb.DuckDBPyConnection = embedded()

    def changes(self, whole: StateRows, epochs: Sequence[int]) -> Iterator[EpochChanges]:
        """The change rows of some epochs, from the whole state at each of them."""
        for epoch in epochs:
            rows = whole.rows.filter(pc.equal(whole.rows[EPOCH], epoch))
            current = with_positions(rows, self._columns)
            yield EpochChanges(epoch, self._compared(current, epoch), current.num_rows)
            self._state = current.select(self._names)

    def _compared(self, current: pa.Table, epoch: int) -> pa.Table:
        put = current.take(self._only_in(current.select(self._names), self._state, self._names))
        gone = self._state.take(self._only_in(self._state, current.select(self._names), self._columns.keys))
        fixed = {EPOCH: pa.array([epoch] * gone.num_rows, pa.int64()), PARTITION: pa.nulls(gone.num_rows, pa.int32())}
        dropped = pa.table({**fixed, **{name: gone[name] for name in gone.column_names}})
        return pa.concat_tables([_as_log(put, self._columns, PUT), _as_log(dropped, self._columns, DELETE)])

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
    """Rows of whole states, list elements numbered per epoch and key in the order in which Spark gave them."""
    if POSITION not in columns.keys:
        return rows
    keys = [EPOCH, *(key for key in columns.keys if key != POSITION)]
    db = embedded()
    db.register("rows", rows.select(keys).append_column("_row", pa.array(range(rows.num_rows), pa.int64())))
    positions = db.sql(
        f"SELECT row_number() OVER (PARTITION BY {listed(keys)} ORDER BY _row) - 1 AS {quoted(POSITION)}"
        " FROM rows ORDER BY _row"
    ).to_arrow_table()
    return rows.append_column(POSITION, positions[POSITION])


def _as_log(rows: pa.Table, columns: Columns, change: str | None = None) -> pa.Table:
    """The rows with the log's columns in the log's order; a delete keeps the key and no values.

    Without ``change`` each row's own counts: Spark's ``delete`` is one, everything else a put.
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


def keyframe_rows(rows: pa.Table, columns: Columns, mark: str) -> pa.Table:
    """Rows of a whole state as rows of the log that write all live keys again."""
    return _as_log(with_positions(rows, columns), columns, mark)
