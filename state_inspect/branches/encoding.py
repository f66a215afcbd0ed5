"""One text for one row, the same on every machine: what fingerprints of state are made from.

The encoding is written down in docs/guides/branches.md, so that anybody can compute it without this package. It tells
apart what :meth:`History.diff` tells apart: −0.0 is 0.0, every NaN is the same, NULL is not empty; but the order of a
map's entries does not count, and numbers count by their value, not by the width of their column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

import pyarrow as pa

from streamstate.snapshots.change_log import quoted
from streamstate.snapshots.errors import InvalidArgumentError

__all__ = ["encoded", "encoded_row", "row_hash"]

_NAN = "7FF8000000000000"


def row_hash(columns: Mapping[str, pa.DataType]) -> str:
    """SQL for the hash of a row: the first 128 bits of the SHA-256 of its encoding, as an unsigned number.

    Args:
        columns: the columns that count, by name, with their types.
    """
    return f"('0x' || left(sha256({encoded_row(columns)}), 32))::UHUGEINT"


def encoded_row(columns: Mapping[str, pa.DataType]) -> str:
    r"""SQL for the encoding of a row: that of a struct of its columns.

    Example:
        >>> encoded_row({"n": pa.int64()})
        "concat('{', 'S1:n' || 'I' || \"n\"::VARCHAR || ';', '}')"
    """
    return _fields({name: (quoted(name), kind) for name, kind in columns.items()}, count())


def encoded(value: str, kind: pa.DataType) -> str:
    """SQL for the encoding of a value, NULL where the value is.

    Args:
        value: SQL for the value.
        kind: its type.

    Raises:
        InvalidArgumentError: where there is no encoding for the type.

    Example:
        >>> encoded("n", pa.int64())
        "'I' || n::VARCHAR || ';'"
    """
    return _encoded(value, kind, count())


def _encoded(value: str, kind: pa.DataType, numbers: count[int]) -> str:
    if pa.types.is_struct(kind):
        fields = {field.name: (f"struct_extract({value}, {_text(field.name)})", field.type) for field in kind}
        return f"CASE WHEN {value} IS NOT NULL THEN {_fields(fields, numbers)} END"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        one = f"e{next(numbers)}"
        item = f"coalesce({_encoded(one, kind.value_type, numbers)}, 'N')"
        return f"'[' || array_to_string(list_transform({value}, lambda {one}: {item}), '') || ']'"
    if pa.types.is_map(kind):
        return f"CASE WHEN {value} IS NOT NULL THEN {_map(value, kind, numbers)} END"
    return _plain(value, kind)


def _map(value: str, kind: pa.MapType, numbers: count[int]) -> str:
    one = f"e{next(numbers)}"
    key = _encoded(f"struct_extract({one}, 'key')", kind.key_type, numbers)
    item = _encoded(f"struct_extract({one}, 'value')", kind.item_type, numbers)
    entries = f"list_transform(map_entries({value}), lambda {one}: {key} || coalesce({item}, 'N'))"
    return f"'<' || array_to_string(list_sort({entries}), '') || '>'"


def _fields(fields: Mapping[str, tuple[str, pa.DataType]], numbers: count[int]) -> str:
    """A row or a struct: what is NULL is left out, so that a column that came later changes nothing before it."""
    in_order = sorted(fields.items(), key=lambda one: one[0].encode())
    parts = [f"{_text(_named(name))} || {_encoded(value, kind, numbers)}" for name, (value, kind) in in_order]
    return f"concat('{{', {''.join(f'{part}, ' for part in parts)}'}}')"


def _named(name: str) -> str:
    return f"S{len(name.encode())}:{name}"


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _plain(value: str, kind: pa.DataType) -> str:
    found = next((text for is_kind, text in _PLAIN if is_kind(kind)), None)
    if found is None:
        raise InvalidArgumentError(
            f"State of the type {kind} has no fingerprint.\nCast it in the query, or name the tables that have none."
        )
    return found(value, kind)


def _bits(value: str) -> str:
    """The bits of IEEE 754 as a number in hexadecimal digits; one zero, one NaN."""
    return f"CASE WHEN {value} = 0 THEN '0' WHEN isnan({value}) THEN '{_NAN}' ELSE hex({value}::BIT::UBIGINT) END"


def _digits(value: str, kind: pa.DataType) -> str:
    """A decimal by its value: without zeros at the end, and with a digit before the point."""
    if kind.scale <= 0:
        return f"{value}::VARCHAR"
    short = f"rtrim(rtrim({value}::VARCHAR, '0'), '.')"
    return rf"regexp_replace({short}, '^(-?)(\.|$)', '\10\2')" if kind.scale == kind.precision else short


def _moment(value: str, kind: pa.DataType) -> str:
    return f"'{'l' if kind.tz is None else 't'}' || epoch_us({value})::VARCHAR || ';'"


_PLAIN: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], str]]] = [
    (pa.types.is_boolean, lambda value, _: f"CASE WHEN {value} THEN 'T' WHEN NOT {value} THEN 'F' END"),
    (pa.types.is_integer, lambda value, _: f"'I' || {value}::VARCHAR || ';'"),
    (pa.types.is_floating, lambda value, _: f"'D' || {_bits(f'{value}::DOUBLE')} || ';'"),
    (pa.types.is_decimal, lambda value, kind: f"'M' || {_digits(value, kind)} || ';'"),
    (pa.types.is_string, lambda value, _: f"'S' || strlen({value})::VARCHAR || ':' || {value}"),
    (pa.types.is_large_string, lambda value, _: f"'S' || strlen({value})::VARCHAR || ':' || {value}"),
    (pa.types.is_binary, lambda value, _: f"'B' || hex({value}) || ';'"),
    (pa.types.is_large_binary, lambda value, _: f"'B' || hex({value}) || ';'"),
    (pa.types.is_date, lambda value, _: f"'d' || ({value}::DATE - DATE '1970-01-01')::VARCHAR || ';'"),
    (pa.types.is_timestamp, _moment),
    (pa.types.is_null, lambda _, __: "NULL::VARCHAR"),
]
"""How a value is written that holds no other, by its type."""
