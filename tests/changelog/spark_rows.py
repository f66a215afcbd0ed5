"""Spark's rows of a frame: their bytes, and the columns that capture would store."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamstate.snapshots.checkpoint.decoding.unsafe_rows import decode_rows
from streamstate.snapshots.spark.state_reader import nullable
from streamstate.snapshots.store.native_types import native

PAD = np.zeros(16, np.uint8)


@dataclass(frozen=True)
class Encoded:
    """Rows in one buffer."""

    buffer: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    struct: dict[str, Any]

    def decoded(self, order: list[int] | None = None) -> pa.StructArray:
        """The rows, all or some in any order."""
        chosen = np.arange(len(self.starts)) if order is None else np.array(order, np.int64)
        limit = len(self.buffer) - len(PAD)
        return decode_rows(self.buffer, limit, self.starts[chosen], self.sizes[chosen], self.struct)


def laid_out(rows: list[bytes], struct: dict[str, Any], gap: int = 0) -> Encoded:
    """Rows in a buffer, each after a gap with bytes that are not theirs."""
    sizes = np.array([len(row) for row in rows], np.int64)
    data = b"".join(b"\xff" * gap + row for row in rows)
    starts = np.cumsum(sizes + gap) - sizes
    return Encoded(np.concatenate([np.frombuffer(data, np.uint8), PAD]), starts, sizes, struct)


def encoded(frame: DataFrame, gap: int = 3) -> Encoded:
    """A frame's rows as Spark holds them in memory and in state stores."""
    rows = frame._jdf.queryExecution().executedPlan().executeCollect()
    return laid_out([bytes(row.getBytes()) for row in rows], json.loads(frame.schema.json()), gap)


def stored(frame: DataFrame) -> pa.Table:
    """A frame as capture stores it."""
    struct = frame.schema
    numbered = frame.toDF(*(f"c{at}" for at in range(len(struct))))
    fields = zip(numbered.columns, struct, strict=True)
    rows = numbered.select(*(native(F.col(name), field.dataType).alias(name) for name, field in fields)).toArrow()
    return rows.cast(pa.schema([nullable(field) for field in rows.schema]))


def cells(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """A column's values; of floats the bits."""
    return [_bits(value) for value in column.to_pylist()]


def _bits(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, dict):
        return [(name, _bits(member)) for name, member in value.items()]
    if isinstance(value, (list, tuple)):
        return [_bits(member) for member in value]
    return value


def assert_decoded(frame: DataFrame) -> Encoded:
    """Check that a frame's bytes are decoded to what capture stores, in types and in every cell."""
    rows, expected = encoded(frame), stored(frame)
    found = rows.decoded()
    found.validate(full=True)
    assert len(found) == expected.num_rows
    for at, name in enumerate(frame.columns):
        column, wanted = found.field(at), expected.column(at)
        assert column.type == wanted.type, f"{name}: {column.type} instead of {wanted.type}"
        assert cells(column) == cells(wanted), name
    return rows
