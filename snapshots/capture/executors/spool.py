"""Rows kept on an executor's disk until the task knows which of them count."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamstate.snapshots.checkpoint.operators import POSITION
from streamstate.snapshots.store.duckdb_sql import embedded, listed, quoted, same

if TYPE_CHECKING:
    import duckdb

Rows = npt.NDArray[np.int64]

_ROW = "_streamstate_row"
# A task has one core and little memory beside the JVM; the rest goes to disk.
_THREADS, _MEMORY = 1, "256MB"


class Spools:
    """The spools of one task, and the database in which their rows are compared."""

    def __init__(self) -> None:
        # Spark removes its local folders even if it kills the task.
        local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        self._folder = tempfile.TemporaryDirectory(prefix="streamstate-task-", dir=local or None)
        self._db = embedded(temp_directory=self._folder.name, memory_limit=_MEMORY, threads=_THREADS)
        self._made = 0

    def close(self) -> None:
        """Delete the rows."""
        self._db.close()
        self._folder.cleanup()

    def new(self, columns: Sequence[str]) -> Spool:
        """Return an empty spool, whose rows are compared by some columns."""
        self._made += 1
        return Spool(self._db, f"spool{self._made}", Path(self._folder.name), columns)


class Spool:
    """Rows on disk, numbered from 0: whole rows in a file, and the columns to compare also in the database."""

    def __init__(self, database: duckdb.DuckDBPyConnection, name: str, folder: Path, columns: Sequence[str]) -> None:
        self.rows = 0
        """The number of rows."""
        self._db = database
        self._name = name
        self._path = folder / name
        self._columns = [*columns]
        self._file: Any = None
        self._positioned = False

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if not batch.num_rows:
            return
        numbers = pa.array(np.arange(self.rows, self.rows + batch.num_rows))
        piece = pa.table({**{name: batch[name] for name in self._columns}, _ROW: numbers})
        self._db.register("piece", piece)
        if self._file is None:
            self._file = pa.ipc.new_stream(str(self._path), batch.schema)
            self._db.execute(f"CREATE TABLE {self._name} AS FROM piece")
        else:
            self._db.execute(f"INSERT INTO {self._name} FROM piece")
        self._db.unregister("piece")
        self._file.write_batch(batch)
        self.rows += batch.num_rows

    def last_of_each(self, keys: Sequence[str]) -> Rows:
        """Return the numbers of the last row of each key, ascending."""
        if not self.rows:
            return np.empty(0, np.int64)
        group = f"GROUP BY {listed(keys)}" if keys else ""
        return np.sort(self._numbers(f"SELECT max({_ROW}) AS r FROM {self._name} {group}"))

    def number(self, keys: Sequence[str], order: str) -> None:
        """Number the elements of each key, in ascending order of a column."""
        self._positioned = True
        if self.rows:
            self._db.execute(
                f"CREATE OR REPLACE TABLE {self._name} AS SELECT *, row_number() OVER (PARTITION BY {listed(keys)}"
                f" ORDER BY {quoted(order)}) - 1 AS {quoted(POSITION)} FROM {self._name}"
            )

    def not_in(self, spool: Spool, names: Sequence[str]) -> Rows:
        """Return the numbers of the rows that match no row of another spool in some columns, ascending."""
        if not self.rows or not spool.rows:
            return np.arange(self.rows)
        agree = same(self._name, spool._name, names) if names else "true"
        found = self._numbers(f"SELECT {_ROW} AS r FROM {self._name} ANTI JOIN {spool._name} ON {agree}")
        return np.sort(found)

    def read(self, numbers: Rows | None = None) -> Iterator[pa.RecordBatch]:
        """Return the rows with some ascending numbers (None: all), in batches; list elements have their positions."""
        if self._file is None:
            return
        self._file.close()
        positions = self._positions() if self._positioned else None
        start = 0
        with pa.memory_map(str(self._path)) as file, pa.ipc.open_stream(file) as batches:
            for batch in batches:
                end = start + batch.num_rows
                whole = batch if positions is None else batch.append_column(POSITION, pa.array(positions[start:end]))
                yield whole if numbers is None else whole.take(pa.array(_within(numbers, start, end)))
                start = end

    def drop(self) -> None:
        """Delete the rows."""
        self._db.execute(f"DROP TABLE IF EXISTS {self._name}")
        self._path.unlink(missing_ok=True)

    def _positions(self) -> Rows:
        return self._numbers(f"SELECT {quoted(POSITION)} AS r FROM {self._name} ORDER BY {_ROW}")

    def _numbers(self, sql: str) -> Rows:
        return np.asarray(self._db.sql(sql).fetchnumpy()["r"], np.int64)


def _within(numbers: Rows, start: int, end: int) -> Rows:
    first, last = np.searchsorted(numbers, [start, end])
    return numbers[first:last] - start
