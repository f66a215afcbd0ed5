"""How many bytes values take, estimated from the values themselves: before any encoding or compression."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from streamstate.snapshots.change_log import quoted


def bytes_of(column: pa.Field) -> str:
    """SQL for the bytes of a column's value in a row, 0 where it is missing.

    What has a fixed width takes that (8 for a long); text its UTF-8; a binary its bytes; what is nested about as much
    as it takes written as text.
    """
    name, kind = quoted(column.name), column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"coalesce(strlen({name}), 0)"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"coalesce(octet_length({name}), 0)"
    if pa.types.is_nested(kind):
        return f"coalesce(strlen({name}::VARCHAR), 0)"
    return f"CASE WHEN {name} IS NULL THEN 0 ELSE {max(kind.bit_width // 8, 1)} END"


def bytes_of_row(columns: Iterable[pa.Field]) -> str:
    """SQL for the bytes of a row's values."""
    return " + ".join(bytes_of(one) for one in columns) or "0"
