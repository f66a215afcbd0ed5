"""Tasks on the executors: each takes rows of the state and writes one data file.

Each function is a task of ``DataFrame.mapInArrow``; it yields what ``reports`` describes. Its memory is bounded: rows
that have to wait are on disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import CaptureError
from streamstate.snapshots.capture.executors import reports
from streamstate.snapshots.capture.executors.spool import Spool, Spools
from streamstate.snapshots.checkpoint.operators import CHANGE, EPOCH, ORDER, PARTITION, POSITION
from streamstate.snapshots.store.changelog import DELETE, KEYFRAME, PUT
from streamstate.snapshots.store.delta.data_files import DataFileWriter
from streamstate.snapshots.store.delta.place import Place

Batches = Iterator[pa.RecordBatch]


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
