"""Columns in bytes that sort like their values: a marker for negative, other and null values, then big-endian bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError

_NEGATIVE, _NULL = 0, 2
_TYPES = {
    "byte": ("i1", pa.int8()),
    "short": ("i2", pa.int16()),
    "integer": ("i4", pa.int32()),
    "long": ("i8", pa.int64()),
    "float": ("u4", pa.float32()),
    "double": ("u8", pa.float64()),
}
"""The types that Spark encodes so; it accepts booleans too, but writes nothing for them."""


def ordering_columns(encoded: pa.StructArray, fields: list[dict[str, Any]]) -> list[pa.Array]:
    """Return the columns whose values are encoded in the binary columns of a struct.

    Raises:
        DamagedChangelogError: a value has another size or marker than Spark writes.
        UnsupportedChangelogError: a column is of another type.
    """
    return [_column(column, field["type"]) for column, field in zip(encoded.flatten(), fields, strict=True)]


def _column(encoded: pa.Array, kind: object) -> pa.Array:
    if not isinstance(kind, str) or kind not in _TYPES:
        raise UnsupportedChangelogError(f"A key is ordered by a column of type {kind}.")
    code, arrow = _TYPES[kind]
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
