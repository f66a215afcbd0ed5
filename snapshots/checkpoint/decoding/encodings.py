"""From the records of a changelog to the rows of one state table: which records are its own, their keys and values.

Spark's encoders put a few bytes around the rows. A version, which is 0, precedes each row of RocksDB; in front
of each key, the number of the column family if the store has some. HDFS's files have the bare rows. Everything is found
for all records at once, and every size is checked.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamstate.snapshots.checkpoint.decoding.changelog_records import DELETE, MERGE, PADDING, PUT, Records, gathered
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.framing import Positions
from streamstate.snapshots.checkpoint.decoding.state_table_format import KeyEncoding, TableFormat
from streamstate.snapshots.checkpoint.decoding.unsafe_rows import decode_rows

CHANGES = ("update", "delete", "append")
"""The names of a put, a delete and a merge in Spark's change feed."""

Flags = npt.NDArray[np.bool_]
Fields = list[dict[str, Any]]
_SIZE, _TIME = 4, 8
_SIGN = np.uint64(1 << 63)
# Up to so many values, a loop over each is quicker than a step of all at once.
_FEW = 32
# Columns in bytes that sort like their values: a marker for negative, other and null values, then big-endian bytes.
_NEGATIVE, _NULL = 0, 2
_SORTABLE = {
    "byte": ("i1", pa.int8()),
    "short": ("i2", pa.int16()),
    "integer": ("i4", pa.int32()),
    "long": ("i8", pa.int64()),
    "float": ("u4", pa.float32()),
    "double": ("u8", pa.float64()),
}
"""The types that Spark encodes so that their bytes sort; it accepts booleans too, but writes nothing for them."""


@dataclass(frozen=True)
class Changes:
    """The changes of one state table, in the order of their records."""

    record: Positions
    """For each change, the number of its record."""
    kind: npt.NDArray[np.int8]
    """For each change, its place in :data:`CHANGES`."""
    key: pa.StructArray
    value: pa.StructArray
    """Null for deletes."""


@dataclass(frozen=True)
class Slices:
    """Parts of a buffer, each inside what it was cut from."""

    at: Positions
    size: Positions

    def __getitem__(self, which: npt.NDArray[Any]) -> Slices:
        return Slices(self.at[which], self.size[which])

    def without(self, count: int, missing: Flags | None = None) -> Slices:
        """Return the slices without their first bytes."""
        short = self.size < count
        if (short if missing is None else short & ~missing).any():
            raise damaged("a key or a value is too short")
        return Slices(self.at + count, self.size - count)


@dataclass(frozen=True)
class _Rows:
    """A decoder of a store's rows."""

    buffer: npt.NDArray[np.uint8]
    versioned: bool

    def of(self, rows: Slices, fields: Fields, missing: Flags | None = None) -> pa.StructArray:
        """Return the rows in some slices; null where a row is missing."""
        if self.versioned:
            versions = self.buffer[rows.at if missing is None else rows.at[~missing]]
            if versions.any():
                raise UnsupportedChangelogError(f"A row has the encoding {int(versions.max())}, which is not known.")
            rows = rows.without(1, missing)
        limit = len(self.buffer) - PADDING
        return decode_rows(
            self.buffer, limit, rows.at, rows.size, {"type": "struct", "fields": fields}, missing=missing
        )


def damaged(what: str) -> DamagedChangelogError:
    """Return the error for bytes that Spark did not write."""
    return DamagedChangelogError(f"The changelog is damaged: {what}.")


def changes_of(records: Records, table: TableFormat) -> Changes:
    """Return the changes of one state table among the records of a store, without row checksums.

    Raises:
        DamagedChangelogError: a size or a marker is not one that Spark writes.
        UnsupportedChangelogError: the encoding is not known.
    """
    buffer, keys = records.buffer, Slices(records.key_at, records.key_size)
    numbers = np.arange(len(records))
    if table.family is not None:
        numbers, keys = _of_family(buffer, keys, table)
    kinds = np.select([records.kind[numbers] == kind for kind in (PUT, DELETE, MERGE)], [0, 1, 2]).astype(np.int8)
    values = Slices(records.value_at[numbers], records.value_size[numbers])
    if table.several:
        owners, values = _elements(buffer, values, delimited=table.delimited)
        kinds = np.where(np.diff(owners, prepend=-1) == 0, np.int8(CHANGES.index("append")), kinds[owners])
        numbers, keys = numbers[owners], keys[owners]
    rows = _Rows(buffer, table.provider != "HDFS")
    return Changes(numbers, kinds, _keys(rows, keys, table), _values(rows, values, table))


def _of_family(buffer: npt.NDArray[np.uint8], keys: Slices, table: TableFormat) -> tuple[Positions, Slices]:
    """Return the numbers of the records of a column family, and their keys without its number."""
    if table.family_id is None:
        raise UnsupportedChangelogError(f"The number of the column family {table.family} is not known.")
    after = keys.without(2)
    own = np.flatnonzero(gathered(buffer, keys.at, "<i2") == table.family_id)
    return own, after[own]


def _keys(rows: _Rows, keys: Slices, table: TableFormat) -> pa.StructArray:
    fields = table.key["fields"]
    if table.key_encoding is KeyEncoding.ROW:
        return rows.of(keys, fields)
    if table.key_encoding in {KeyEncoding.TIME_FIRST, KeyEncoding.TIME_LAST}:
        return _key_with_time(rows, keys, fields, first=table.key_encoding is KeyEncoding.TIME_FIRST)
    return _key_in_two(rows, keys, table)


def _key_with_time(rows: _Rows, keys: Slices, fields: Fields, *, first: bool) -> pa.StructArray:
    """Return a row and an event time in eight bytes that sort like it: big-endian, with the sign flipped."""
    behind = keys.without(_TIME)
    row = behind if first else Slices(keys.at, behind.size)
    times = gathered(rows.buffer, keys.at if first else keys.at + behind.size, ">u8").astype("u8") ^ _SIGN
    return _struct([*rows.of(row, fields[:-1]).flatten(), pa.array(times.view("i8"))], fields)


def _key_in_two(rows: _Rows, keys: Slices, table: TableFormat) -> pa.StructArray:
    """Return the size of the first row, the first row, and the second, which older Sparks omit if it is empty."""
    fields, rest = table.key["fields"], keys.without(_SIZE)
    sizes = gathered(rows.buffer, keys.at, "<i4").astype(np.int64)
    if ((sizes < 0) | (sizes > rest.size)).any():
        raise damaged("the first part of a key is longer than the key")
    first, second = Slices(rest.at, sizes), Slices(rest.at + sizes, rest.size - sizes)
    prefix = fields[: table.prefix]
    if table.key_encoding is KeyEncoding.RANGE:
        encoded = rows.of(first, [{**field, "type": "binary"} for field in prefix])
        columns = ordering_columns(encoded, prefix)
    else:
        columns = rows.of(first, prefix).flatten()
    if len(columns) < len(fields):
        columns += rows.of(second, fields[table.prefix :]).flatten()
    elif (second.size > 1).any():
        raise damaged("a key has more than its columns")
    return _struct(columns, fields)


def _struct(columns: list[pa.Array], fields: Fields) -> pa.StructArray:
    named = [pa.field(field["name"], column.type) for field, column in zip(fields, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=named)


def _values(rows: _Rows, values: Slices, table: TableFormat) -> pa.StructArray:
    """Return the values, null for deletes."""
    deleted = values.size < 0
    if table.provider == "HDFS":
        # Before 2.3, Spark wrote four bytes too many after some values.
        values = Slices(values.at, values.size // 8 * 8)
    return rows.of(values, table.value["fields"], deleted if deleted.any() else None)


def _elements(buffer: npt.NDArray[np.uint8], values: Slices, *, delimited: bool) -> tuple[Positions, Slices]:
    """Return the rows of values that are sequences, and the number of each row's value; a delete keeps its place."""
    put, gone = np.flatnonzero(values.size >= 0), np.flatnonzero(values.size < 0)
    places, elements = _sequences(buffer, values[put], int(delimited))
    owners = np.concatenate([put[places], gone])
    order = np.argsort(owners, kind="stable")
    at, size = np.concatenate([elements.at, values.at[gone]]), np.concatenate([elements.size, values.size[gone]])
    return owners[order], Slices(at[order], size[order])


def _sequences(buffer: npt.NDArray[np.uint8], values: Slices, delimiter: int) -> tuple[Positions, Slices]:
    """Return the rows of values, each with its size in front, and the number of each row's value."""
    which, at, end = np.arange(len(values.at)), values.at, values.at + values.size
    steps = [(which[:0], at[:0], at[:0])]
    while len(which) > _FEW:
        start = at + _SIZE
        size = np.where(start > end, -1, gathered(buffer, np.minimum(at, end), "<i4")).astype(np.int64)
        if ((size < 0) | (start + size > end)).any():
            raise damaged("an element is longer than its list")
        steps.append((which, start, size))
        more = start + size < end
        which, at, end = which[more], (start + size + delimiter)[more], end[more]
    steps += [_rest(buffer, *value, delimiter) for value in zip(which.tolist(), at.tolist(), end.tolist(), strict=True)]
    owners, starts, sizes = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    order = np.argsort(owners, kind="stable")
    return owners[order], Slices(starts[order], sizes[order])


def _rest(
    buffer: npt.NDArray[np.uint8], which: int, at: int, end: int, delimiter: int
) -> tuple[Positions, Positions, Positions]:
    """Return the rows of one value from a place on."""
    found: list[tuple[int, int]] = []
    read = struct.Struct("<i").unpack_from
    while at < end or not found:
        size = read(buffer.data, at)[0] if at + _SIZE <= end else -1
        if size < 0 or at + _SIZE + size > end:
            raise damaged("an element is longer than its list")
        found.append((at + _SIZE, size))
        at += _SIZE + size + delimiter
    starts, sizes = np.array(found, np.int64).T
    return np.full(len(found), which, np.int64), starts, sizes


def ordering_columns(encoded: pa.StructArray, fields: list[dict[str, Any]]) -> list[pa.Array]:
    """Return the columns whose values are encoded in the binary columns of a struct.

    Raises:
        DamagedChangelogError: a value has another size or marker than Spark writes.
        UnsupportedChangelogError: a column is of another type.
    """
    return [_column(column, field["type"]) for column, field in zip(encoded.flatten(), fields, strict=True)]


def _column(encoded: pa.Array, kind: object) -> pa.Array:
    if not isinstance(kind, str) or kind not in _SORTABLE:
        raise UnsupportedChangelogError(f"A key is ordered by a column of type {kind}.")
    code, arrow = _SORTABLE[kind]
    dtype = np.dtype(code)
    table = _bytes(encoded, dtype.itemsize + 1)
    markers = table[:, 0]
    if (markers > _NULL).any():
        raise DamagedChangelogError(f"The changelog is damaged: a key has the marker {int(markers.max())}.")
    numbers = np.ascontiguousarray(table[:, 1:]).view(dtype.newbyteorder(">")).reshape(-1).astype(dtype)
    if dtype.kind == "u":
        # A float's bits sort like it only if those of negative ones are flipped.
        numbers = np.where(markers == _NEGATIVE, ~numbers, numbers)
    valid = pa.py_buffer(np.packbits(markers != _NULL, bitorder="little"))
    return pa.Array.from_buffers(arrow, len(numbers), [valid, pa.py_buffer(numbers)])


def _bytes(encoded: pa.Array, size: int) -> npt.NDArray[np.uint8]:
    """Return the bytes of values of one size, one row each."""
    if encoded.null_count or any(length != size for length in set(encoded_sizes(encoded))):
        raise DamagedChangelogError("The changelog is damaged: a key's bytes have another size than its type.")
    fixed = encoded.cast(pa.binary(size))
    return np.frombuffer(fixed.buffers()[1], np.uint8, len(fixed) * size, fixed.offset * size).reshape(-1, size)


def encoded_sizes(encoded: pa.Array) -> list[int]:
    """Return the distinct sizes of binary values."""
    import pyarrow.compute as pc

    return [int(size) for size in pc.unique(pc.binary_length(encoded)).to_pylist()]
