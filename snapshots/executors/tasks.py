"""What runs on the executors: rows of the state in, one data file a task out.

Each function is a task of ``DataFrame.mapInArrow``; it yields what ``reports`` describes. Its memory is bounded: rows
that have to wait do so on disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.change_log import DELETE, KEYFRAME, PUT
from streamstate.snapshots.delta.data_files import DataFileWriter
from streamstate.snapshots.delta.place import Place
from streamstate.snapshots.digests import KeyDigests
from streamstate.snapshots.errors import CaptureError
from streamstate.snapshots.executors import reports
from streamstate.snapshots.executors.spool import Spool, Spools
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION, POSITION

ORDER = "_streamstate_order"
"""The column that keeps Spark's order of the elements of a list where rows are shuffled."""

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class TableTask:
    """What a task has to know of its table."""

    place: Place
    schema: pa.Schema
    """The table's columns."""
    keys: tuple[str, ...]
    """The key columns, without the position of a list's elements."""
    is_list: bool = False
    after: int = -1
    """Epochs up to this one are in the table: they are counted and not written."""

    @property
    def compared(self) -> list[str]:
        """The key and value columns that Spark gives."""
        return [name for name in self.schema.names if name not in (EPOCH, CHANGE, PARTITION, POSITION)]

    def unreachable(self) -> str | None:
        """Why files cannot be written from here; None where they can."""
        folder = self.place.folder
        if folder is None or folder.is_dir():
            return None
        return f"An executor does not see the store's folder {folder}."


def write_changes(task: TableTask, batches: Batches) -> Batches:
    """The change feed of state partitions: the last row of each key and epoch goes into the log.

    Rows come by ascending epoch and, within an epoch, in the order in which they happened; all rows of a key come to
    one task.
    """

    def written(writer: DataFileWriter) -> Batches:
        digests = KeyDigests(task.keys)
        with Spools() as spools:
            for epoch, pieces in _by_epoch(batches):
                spool = spools.new(task.keys)
                for piece in pieces:
                    spool.add(piece)
                yield from _settled(task, writer, epoch, spool, digests)
                spool.drop()

    return _reported(task, written)


def write_keyframe(task: TableTask, batches: Batches) -> Batches:
    """The whole state at one epoch: all of it goes into the log as a keyframe."""

    def written(writer: DataFileWriter) -> Batches:
        with Spools() as spools:
            for batch in _positioned(task, spools, batches) if task.is_list else batches:
                writer.write(_marked(batch, KEYFRAME))
                if batch.num_rows:
                    yield reports.epoch_done(batch[EPOCH][0].as_py(), 0, live=batch.num_rows)

    return _reported(task, written)


def write_compared(epoch: int, task: TableTask, batches: Batches) -> Batches:
    """The whole states at an epoch and at the one before: what differs goes into the log.

    All rows of a key come to one task.
    """

    def written(writer: DataFileWriter) -> Batches:
        with Spools() as spools:
            columns = [*task.compared, *([ORDER] if task.is_list else [])]
            now, before = spools.new(columns), spools.new(columns)
            for batch in batches:
                current = pc.equal(batch[EPOCH], epoch)
                now.add(batch.filter(current))
                before.add(batch.filter(pc.invert(current)))
            changes = _write_differences(task, writer, epoch, now, before)
            yield reports.epoch_done(epoch, changes, live=now.rows)

    return _reported(task, written)


def _reported(task: TableTask, written: Callable[[DataFileWriter], Batches]) -> Batches:
    """Do the work with a file to write to, and report the file."""
    why = task.unreachable()
    if why is not None:
        yield reports.problem(why)
        return
    with DataFileWriter(task.place, task.schema) as writer:
        yield from written(writer)
    if writer.file is not None:
        yield reports.file_written(writer.file)


def _settled(task: TableTask, writer: DataFileWriter, epoch: int, spool: Spool, digests: KeyDigests) -> Batches:
    for batch in spool.read(spool.last_of_each(task.keys)):
        if not batch.num_rows:
            continue
        deleted = pc.equal(batch[CHANGE], "delete")
        if epoch > task.after:
            writer.write(_marked(batch, pc.if_else(deleted, DELETE, PUT)))
        found = digests.of(pa.Table.from_batches([batch])) if task.keys else np.zeros(batch.num_rows, np.uint64)
        gone = deleted.to_numpy(zero_copy_only=False)
        yield reports.epoch_done(epoch, batch.num_rows, puts=found[~gone], deletes=found[gone])


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
        # A delete keeps its key; which partition the row was in says nothing any more.
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
    """The rows of each epoch.

    Raises:
        CaptureError: where epochs do not ascend, on which everything here rests.
    """
    newest = -1
    for epoch, pieces in itertools.groupby(_pieces(batches), key=lambda piece: piece[0]):
        if epoch <= newest:
            raise CaptureError(f"Spark's change feed gave epoch {epoch} after epoch {newest}.")
        newest = epoch
        yield epoch, (piece for _, piece in pieces)


def _pieces(batches: Batches) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows in stretches of one epoch."""
    for batch in batches:
        epochs = batch[EPOCH].to_numpy()
        edges = [0, *(np.flatnonzero(epochs[1:] != epochs[:-1]) + 1).tolist(), len(epochs)]
        for start, end in itertools.pairwise(edges):
            if start < end:
                yield int(epochs[start]), batch.slice(start, end - start)
