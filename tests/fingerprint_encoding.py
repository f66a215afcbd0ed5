"""A second implementation of the encoding of fingerprints, written from its description, as an oracle."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def fingerprint(rows: Iterable[Mapping[str, Any]], types: Mapping[str, pa.DataType]) -> str:
    """The fingerprint of a state: 32 hexadecimal digits."""
    total = 0
    for row in rows:
        total += int.from_bytes(hashlib.sha256(fields(row, types)).digest()[:16], "big")
    return f"{total % 2**128:032x}"


def fields(row: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> bytes:
    """Encode a row or a struct, without its nulls."""
    names = sorted((name.encode(), name) for name in types if row.get(name) is not None)
    return b"{" + b"".join(text(raw) + value(row[name], types[name]) for raw, name in names) + b"}"


def text(raw: bytes) -> bytes:
    """Encode a string, given in UTF-8."""
    return b"S%d:%b" % (len(raw), raw)


def value(item: Any, kind: pa.DataType) -> bytes:
    """Encode a value of any type."""
    if item is None:
        return b"N"
    if pa.types.is_struct(kind):
        return fields(item, {field.name: field.type for field in kind.fields})
    if pa.types.is_list(kind):
        return b"[" + b"".join(value(element, kind.value_type) for element in item) + b"]"
    if pa.types.is_map(kind):
        return b"<" + b"".join(sorted(value(k, kind.key_type) + value(v, kind.item_type) for k, v in item)) + b">"
    return plain(item)


def plain(item: Any) -> bytes:
    """Encode a value that is not nested."""
    if isinstance(item, str):
        return text(item.encode())
    return b"B" + item.hex().upper().encode() + b";" if isinstance(item, bytes) else number(item)


def number(item: Any) -> bytes:
    """Encode a boolean, a number, a date or a timestamp."""
    if isinstance(item, bool):
        return b"T" if item else b"F"
    if isinstance(item, int):
        return b"I%d;" % item
    if isinstance(item, float):
        bits = 0x7FF8000000000000 if math.isnan(item) else struct.unpack(">Q", struct.pack(">d", item + 0.0))[0]
        return b"D%X;" % bits
    if isinstance(item, Decimal):
        digits = f"{item:f}"
        digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
        return b"M%b;" % (b"0" if item == 0 else digits.encode())
    if isinstance(item, dt.datetime):
        zone = b"l" if item.tzinfo is None else b"t"
        return b"%b%d;" % (zone, (item.replace(tzinfo=item.tzinfo or dt.UTC) - EPOCH) // dt.timedelta(microseconds=1))
    assert isinstance(item, dt.date)
    return b"d%d;" % (item - EPOCH.date()).days
