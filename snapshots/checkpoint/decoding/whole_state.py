"""The whole state of a table at an epoch, from Spark's snapshots and the changelogs after them: without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.changelog_records import DELETE, MERGE, PUT, Records, gathered, joined
from streamstate.snapshots.checkpoint.decoding.failures import MissingChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.integrity import without_checksums
from streamstate.snapshots.checkpoint.decoding.reader import file_records, rows_of
from streamstate.snapshots.checkpoint.decoding.rocksdb_sst import snapshot_records
from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.decoding.store_history import EpochFile, StateFiles, StoreHistory
from streamstate.snapshots.checkpoint.decoding.unsafe_values import sized_values

_LARGEST = 2**31 - 1  # Arrow's offsets have 32 bits
_SLICE = 100_000  # records that are decoded at once


def whole_state(checkpoint: CheckpointFiles, table: TableFormat, epochs: Sequence[int]) -> pa.Table:
    """Return the whole state of a table at each of some epochs.

    The columns are those of :class:`~streamstate.snapshots.spark.state_reader.StateRows`; ``_change`` is ``append`` for
    the elements of lists, otherwise ``update``. The rows are ordered by epoch, then by partition; the elements of a
    list are in their order.

    One partition is read after the other, and a snapshot piece by piece: besides the rows that are returned, memory
    holds the changes of one partition since its snapshot.

    Raises:
        MissingChangelogError: an epoch is not committed, or Spark has purged a file that its state needs.
        UnsupportedChangelogError: a file or the table is in a format that is not known, or ``rocksdict`` is missing.
        DamagedChangelogError: a file is not what Spark wrote.
    """
    history = StoreHistory(checkpoint, table)
    partitions = {epoch: len(history.committed_names(table, epoch)) for epoch in epochs}
    rows: dict[int, list[pa.Table]] = {epoch: [] for epoch in epochs}
    for partition in range(max(partitions.values())):
        read: Callable[[str], Records] = partial(_read, checkpoint, table)
        if len(epochs) > 1:
            read = cache(read)  # a changelog belongs to the states of several epochs
        for epoch in epochs:
            if partition < partitions[epoch]:
                files = history.state(epoch, partition, read)
                state = _state(files, _snapshot(checkpoint, files.snapshot, table), several=table.several)
                rows[epoch] += (_decoded(part, table, epoch, partition) for part in _slices(state))
    return pa.concat_tables([piece for pieces in rows.values() for piece in pieces])


def _slices(state: Iterable[Records]) -> Iterator[Records]:
    """Return records in parts that take little memory to decode; at least one part of each."""
    for records in state:
        for start in range(0, len(records) or 1, _SLICE):
            yield records[slice(start, start + _SLICE)]


def _decoded(records: Records, table: TableFormat, epoch: int, partition: int) -> pa.Table:
    """Return the rows in the records of a state, as if the epoch had put them."""
    kinds = np.full(len(records), MERGE if table.several else PUT, np.uint8)
    return rows_of([(EpochFile(epoch, partition, records.path), replace(records, kind=kinds))], table)


def _read(checkpoint: CheckpointFiles, table: TableFormat, path: str) -> Records:
    """Return the records of a file, of the table alone."""
    return _own(file_records(checkpoint, path, _content(checkpoint, path), table), table)


def _content(checkpoint: CheckpointFiles, path: str) -> bytes:
    found = checkpoint.files.content(path)
    if found is None:
        raise MissingChangelogError(f"{path} does not exist: Spark has purged it.")
    return found


def _snapshot(checkpoint: CheckpointFiles, path: str | None, table: TableFormat) -> Iterator[Records]:
    """Return the records of the table in a snapshot, in which each key is once."""
    if path is None:
        return
    if table.provider == "HDFS":
        yield _read(checkpoint, table, path)
        return
    for piece in snapshot_records(checkpoint, path, table):
        own = _own(piece, table)
        yield without_checksums(own, delimited=table.delimited) if table.row_checksums else own


def _state(files: StateFiles, snapshot: Iterator[Records], *, several: bool) -> Iterator[Records]:
    """Return the records that hold the state, each key's last: of a snapshot, and of the changelogs after it."""
    if not files.changelogs:
        yield from snapshot
        return
    later = joined(files.changelogs)
    changed = _keys(later) if files.snapshot else None
    parts = []
    for piece in snapshot:
        again = pc.is_in(_keys(piece), value_set=changed).to_numpy(zero_copy_only=False)
        yield piece[~again]
        parts.append(_compact(piece[again]))
    yield _last(joined([*parts, later]), several=several)


def _own(records: Records, table: TableFormat) -> Records:
    """Return the records of the table's column family."""
    if table.family_id is None:
        return records
    own = (records.key_size >= 2) & (gathered(records.buffer, records.key_at, "<i2") == table.family_id)
    return records[own]


def _keys(records: Records) -> pa.Array:
    if len(records.buffer) > _LARGEST:
        raise UnsupportedChangelogError(f"{records.path} has more than {_LARGEST:,} bytes.")
    return sized_values(records.buffer, records.key_at, records.key_size, None, "binary")


def _compact(records: Records) -> Records:
    """Return records with a buffer of their own, so that those beside them need not stay in memory."""
    keys = _keys(records)
    values = sized_values(records.buffer, records.value_at, records.value_size, None, "binary")
    key_bytes, value_bytes = (np.frombuffer(b"".join(part.to_pylist()), np.uint8) for part in (keys, values))
    value_ends = len(key_bytes) + np.cumsum(records.value_size)
    return replace(
        records,
        key_at=np.cumsum(records.key_size) - records.key_size,
        value_at=value_ends - records.value_size,
        buffer=np.concatenate([key_bytes, value_bytes]),
    )


def _last(records: Records, *, several: bool) -> Records:
    """Return the records that remain if applied in order: a put replaces, a delete removes, a merge adds to a list."""
    merges = records.kind == MERGE
    if merges.any() and not several:
        raise UnsupportedChangelogError(f"{records.path} merges values of a table whose values are single rows.")
    numbers = np.arange(len(records))
    codes = _keys(records).dictionary_encode().indices.to_numpy()
    begin = np.full(len(records), -1)
    np.maximum.at(begin, codes[~merges], numbers[~merges])
    left = np.flatnonzero((numbers >= begin[codes]) & (records.kind != DELETE))
    return records[left[np.argsort(codes[left], kind="stable")]]
