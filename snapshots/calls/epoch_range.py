"""Epochs as callers name them: text such as ``40..60``, ranges, and sequences.

In text, ``A..B`` includes both ends, ``A..`` and ``..B`` are open, and commas separate several: ``3,5,10..20``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any

from streamstate.errors import InvalidArgumentError, worded

_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_RANGE = re.compile(r"(\d{0,18})\.\.(\d{0,18})", re.ASCII)


def parse_epochs(text: str, available: Sequence[int]) -> list[int | range]:
    """Return the epochs and ranges of epochs that a text names.

    The open end of a range is the first or the last of the available epochs, which ascend.

    Example:
        >>> parse_epochs("3,10..12,20..", range(30))
        [3, range(10, 13), range(20, 30)]
    """
    found: list[int | range] = []
    for part in (piece.strip() for piece in text.split(",")):
        if _NUMBER.fullmatch(part):
            found.append(int(part))
            continue
        ends = _RANGE.fullmatch(part)
        if ends is None or not (ends[1] or ends[2]):
            raise _invalid(text)
        first, last = (int(end) if end else None for end in ends.groups())
        # An open range has at least one epoch, so that an end beyond what exists is reported by its number.
        if first is None:
            first = min([*available[:1], last or 0])
        if last is None:
            last = max([first, *available[-1:]])
        if first > last:
            raise _invalid(text)
        found.append(range(first, last + 1))
    return found


def epoch_items(epochs: Iterable[int | range] | str, available: Sequence[int]) -> list[int | range]:
    """Return epochs and ranges of epochs, as they are given."""
    if isinstance(epochs, str):
        return parse_epochs(epochs, available)
    if isinstance(epochs, range):
        return [epochs]
    if not isinstance(epochs, Iterable):
        raise _invalid(epochs)
    given = [*epochs]
    if any(isinstance(item, bool) or not (isinstance(item, range) or hasattr(item, "__index__")) for item in given):
        raise _invalid(given)
    return [item if isinstance(item, range) else operator.index(item) for item in given]


def epoch_list(epochs: Iterable[int | range] | str, available: Sequence[int]) -> list[int]:
    """Return epochs, ascending and without duplicates; at least one.

    Example:
        >>> epoch_list([5, range(1, 3)], range(30)), epoch_list("28..", range(30))
        ([1, 2, 5], [28, 29])
    """
    items = epoch_items(epochs, available)
    found = {epoch for item in items for epoch in (item if isinstance(item, range) else (item,))}
    if not found:
        raise _invalid(epochs)
    return sorted(found)


def epoch_span(epochs: range | tuple[int, int] | str, available: Sequence[int]) -> tuple[int, int]:
    """Return the first and the last of consecutive epochs.

    Example:
        >>> epoch_span("40..60", range(100)), epoch_span(range(40, 61), range(100)), epoch_span("40..", range(100))
        ((40, 60), (40, 60), (40, 99))
    """
    given: Any = epochs
    if isinstance(epochs, str):
        parts = parse_epochs(epochs, available)
        given = parts[0] if len(parts) == 1 else None
        given = (given, given) if isinstance(given, int) else given
    if isinstance(given, range) and len(given) and given.step == 1:
        first, last = given[0], given[-1]
    elif isinstance(given, (tuple, list)) and len(given) == 2:
        first, last = given
    else:
        raise _invalid(epochs, "the pair (40, 60)")
    # Not isinstance: True is an int.
    if type(first) is not int or type(last) is not int or not 0 <= first <= last:
        raise _invalid(epochs, "the pair (40, 60)")
    return first, last


def _invalid(epochs: object, also: str = "a list such as '3,5,10..20' or [3, 5]") -> InvalidArgumentError:
    in_python = f"'40..60' (both ends included), '40..', '..60', range(40, 61), or {also}"
    expected = worded(in_python, line="40..60 (both ends included), 40.., ..60, or a list such as 3,5,10..20")
    return InvalidArgumentError(f"Invalid epochs {epochs!r}: expected {expected}.")
