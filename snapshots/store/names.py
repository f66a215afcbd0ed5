"""Valid names: a query's name is also a folder and an SQL relation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import TypeGuard

from streamstate.errors import InvalidNameError

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_NAME = re.compile(r"[^\W_][\w-]*")
_MOST_BYTES = 100


def check_name(name: str) -> str:
    """Return the name; raise unless it can name a folder and an SQL relation."""
    if is_name(name):
        return name
    raise InvalidNameError(
        f"Invalid query name {name!r}.\n"
        f"A name has letters, digits, '_' or '-', at most {_MOST_BYTES} bytes, and starts with a letter or digit, such"
        " as delays or join_2."
    )


def is_name(name: object) -> TypeGuard[str]:
    """Return whether this is a valid query name. Letters of every script are, composed as in Unicode's form NFC."""
    return (
        isinstance(name, str)
        and _NAME.fullmatch(name) is not None
        and unicodedata.is_normalized("NFC", name)
        and len(name.encode()) <= _MOST_BYTES
    )


def is_base_name(name: object) -> TypeGuard[str]:
    """Return whether a value names a single file or folder, so that a path joined with it stays in its folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and not any(mark in name for mark in "/\\\0")


def is_number(name: str) -> bool:
    """Return whether a file's or folder's name is a number as Spark writes it: ``int`` would read other texts too."""
    return _NUMBER.fullmatch(name) is not None


def name_from(text: str) -> str:
    """Return a valid name made from any text, such as the name of a checkpoint's folder."""
    words = re.sub(r"[^\w-]+", "_", unicodedata.normalize("NFC", text)).strip("_-")
    return check_name(words.encode()[:_MOST_BYTES].decode(errors="ignore") or "query")


def distinct(names: Iterable[str]) -> list[str]:
    """Return names of which those that are taken by an earlier one get a suffix, as by :func:`unused`."""
    found: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for name in names:
        free, base = name, name.casefold()
        while free.casefold() in found:
            numbers[base] = numbers.get(base, 1) + 1
            free = f"{name}_{numbers[base]}"
        found[free.casefold()] = free
    return [*found.values()]


def unused(name: str, taken: Iterable[str]) -> str:
    """``name``, or ``name_2``, ``name_3``, … if it is taken (ignoring case, as in SQL)."""
    used = {existing.casefold() for existing in taken}
    free, number = name, 1
    while free.casefold() in used:
        number += 1
        free = f"{name}_{number}"
    return free
