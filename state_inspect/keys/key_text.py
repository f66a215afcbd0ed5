"""A key as text that can be copied: as words of a command, as Python and as SQL; and what a person writes, as a key."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import keyword
import re
import shlex
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.state_inspect.cell_text import plain

_NULL = "null"
_MAGIC_WORD = re.compile(r"[^\s\"'\\{}$]+")
_ARGUMENTS = ("table", "ancestors", "result", "self", "per_key", "interval")
"""Names of other arguments of calls that take a key."""
_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError, OverflowError)
"""Errors of Arrow for a value that is not of a type."""


def is_window(kind: pa.DataType) -> bool:
    """Return whether a column has time windows, as Spark's ``window`` makes them."""
    names = [field.name for field in kind] if pa.types.is_struct(kind) else []
    return names == ["start", "end"] and all(pa.types.is_timestamp(field.type) for field in kind)


def converted(value: Any, kind: pa.DataType) -> Any:
    """Convert a value to a type: numbers of any kind, times and decimals also as text, structs and maps as mappings.

    Raises:
        ValueError: it is not of the type; the text says why, unless the type says it.
    """
    value = plain(value)
    return None if value is None else _converted(value, kind)


def _converted(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        if not isinstance(value, Mapping) or not {*value} <= {field.name for field in kind}:
            raise ValueError
        return {field.name: converted(value.get(field.name), field.type) for field in kind}
    if pa.types.is_nested(kind) and not isinstance(value, Mapping | list | tuple):
        raise ValueError
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        found = [(converted(key, kind.key_type), converted(item, kind.item_type)) for key, item in pairs]
        return found if pa.types.is_nested(kind.key_type) else dict(found)
    if pa.types.is_list(kind):
        return [converted(item, kind.value_type) for item in value]
    if pa.types.is_binary(kind) and isinstance(value, str):
        return bytes.fromhex(value.removeprefix("0x")) if value.startswith("0x") else value.encode()
    return _converted_leaf(value, kind)


def _converted_leaf(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind) and kind.tz is not None and isinstance(value, str):
        _check_zone(value)
    try:
        return pa.scalar(value, kind).as_py()
    except _UNFIT:
        pass
    try:
        return pa.scalar(value).cast(kind).as_py()
    except _UNFIT:
        raise ValueError from None


def _check_zone(text: str) -> None:
    """Raise if a time is written without its zone."""
    moment = None
    with contextlib.suppress(ValueError):
        moment = dt.datetime.fromisoformat(text)
    if moment is not None and moment.tzinfo is None:
        raise ValueError("it has no time zone")


def as_window(value: Any, kind: pa.DataType, length: Callable[[], dt.timedelta | None]) -> dict[str, Any] | None:
    """Return a window of a column.

    Args:
        value: its start, as a time or as text, or both ends: ``"start/end"``, a mapping, a pair, or an interval of
            pandas.
        kind: the column's type.
        length: returns the length of the column's windows, for a window that is given by its start.

    Raises:
        ValueError: it is not a window.
    """
    try:
        ends = _ends(plain(value))
    except _UNFIT:
        raise ValueError from None
    if ends is None:
        return None
    start, end = (_moment(plain(moment), kind[0].type) for moment in ends)
    if end is None and start is not None:
        known = length()
        if known is None:
            raise ValueError("no window is known yet whose length could be taken")
        end = start + known
    return {"start": start, "end": end}


def _ends(value: Any) -> tuple[Any, Any] | None:
    """Return the ends of a window as they are given; the second is None if it is given by its start."""
    if value is None:
        return None
    if isinstance(value, str):
        value = json.loads(value) if value.startswith("{") else value.split("/")
    elif hasattr(value, "left") and hasattr(value, "right"):
        value = value.left, value.right
    elif isinstance(value, dt.datetime):
        value = [value]
    if isinstance(value, Mapping):
        if "start" not in value or not {*value} <= {"start", "end"}:
            raise ValueError
        return value["start"], value.get("end")
    start, end = [*value, None] if len(value) == 1 else value
    return start, end


def _moment(value: Any, kind: pa.DataType) -> Any:
    """Return an end of a window."""
    found = converted(value, kind)
    naive = isinstance(value, dt.datetime) and value.tzinfo is None
    if kind.tz is not None and naive:
        raise ValueError("it has no time zone")
    return found


def spelled(value: Any) -> str:
    r"""Return a key column's value as the text that :func:`parsed_value` reads: the text after ``--key COLUMN=``.

    Example:
        >>> spelled("UA"), spelled(None), spelled(b"\x00\xff")
        ('UA', 'null', '0x00ff')
    """
    value = plain(value)
    if isinstance(value, str):
        plainly = value != _NULL and value.isprintable() and not value.startswith('"')
        return value if plainly else json.dumps(value)
    if _is_time_window(value):
        return "/".join(_in_json(end) for end in (value["start"], value["end"]) if end is not None)
    form = _in_json(value)
    return form if isinstance(form, str) else json.dumps(form, ensure_ascii=False)


def parsed_value(text: str, kind: pa.DataType) -> Any:
    """Return the value of a key column that a text spells, as :meth:`TableKey.given` takes it; nested values are JSON.

    Raises:
        ValueError: the text does not fit the type.
    """
    if text == _NULL:
        return None
    if pa.types.is_string(kind):
        return str(json.loads(text)) if text.startswith('"') else text
    if is_window(kind):
        return text
    return converted(json.loads(text) if pa.types.is_nested(kind) else text, kind)


def _is_time_window(value: Any) -> bool:
    """Return whether a value is a time window."""
    return isinstance(value, Mapping) and {*value} == {"start", "end"} and isinstance(value["start"], dt.datetime)


def _in_json(value: Any) -> Any:
    """Return a value in JSON types, from which :func:`converted` makes the same."""
    value = plain(value)
    if isinstance(value, Mapping):
        return {spelled(key): _in_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(item) for item in value]
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dt.date | dt.time):
        return value.isoformat().replace("+00:00", "Z")
    return value


def in_magic(key: Mapping[str, Any]) -> str:
    r"""Return a key as options of a magic.

    Example:
        >>> in_magic({"carrier": "UA", "name": "O'Hare"})
        'carrier=UA "name=O\'Hare"'
    """
    return " ".join(magic_word(f"{name}={spelled(value)}") for name, value in key.items())


def in_shell(key: Mapping[str, Any]) -> str:
    """Return a key as words of a command in a terminal.

    Example:
        >>> print(in_shell({"carrier": "UA", "legs": ["EWR"]}))
        carrier=UA 'legs=["EWR"]'
    """
    return " ".join(shlex.quote(f"{name}={spelled(value)}") for name, value in key.items())


def magic_word(text: str) -> str:
    """Quote a word of a magic's line if need be; braces and dollars, which expand variables, are doubled."""
    if _MAGIC_WORD.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("{", "{{").replace("}", "}}").replace("$", "$$") + '"'


def arguments(key: Mapping[str, Any]) -> str:
    """Return a key as arguments of a call in Python, with built-in types alone.

    Example:
        >>> arguments({"carrier": "UA", "n": 7}), arguments({"from": None})
        ("carrier='UA', n=7", "key={'from': None}")
    """
    plainly = all(name.isidentifier() and not keyword.iskeyword(name) and name not in _ARGUMENTS for name in key)
    if plainly and not isinstance(key.get("key"), Mapping):
        return ", ".join(f"{name}={in_python(value)}" for name, value in key.items())
    return f"key={_dict(key)}"


def in_python(value: Any) -> str:
    """Return a value as a Python expression with built-in types alone, from which :func:`converted` makes the same."""
    value = plain(value)
    if isinstance(value, Mapping):
        return repr(spelled(value)) if _is_time_window(value) else _dict(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(in_python, value))}]"
    if isinstance(value, float):
        return repr(value) if value - value == 0 else f"float({str(value)!r})"
    return repr(value if isinstance(value, bytes) else _in_json(value))


def _dict(value: Mapping[str, Any]) -> str:
    return f"{{{', '.join(f'{in_python(key)}: {in_python(item)}' for key, item in value.items())}}}"


def in_sql(key: Mapping[str, Any], schema: pa.Schema, kinds: Mapping[str, str]) -> str:
    """Return a key as a condition in SQL; ``kinds`` are DuckDB's types of its columns, by name."""
    conditions = []
    for name, value in key.items():
        literal = _literal(value, schema.field(name).type)
        if not isinstance(value, bool | int | str):
            literal = f"CAST({literal} AS {kinds[name]})"
        conditions.append(f"{quoted(name)} {'IS NULL' if value is None else f'= {literal}'}")
    return " AND ".join(conditions)


def _literal(value: Any, kind: pa.DataType) -> str:
    """Return a value in SQL, as text where DuckDB casts it."""
    if value is None:
        return "NULL"
    if pa.types.is_struct(kind):
        return f"{{{', '.join(f'{_text(part.name)}: {_literal(value[part.name], part.type)}' for part in kind)}}}"
    if pa.types.is_map(kind):
        pairs = list(value.items() if isinstance(value, Mapping) else value)
        keys, items = (
            [_literal(pair[at], of) for pair in pairs] for at, of in enumerate((kind.key_type, kind.item_type))
        )
        return f"MAP([{', '.join(keys)}], [{', '.join(items)}])"
    if pa.types.is_list(kind):
        return f"[{', '.join(_literal(item, kind.value_type) for item in value)}]"
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    return str(value).lower() if isinstance(value, bool | int) else _text(str(_in_json(value)))


def as_parameter(value: Any, kind: pa.DataType) -> Any:
    """Return a value as DuckDB takes it as a parameter: it has its own form of maps."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {part.name: as_parameter(value[part.name], part.type) for part in kind}
    if pa.types.is_list(kind):
        return [as_parameter(item, kind.value_type) for item in value]
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    keys = [as_parameter(key, kind.key_type) for key, _ in pairs]
    return {"key": keys, "value": [as_parameter(item, kind.item_type) for _, item in pairs]}


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
