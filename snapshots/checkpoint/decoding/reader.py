"""The changes of a state table in some epochs, read from its changelog files: without Spark, and in Spark's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.changelog_records import Records, joined, records_of
from streamstate.snapshots.checkpoint.decoding.compression import decompressed
from streamstate.snapshots.checkpoint.decoding.encodings import CHANGES, Changes, changes_of
from streamstate.snapshots.checkpoint.decoding.failures import ChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.integrity import verified, without_checksums
from streamstate.snapshots.checkpoint.decoding.state_table_format import Part, SparkType, TableFormat
from streamstate.snapshots.checkpoint.decoding.store_history import EpochFile, content, epoch_files
from streamstate.snapshots.checkpoint.state_tables import (
    CHANGE,
    EPOCH,
    PARTITION,
    Columns,
    PartColumn,
    Shape,
    columns_named,
    named_columns,
)

# Files are decoded together up to so many bytes: it takes as long for many small ones as for one.
_TOGETHER = 64 << 20
_VOID = ("void", "null")


def changes(checkpoint: CheckpointFiles, table: TableFormat, first: int, last: int) -> pa.Table:
    """Return the changes of a state table in epochs ``first`` to ``last``, as Spark's change feed does.

    The columns are those of :class:`~streamstate.snapshots.spark.state_reader.StateRows`: ``_epoch``, ``_change``
    (``update``, ``append``, ``delete``), ``_partition``, then the key and value columns. The rows are ordered by
    partition, then by epoch, then as Spark wrote them.

    Raises:
        MissingChangelogError: an epoch is not committed, or a file of it does not exist.
        UnsupportedChangelogError: a file or the table is in a format that is not known, a run began in between, or an
            epoch repartitioned the state.
        DamagedChangelogError: a file is not what Spark wrote.
    """
    if any(first < epoch <= last for epoch in checkpoint.operators_written_at(last)):
        raise UnsupportedChangelogError(f"A run that began in epochs {first} to {last} may have changed the schema.")
    files = epoch_files(checkpoint, table, first, last)
    read = checkpoint.files.each(
        lambda file: (file, file_records(checkpoint, file.path, content(checkpoint, file), table)), files
    )
    return pa.concat_tables([rows_of(group, table) for group in _groups(read)])


def columns_of(table: TableFormat) -> Columns:
    """Return the names of the table's key and value columns, as its keyframes and changes have them."""
    return columns_named(*_named(table), Shape.LIST if table.several else Shape.KEYED)


def file_records(checkpoint: CheckpointFiles, path: str, content: bytes, table: TableFormat) -> Records:
    """Return the records of a file with some content, once its checksum file is compared."""
    verified(checkpoint.files.content, path, content)
    records = records_of(decompressed(content, path), path)
    return without_checksums(records, delimited=table.delimited) if table.row_checksums else records


FileRecords = tuple[EpochFile, Records]


def _groups(read: Iterable[FileRecords]) -> Iterator[list[FileRecords]]:
    """Return files that are decoded together."""
    group: list[FileRecords] = []
    size = 0
    for file, records in read:
        if group and size + len(records.buffer) > _TOGETHER:
            yield group
            group, size = [], 0
        group.append((file, records))
        size += len(records.buffer)
    yield group


def rows_of(group: Sequence[FileRecords], table: TableFormat) -> pa.Table:
    """Return the rows in the records of some files, without row checksums; the columns are those of :func:`changes`."""
    files, records = zip(*group, strict=True)
    found = _changes(records, table)
    ends = np.cumsum([len(part) for part in records])
    of_file = np.searchsorted(ends, found.record, side="right")
    kinds = pa.DictionaryArray.from_arrays(pa.array(found.kind), pa.array(CHANGES)).dictionary_decode()
    columns = {
        EPOCH: pa.array(np.array([file.epoch for file in files], np.int64)[of_file]),
        CHANGE: kinds,
        PARTITION: pa.array(np.array([file.partition for file in files], np.int32)[of_file]),
    }
    keys, values = _named(table)
    parts = {part.name: _part(found, part) for part in table.parts}
    return pa.table(columns | {column.name: _column(column, parts, len(of_file)) for column in (*keys, *values)})


def _changes(records: Sequence[Records], table: TableFormat) -> Changes:
    try:
        return changes_of(joined(records), table)
    except ChangelogError as error:
        if len(records) > 1:
            for part in records:
                _changes([part], table)
        raise type(error)(f"{records[0].path}: {error}") from error


def _named(table: TableFormat) -> tuple[list[PartColumn], list[PartColumn]]:
    return named_columns({part.name: _field_names(table, part) for part in table.parts})


def _field_names(table: TableFormat, part: Part) -> list[str | None] | None:
    """Return the names of a part's fields, None for those of type void; None if the part is not a struct."""
    kind: SparkType = table.key if part.of_key else table.value
    for at in part.path:
        kind = _fields(kind)[at]["type"]
    if not isinstance(kind, dict) or kind["type"] != "struct":
        return None
    return [None if field["type"] in _VOID else field["name"] for field in _fields(kind)]


def _fields(kind: SparkType) -> list[dict[str, Any]]:
    if not isinstance(kind, dict):
        raise UnsupportedChangelogError(f"A state table's key or value is of type {kind}.")
    return list(kind["fields"])


def _part(found: Changes, part: Part) -> pa.Array:
    return reduce(lambda struct, at: struct.field(at), part.path, found.key if part.of_key else found.value)


def _column(column: PartColumn, parts: dict[str, pa.Array], count: int) -> pa.Array:
    if not column.part:
        return pa.array(np.zeros(count, np.int32))
    part = parts[column.part]
    return part if column.field is None else part.field(column.field)
