"""The fields of a selection that the address of a served page keeps: filters, sort order, page, and the like.

An address also names the query, the section, the table, the epoch and the key: these are in the view's focus.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import Field, field, fields, replace
from typing import Any, TypeVar

S = TypeVar("S")
LONGEST = 4_000
"""The most characters of a text in an address."""
_DIGITS = 9
_FIELD = "address"
_NONE = "none"


def in_address(kind: type, default: Any = None, *, among: Collection[Any] | None = None) -> Any:
    """Return a field of a selection that addresses keep.

    Args:
        kind: ``str``, ``int`` or ``bool``.
        default: its value in an address without it.
        among: the valid values; by default every text, and every number that is not negative.
    """
    return field(default=default, metadata={_FIELD: (kind, among)})


def address_parts(selection: Any) -> dict[str, str]:
    """Return the fields that an address keeps, as text, without those that have their default.

    Example:
        >>> from streamstate.widgets.state_browser.actions import BrowserSelection
        >>> address_parts(BrowserSelection(page=2, order_by="mean", descending=True, epoch=3))
        {'page': '2', 'order_by': 'mean', 'descending': '1'}
    """
    changed = {known.name: getattr(selection, known.name) for known in _kept(selection)}
    texts = {
        known.name: _text(changed[known.name]) for known in _kept(selection) if changed[known.name] != known.default
    }
    return {name: text for name, text in texts.items() if len(text) <= LONGEST}


def restored(selection: S, parts: Mapping[str, str]) -> S:
    """Return a selection with the fields that an address kept. Missing and invalid ones get their defaults.

    Example:
        >>> from streamstate.widgets.state_browser.actions import BrowserSelection
        >>> restored(BrowserSelection(page=7), {"order_by": "mean", "size": "3"}).size
        10
    """
    found: dict[str, Any] = {known.name: _read(known, parts.get(known.name)) for known in _kept(selection)}
    return replace(selection, **found)  # type: ignore[type-var]  # every selection is a dataclass


def _kept(selection: Any) -> Iterator[Field[Any]]:
    return (known for known in fields(selection) if _FIELD in known.metadata)


def _text(value: Any) -> str:
    return _NONE if value is None else str(int(value) if isinstance(value, bool) else value)


def _read(known: Field[Any], text: str | None) -> Any:
    """Return the value of a field; its default if the text is no valid value."""
    kind, among = known.metadata[_FIELD]
    if not text or len(text) > LONGEST:
        return known.default
    value = text if kind is str else _number(kind, text)
    if value is None:
        return None if text == _NONE and among and None in among else known.default
    return value if among is None or value in among else known.default


def _number(kind: type, text: str) -> Any:
    valid = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
    return kind(int(text)) if valid else None
