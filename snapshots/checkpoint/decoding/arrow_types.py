"""The Arrow types in which the store keeps Spark's types, from a schema's JSON alone.

They are the types that ``native_types`` makes of Spark's columns; its table lists them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pyarrow as pa

from streamstate.snapshots.checkpoint.decoding.failures import UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.state_table_format import SparkType
from streamstate.snapshots.store.names import distinct

_TYPES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
    "interval": pa.string(),
    "time": pa.string(),
    "void": pa.bool_(),
}
# Types that are another one under a second name, or that have its bytes and are stored as it.
_SAME = (
    (re.compile(r"string collate .+|(?:var)?char\(\d+\)"), "string"),
    (re.compile(r"interval (?:day|hour|minute|second)(?: to \w+)?"), "long"),
    (re.compile(r"interval (?:year|month)(?: to \w+)?"), "integer"),
    (re.compile(r"time\(\d\)"), "time"),
    (re.compile(r"timestamp_ltz"), "timestamp"),
    (re.compile(r"null"), "void"),
    (re.compile(r"decimal"), "decimal(10,0)"),
)
_DECIMAL = re.compile(r"decimal\((\d+), ?(-?\d+)\)")
_DIGITS = 38


def arrow_type(kind: SparkType) -> pa.DataType:
    """Return the type of the column that a Spark type is decoded into.

    Args:
        kind: A type as Spark's schemas have it in JSON, such as ``"long"`` or ``{"type": "array", …}``.

    Returns:
        The Arrow type, nullable throughout. A void becomes a boolean that is always null.

    Raises:
        UnsupportedChangelogError: the type, or one nested in it, is not decoded: variants and user-defined types.

    Example:
        >>> str(arrow_type({"type": "array", "elementType": "interval day to second", "containsNull": True}))
        'list<element: int64>'
    """
    match kind:
        case str():
            return _leaf_type(kind)
        case {"type": "struct", "fields": [*fields]}:
            return struct_type(fields, [arrow_type(field["type"]) for field in fields])
        case {"type": "array", "elementType": element}:
            return list_type(arrow_type(element))
        case {"type": "map", "keyType": key, "valueType": value}:
            return pa.map_(arrow_type(key), arrow_type(value))
    raise UnsupportedChangelogError(f"The changelog reader does not decode the type {_named(kind)}.")


def check_supported(struct: dict[str, Any]) -> None:
    """Check that every field of a key or a value can be decoded.

    Raises:
        UnsupportedChangelogError: one cannot; the text names it and its type.
    """
    for field in struct["fields"]:
        try:
            arrow_type(field["type"])
        except UnsupportedChangelogError as error:
            raise UnsupportedChangelogError(f"Column {field['name']!r}: {error}") from None


def struct_type(fields: list[dict[str, Any]], types: list[pa.DataType]) -> pa.StructType:
    """Return a struct of some types; fields with the same name as an earlier one get a suffix."""
    names = distinct(field["name"] for field in fields)
    return pa.struct([pa.field(name, kind) for name, kind in zip(names, types, strict=True)])


def list_type(element: pa.DataType) -> pa.ListType:
    """Return a list with the name that Spark gives its elements."""
    return pa.list_(pa.field("element", element))


@cache
def stored_as(kind: str) -> str:
    """Return the one name of types with the same bytes and the same column: a collated string is a string."""
    return next((name for pattern, name in _SAME if pattern.fullmatch(kind)), kind)


@cache
def decimal_digits(kind: str) -> tuple[int, int] | None:
    """Return a decimal's precision and scale; None for other types."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def _leaf_type(kind: str) -> pa.DataType:
    name = stored_as(kind)
    digits = decimal_digits(name)
    if digits and 0 < digits[0] <= _DIGITS:
        return pa.decimal128(*digits)
    if name in _TYPES:
        return _TYPES[name]
    raise UnsupportedChangelogError(f"The changelog reader does not decode the type {_named(kind)}.")


def _named(kind: SparkType) -> str:
    return kind if isinstance(kind, str) else str(kind.get("type"))
