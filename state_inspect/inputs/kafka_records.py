"""Kafka's records as people read them: where each is first, then its key and value as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

_PLACE = ("topic", "partition", "offset", "timestamp")
_COLUMNS = (*_PLACE, "key", "value")
_MAY_FOLLOW = ("headers", "timestampType")
_LINE_END = re.compile(r"\s*[\r\n]\s*")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def is_of_kafka(columns: Iterable[object]) -> bool:
    """Return whether rows have the columns of Kafka's source: read from it, or from a recording of it."""
    return {*_COLUMNS} <= {*columns}


def with_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Kafka's records with their place first, and keys, values and headers as text where they are UTF-8.

    Other frames are returned as they are.
    """
    if not is_of_kafka(frame.columns) or frame.columns.has_duplicates:
        return frame
    first = [*_COLUMNS, *(name for name in _MAY_FOLLOW if name in frame)]
    found = frame[[*first, *(name for name in frame if name not in first)]].copy()
    for name in ("key", "value"):
        found[name] = pd.Series([text_of(value) for value in frame[name]], index=frame.index, dtype=object)
    if "headers" in found:
        found["headers"] = pd.Series(map(_headers, frame["headers"]), index=frame.index, dtype=object)
    return found


def text_of(value: Any) -> Any:
    r"""Return bytes as text if they are text in UTF-8, and JSON in one line; other values as they are.

    Example:
        >>> text_of(b"k3"), text_of(b"\x00\x01"), text_of(b'{\n  "n": 1\n}')
        ('k3', b'\x00\x01', '{ "n": 1 }')
    """
    if not isinstance(value, bytes | bytearray):
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value
    return value if _CONTROL.search(text) else _folded(text)


def _folded(text: str) -> str:
    """Return JSON of several lines in one: a line end is never inside of a value."""
    if not text.lstrip().startswith(("{", "[")) or "\n" not in text:
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _LINE_END.sub(" ", text).strip()


def _headers(headers: Any) -> Any:
    if not isinstance(headers, list):
        return headers
    return [header | {"value": text_of(header.get("value"))} for header in headers]
