"""One cell's whole value, for reading and copying."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streamstate.widgets.browser.drawing import WholeValue
from streamstate.widgets.values import cell, plain, timestamp

__all__ = ["LIMIT", "whole_value"]

LIMIT = 1_000_000
"""Characters that go to a page at most."""


def whole_value(column: str, key: Mapping[str, Any], value: Any) -> WholeValue:
    """A value as text, not shortened: text as it is, bytes in hexadecimal, what is nested as JSON.

    Example:
        >>> whole_value("legs", {"flight": 1}, {"legs": ["EWR"]}).text
        '{"legs": ["EWR"]}'
    """
    text = _text(plain(value))
    named = ", ".join(f"{name} {cell(each).text}" for name, each in key.items())
    return WholeValue(column, named, text[:LIMIT], len(text))


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_item)
    return str(_item(value)) if not isinstance(value, bool) else str(value).lower()


def _item(value: Any) -> Any:
    """What JSON has no form for."""
    value = plain(value)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if hasattr(value, "isoformat"):
        return timestamp(value) if hasattr(value, "tzinfo") and hasattr(value, "hour") else value.isoformat()
    return value if isinstance(value, str | int | float | list | Mapping) or value is None else str(value)
