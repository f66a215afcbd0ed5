"""Spark's UnsafeRow bytes as Arrow columns.

The layout is that of Spark's classes ``UnsafeRow``, ``UnsafeArrayData`` and ``UnsafeMapData``, little-endian:

- a row: a bit for each null, in words of eight bytes; a word for each field; the bytes of the fields that need more;
- an array: the number of elements in eight bytes; the nulls as in a row; the elements, each as wide as its type; then
  the bytes of the elements that need more;
- a map: the size of the array of keys in eight bytes, the array of keys, the array of values.

The word of a value that needs more has the value's offset from the start of the row or array around it in its upper
half, and the size in its lower half. Each value is checked to lie within what is around it, behind the words, and a
column's values must not take more bytes than there are: bytes that are not Spark's can neither lead outside nor make
more of themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamstate.snapshots.checkpoint.decoding.arrow_types import list_type, stored_as, struct_type
from streamstate.snapshots.checkpoint.decoding.failures import UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.state_table_format import SparkType
from streamstate.snapshots.checkpoint.decoding.unsafe_values import (
    Bytes,
    Mask,
    Positions,
    fixed_values,
    fixed_width,
    gathered,
    require,
    sized_values,
    validity,
)

_WORD = 8
_LARGEST = 2**31 - 1  # Arrow's offsets of strings and lists have 32 bits


@dataclass(frozen=True)
class _Places:
    """The places of some rows, arrays or maps in the buffer; nulls are at its start and have no bytes."""

    buffer: Bytes
    starts: Positions
    sizes: Positions
    null: Mask
    room: int
    """The number of bytes of all of them together."""

    def of_each(self, counts: Positions, null: Mask) -> _Places:
        """Return the places around each of their elements."""
        return _Places(self.buffer, np.repeat(self.starts, counts), np.repeat(self.sizes, counts), null, self.room)

    def without_nulls(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers, 0 where a place is null."""
        return numbers if self.null is None else np.where(self.null, 0, numbers)

    def require(self, holds: NDArray[np.bool_], what: str) -> None:
        """Check what holds for every place that is not null."""
        require((holds if self.null is None else holds | self.null).all(), what)


def decode_rows(
    buffer: Bytes,
    limit: int,
    starts: Positions,
    sizes: Positions,
    struct: dict[str, Any],
    *,
    missing: Mask = None,
) -> pa.StructArray:
    """Return rows of one schema as an array of structs.

    Args:
        buffer: The bytes, and at least 16 zero bytes behind them.
        limit: How many bytes there are, without those zeros.
        starts: The position of each row's first byte, in any order.
        sizes: The bytes of each row.
        struct: The rows' type as Spark writes it in JSON. Names may be doubled; fields are taken by their position.
        missing: True for rows that are not there, such as the value of a deleted key; they become null.

    Returns:
        The rows, in the types of :func:`~streamstate.snapshots.checkpoint.decoding.arrow_types.arrow_type`. Where a
        struct is null, its fields are null too, so that they can be used alone.

    Raises:
        DamagedChangelogError: the bytes are not rows of this type.
        UnsupportedChangelogError: the type is not supported, or there are more than 2 GiB.

    Example:
        >>> row = np.array([0, 7], "<i8").view(np.uint8)  # no nulls; one long
        >>> buffer = np.concatenate([row, np.zeros(16, np.uint8)])
        >>> fields = {"type": "struct", "fields": [{"name": "n", "type": "long"}]}
        >>> decode_rows(buffer, 16, np.array([0]), np.array([16]), fields).to_pylist()
        [{'n': 7}]
    """
    null = missing if missing is not None and missing.any() else None
    places = _Places(buffer, starts, sizes, null, 0)
    starts, sizes = places.without_nulls(starts), places.without_nulls(sizes)
    inside = (starts >= 0) & (starts <= limit) & (sizes >= 0) & (sizes <= limit - starts)
    require(inside.all(), "a row is not within the file")
    room = int(sizes.sum())
    if max(limit, room) > _LARGEST:
        raise UnsupportedChangelogError(f"The changelog has {limit:,} bytes; the reader decodes up to {_LARGEST:,}.")
    return _rows(_Places(buffer, starts, sizes, null, room), struct["fields"])


def _rows(places: _Places, fields: list[dict[str, Any]]) -> pa.StructArray:
    words, first = _words(places, len(fields))
    columns = []
    any_null = words[:, :first].any()
    for at, field in enumerate(fields):
        null = places.null
        if any_null:
            own = words[:, at // 64] >> (at % 64) & 1 != 0
            null = _mask(own if null is None else own | null)
        around = _Places(places.buffer, places.starts, places.sizes, null, places.room)
        columns.append(_column(words[:, first + at], around, _WORD * words.shape[1], field["type"]))
    kind = struct_type(fields, [column.type for column in columns])
    return pa.Array.from_buffers(kind, len(places.starts), [validity(places.null)], children=columns)


def _words(places: _Places, fields: int) -> tuple[NDArray[np.int64], int]:
    """Return a line of words for each row, and how many of them are for the nulls."""
    first = (fields + 63) // 64
    size = _WORD * (first + fields)
    places.require(places.sizes >= size, "a row is shorter than its fields")
    if not size or not places.room:
        return np.zeros((len(places.starts), first + fields), np.int64), first
    return gathered(places.buffer, places.starts, size).view("<i8").reshape(-1, first + fields), first


def _column(words: NDArray[Any], around: _Places, header: int | Positions, kind: SparkType) -> pa.Array:
    """Return values of one type, from their words and the rows or arrays around them, which have the values' nulls."""
    if isinstance(kind, str) and (fixed_width(kind) is not None or stored_as(kind) == "void"):
        return fixed_values(words, around.null, kind)
    places = _values(words, around, header)
    match kind:
        case str():
            return sized_values(places.buffer, places.starts, places.sizes, places.null, kind)
        case {"type": "struct", "fields": fields}:
            return _rows(places, fields)
        case {"type": "array", "elementType": element}:
            return _lists(places, element)
    return _maps(places, kind["keyType"], kind["valueType"])


def _values(words: NDArray[Any], around: _Places, header: int | Positions) -> _Places:
    """Return the places of values that need more than a word; ``header`` bytes are in front of the first."""
    offsets, sizes = words >> 32, around.without_nulls(words & 0xFFFFFFFF)
    inside = (offsets >= header) & (sizes <= around.sizes - offsets)
    around.require(inside, "a value is not within its row")
    starts, room = around.without_nulls(around.starts + offsets), int(sizes.sum())
    require(room <= around.room, "values overlap")
    return _Places(around.buffer, starts, sizes, around.null, room)


def _lists(places: _Places, element: SparkType) -> pa.Array:
    offsets, elements = _elements(places, element)
    buffers = [validity(places.null), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(list_type(elements.type), len(places.starts), buffers, children=[elements])


def _maps(places: _Places, key: SparkType, value: SparkType) -> pa.Array:
    sizes = _counts(places)
    places.require(sizes <= places.sizes - _WORD, "a map's keys are not within it")
    start = places.without_nulls(places.starts + _WORD)
    rest = places.without_nulls(places.sizes - _WORD - sizes)
    offsets, keys = _elements(_Places(places.buffer, start, sizes, places.null, places.room), key)
    others, values = _elements(_Places(places.buffer, start + sizes, rest, places.null, places.room), value)
    require(np.array_equal(offsets, others), "a map has not as many values as keys")
    require(not keys.null_count, "a key of a map is null")
    entries = pa.StructArray.from_arrays(
        [keys, values], fields=[pa.field("key", keys.type, nullable=False), pa.field("value", values.type)]
    )
    buffers = [validity(places.null), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.map_(keys.type, values.type), len(start), buffers, children=[entries])


def _elements(places: _Places, kind: SparkType) -> tuple[NDArray[np.int32], pa.Array]:
    """Return the elements of all arrays in one, and where each array's begin."""
    own = fixed_width(kind) if isinstance(kind, str) else None
    width = own if own is not None else np.dtype("<i8")
    counts = _counts(places)
    places.require(counts <= places.sizes, "an array has more elements than bytes")
    nulls = _WORD + (counts + 63) // 64 * _WORD
    headers = nulls + counts * width.itemsize
    places.require(headers <= places.sizes, "an array has more elements than bytes")
    offsets = np.concatenate(([0], np.cumsum(counts)))
    at = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    start = np.repeat(places.starts, counts)
    bits = places.buffer[start + _WORD + at // 8] >> (at % 8).astype(np.uint8) & 1
    around = places.of_each(counts, _mask(bits != 0))
    positions = start + np.repeat(nulls, counts) + at * width.itemsize
    words = gathered(places.buffer, positions, width.itemsize).view(width)
    return offsets.astype(np.int32), _column(words, around, np.repeat(headers, counts), kind)


def _counts(places: _Places) -> Positions:
    """Return the number at the start of each array or map."""
    places.require(places.sizes >= _WORD, "an array or map has no size")
    counts = places.without_nulls(gathered(places.buffer, places.starts, _WORD).view("<i8"))
    require((counts >= 0).all(), "an array or map has a negative size")
    return counts


def _mask(null: NDArray[np.bool_]) -> Mask:
    return null if null.any() else None
