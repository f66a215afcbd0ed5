"""Tasks on the executors: each takes rows of the state and writes one data file.

Each function is a task of ``DataFrame.mapInArrow``; it yields what ``reports`` describes. Its memory is bounded: rows
that have to wait are on disk, in spools.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import CaptureError
from streamstate.snapshots.capture.executors import reports
from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, ORDER, PARTITION, POSITION
from streamstate.snapshots.store.changelog import DELETE, KEYFRAME, PUT
from streamstate.snapshots.store.delta.data_files import DataFileWriter
from streamstate.snapshots.store.delta.place import Place
from streamstate.snapshots.store.duckdb_sql import embedded, listed, quoted, same

if TYPE_CHECKING:
    import duckdb

Batches = Iterator[pa.RecordBatch]
Rows = npt.NDArray[np.int64]

_ROW = "_streamstate_row"
# A task has one core and little memory beside the JVM; the rest goes to disk.
_THREADS, _MEMORY = 1, "256MB"


@dataclass(frozen=True)
class TableTask:
    """The table that a task writes to."""

    place: Place
    schema: pa.Schema
    """The table's columns."""
    keys: tuple[str, ...]
    """The key columns, without the position of a list's elements."""
    is_list: bool = False
    after: int = -1
    """Epochs up to this one are in the table already: they are counted but not written."""

    @property
    def compared(self) -> list[str]:
        """The key and value columns that Spark returns."""
        return [name for name in self.schema.names if name not in (EPOCH, CHANGE, PARTITION, POSITION)]


def write_changes(task: TableTask, batches: Batches) -> Batches:
    """Write the change feed of state partitions: the last row of each key and epoch.

    The rows are ordered by epoch and, within an epoch, by the order of the changes. All rows of a key are in one task.
    """

    def written(writer: DataFileWriter) -> Batches:
        with closing(Spools()) as spools:
            for epoch, pieces in _by_epoch(batches):
                spool = spools.new(task.keys)
                for piece in pieces:
                    spool.add(piece)
                yield from _settled(task, writer, epoch, spool)
                spool.drop()

    return reported(task, written)


def write_keyframe(task: TableTask, batches: Batches) -> Batches:
    """Write the whole state at an epoch as a keyframe."""

    def written(writer: DataFileWriter) -> Batches:
        with closing(Spools()) as spools:
            for batch in _positioned(task, spools, batches) if task.is_list else batches:
                writer.write(_marked(batch, KEYFRAME))
                if batch.num_rows:
                    yield reports.epoch_done(batch[EPOCH][0].as_py(), 0, live=batch.num_rows)

    return reported(task, written)


def write_compared(epoch: int, task: TableTask, batches: Batches) -> Batches:
    """Write the differences between the whole states at an epoch and at the one before.

    All rows of a key are in one task.
    """

    def written(writer: DataFileWriter) -> Batches:
        with closing(Spools()) as spools:
            columns = [*task.compared, *([ORDER] if task.is_list else [])]
            now, before = spools.new(columns), spools.new(columns)
            for batch in batches:
                current = pc.equal(batch[EPOCH], epoch)
                now.add(batch.filter(current))
                before.add(batch.filter(pc.invert(current)))
            changes = _write_differences(task, writer, epoch, now, before)
            yield reports.epoch_done(epoch, changes, live=now.rows)

    return reported(task, written)


def reported(task: TableTask, written: Callable[[DataFileWriter], Batches]) -> Batches:
    """Run the work with a file to write to, then report the file."""
    folder = task.place.folder
    if folder is not None and not folder.is_dir():
        yield reports.problem(f"An executor cannot see the store's folder {folder}.")
        return
    with DataFileWriter(task.place, task.schema) as writer:
        yield from written(writer)
    if writer.file is not None:
        yield reports.file_written(writer.file)


def _settled(task: TableTask, writer: DataFileWriter, epoch: int, spool: Spool) -> Batches:
    for batch in spool.read(spool.last_of_each(task.keys)):
        if not batch.num_rows:
            continue
        deleted = pc.equal(batch[CHANGE], "delete")
        if epoch > task.after:
            writer.write(_marked(batch, pc.if_else(deleted, DELETE, PUT)))
        yield reports.epoch_done(epoch, batch.num_rows, live=batch.num_rows - deleted.true_count)


def _write_differences(task: TableTask, writer: DataFileWriter, epoch: int, now: Spool, before: Spool) -> int:
    names, keys = task.compared, [*task.keys]
    if task.is_list:
        for spool in (now, before):
            spool.number(task.keys, ORDER)
        names, keys = [*names, POSITION], [*keys, POSITION]
    changed, gone = now.not_in(before, names), before.not_in(now, keys)
    if epoch <= task.after:
        return len(changed) + len(gone)
    for batch in now.read(changed):
        writer.write(_marked(batch, PUT))
    for batch in before.read(gone):
        # A delete has only its key.
        fixed = {EPOCH: pa.repeat(pa.scalar(epoch, pa.int64()), batch.num_rows)}
        dropped = pa.table({**fixed, CHANGE: pa.repeat(DELETE, batch.num_rows), **{key: batch[key] for key in keys}})
        writer.write(dropped)
    return len(changed) + len(gone)


def _positioned(task: TableTask, spools: Spools, batches: Batches) -> Batches:
    spool = spools.new([*task.keys, ORDER])
    for batch in batches:
        spool.add(batch)
    spool.number(task.keys, ORDER)
    yield from spool.read()


def _marked(batch: pa.RecordBatch, change: str | pa.Array) -> pa.Table:
    marks = pa.repeat(change, batch.num_rows) if isinstance(change, str) else change
    return pa.Table.from_batches([batch]).set_column(batch.schema.get_field_index(CHANGE), CHANGE, [marks])


def _by_epoch(batches: Batches) -> Iterator[tuple[int, Iterable[pa.RecordBatch]]]:
    """Return the rows of each epoch; an error if the epochs do not ascend, which everything here relies on."""
    newest = -1
    for epoch, pieces in itertools.groupby(_pieces(batches), key=lambda piece: piece[0]):
        if epoch <= newest:
            raise CaptureError(f"Spark's change feed returned epoch {epoch} after epoch {newest}.")
        newest = epoch
        yield epoch, (piece for _, piece in pieces)


def _pieces(batches: Batches) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Return the rows, cut into slices of a single epoch each."""
    for batch in batches:
        epochs = batch[EPOCH].to_numpy()
        edges = [0, *(np.flatnonzero(epochs[1:] != epochs[:-1]) + 1).tolist(), len(epochs)]
        for start, end in itertools.pairwise(edges):
            if start < end:
                yield int(epochs[start]), batch.slice(start, end - start)


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
