"""The encoding of rows for their fingerprints, written anew from its description: what the package's is checked by."""

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
    """Of a state: 32 hexadecimal digits."""
    total = 0
    for row in rows:
        total += int.from_bytes(hashlib.sha256(fields(row, types)).digest()[:16], "big")
    return f"{total % 2**128:032x}"


def fields(row: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> bytes:
    """Of a row or a struct: what is missing is left out."""
    there = sorted((name.encode(), name) for name in types if row.get(name) is not None)
    return b"{" + b"".join(text(raw) + value(row[name], types[name]) for raw, name in there) + b"}"


def text(raw: bytes) -> bytes:
    """Of a text, in UTF-8."""
    return b"S%d:%b" % (len(raw), raw)


def value(one: Any, kind: pa.DataType) -> bytes:
    """Of a value."""
    if one is None:
        return b"N"
    if pa.types.is_struct(kind):
        return fields(one, {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)})
    if pa.types.is_list(kind):
        return b"[" + b"".join(value(item, kind.value_type) for item in one) + b"]"
    if pa.types.is_map(kind):
        return b"<" + b"".join(sorted(value(k, kind.key_type) + value(v, kind.item_type) for k, v in one)) + b">"
    return plain(one)


def plain(one: Any) -> bytes:
    """Of a value that holds no other."""
    if isinstance(one, str):
        return text(one.encode())
    return b"B" + one.hex().upper().encode() + b";" if isinstance(one, bytes) else number(one)


def number(one: Any) -> bytes:
    """Of a value that is a number of something."""
    if isinstance(one, bool):
        return b"T" if one else b"F"
    if isinstance(one, int):
        return b"I%d;" % one
    if isinstance(one, float):
        bits = 0x7FF8000000000000 if math.isnan(one) else struct.unpack(">Q", struct.pack(">d", one + 0.0))[0]
        return b"D%X;" % bits
    if isinstance(one, Decimal):
        shown = f"{one:f}"
        shown = shown.rstrip("0").rstrip(".") if "." in shown else shown
        return b"M%b;" % (b"0" if one == 0 else shown.encode())
    if isinstance(one, dt.datetime):
        zone = b"l" if one.tzinfo is None else b"t"
        return b"%b%d;" % (zone, (one.replace(tzinfo=one.tzinfo or dt.UTC) - EPOCH) // dt.timedelta(microseconds=1))
    assert isinstance(one, dt.date)
    return b"d%d;" % (one - EPOCH.date()).days
