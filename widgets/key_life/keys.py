"""A key that a person typed, or that another view chose, as the table has it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.widgets.key_life.drawing import Field
from streamstate.widgets.values import cell, plain, records

if TYPE_CHECKING:
    from streamstate.state_inspect import History
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

__all__ = ["alike", "fields_of", "key_typed", "typable"]

_LIKE = 5
_LOOKED_AT = 200


def typable(table: IntervalTable) -> bool:
    """Whether each key column can be written in a field."""
    kinds = [table.schema.field(name).type for name in table.key_columns]
    return not any(pa.types.is_nested(kind) or pa.types.is_binary(kind) for kind in kinds)


def fields_of(table: IntervalTable, key: Mapping[str, Any] | None, typed: Sequence[str] | None) -> list[Field]:
    """The key's columns with what stands in their fields."""
    if key is None:
        texts = list(typed or ())[: len(table.key_columns)]
        texts += [""] * (len(table.key_columns) - len(texts))
        return [Field(name, None, text) for name, text in zip(table.key_columns, texts, strict=True)]
    return [Field(name, cell(key[name]), _written(key[name])) for name in table.key_columns]


def key_typed(table: IntervalTable, typed: Sequence[str]) -> dict[str, Any]:
    """The key that was typed, each text as its column's type.

    Raises:
        InvalidArgumentError: where a text is no such value; says which, and of what type the column is.
    """
    key: dict[str, Any] = {}
    for at, name in enumerate(table.key_columns):
        text = typed[at] if at < len(typed) else ""
        kind = table.schema.field(name).type
        try:
            key[name] = pa.scalar(text).cast(kind).as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InvalidArgumentError(f"{name} is of type {kind}, and {text!r} is no such value.") from None
    return key


def alike(history: History, name: str, key: Mapping[str, Any]) -> list[str]:
    """Keys of the newest epoch that look like one that is not there, in words."""
    if name not in history.live().tables():
        return []
    table = history.live().table(name)
    found: dict[str, None] = {}
    for column, value in key.items():
        if isinstance(value, str) and value:
            page = table.page(limit=_LOOKED_AT, contains={column: value[:2]})
            found |= {_words({each: row[each] for each in table.key_columns}): None for row in records(page)}
    return difflib.get_close_matches(_words(key), list(found), n=_LIKE, cutoff=0.5)


def _words(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {cell(value).text}" for name, value in key.items())


def _written(value: Any) -> str:
    value = plain(value)
    return "" if value is None else str(value)
