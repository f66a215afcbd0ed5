"""The state of the page as the query string of its address: a query, a table, an epoch and a key.

``?query=delays&section=browser&table=op0&epoch=12&key={"carrier":"HA","origin":"JFK"}``, percent-encoded. The key is
JSON, because key columns have arbitrary names and types; a type that JSON lacks is an object with one member whose
name starts with ``$``, such as ``{"$time":"2013-01-01T05:00:00+00:00"}``. Without ``epoch``, the page follows the
newest; two epochs are ``between=10-12``. Further parts are the view's own, such as ``order_by=mean`` and ``page=2``.
Invalid parts are ignored, because anyone can write an address.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import parse_qs, urlencode

from streamstate.state_inspect.cell_text import plain
from streamstate.widgets.model import Focus

_READERS: dict[str, Callable[[Any], Any]] = {
    "$time": dt.datetime.fromisoformat,
    "$date": dt.date.fromisoformat,
    "$decimal": Decimal,
    "$float": float,
    "$bytes": bytes.fromhex,
    "$tuple": lambda items: tuple(_value(item) for item in items),
    "$struct": lambda pairs: {str(name): _value(value) for name, value in pairs},
}
_EPOCH_DIGITS = 18
_OWN = {"query", "section", "table", "epoch", "between", "key", "token"}


@dataclass(frozen=True)
class Address:
    """A place in the page.

    Attributes:
        query: a query of the store; None for the store itself.
        section: one of the query's sections; None for the first.
        table, epoch, between, key: as in a :class:`~streamstate.widgets.Focus`; without an epoch, the newest is
            followed.
        view: the view's own parts, such as its filter, by name; see :mod:`streamstate.widgets.address_fields`.

    Example:
        >>> Address("delays", epoch=12, key={"carrier": "HA"}).text()
        '?query=delays&epoch=12&key=%7B%22carrier%22%3A%22HA%22%7D'
        >>> Address.read("?query=delays&epoch=12").epoch
        12
    """

    query: str | None = None
    section: str | None = None
    table: str | None = None
    epoch: int | None = None
    between: tuple[int, int] | None = None
    key: Mapping[str, Any] | None = field(default=None, hash=False)
    view: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def read(cls, text: str) -> Address:
        """Return the place that the query string of an address names. Missing and invalid parts are None."""
        given = {name: values[0] for name, values in parse_qs(text.removeprefix("?")).items()}
        return cls(
            given.get("query"),
            given.get("section"),
            given.get("table"),
            _epoch(given.get("epoch", "")),
            _between(given.get("between", "")),
            _key(given.get("key", "")),
            {name: value for name, value in given.items() if name not in _OWN and name.isidentifier()},
        )

    def text(self) -> str:
        """Return the query string of the address, with its question mark; empty for the store itself.

        A key that an address cannot express is left out.
        """
        parts: dict[str, Any] = {"query": self.query, "section": self.section, "table": self.table}
        parts["epoch"] = self.epoch
        parts["between"] = f"{self.between[0]}-{self.between[1]}" if self.between else None
        with contextlib.suppress(TypeError):
            parts["key"] = json.dumps(_form(self.key), separators=(",", ":"), ensure_ascii=False) if self.key else None
        given = {name: value for name, value in (*parts.items(), *self.view.items()) if value is not None}
        return f"?{urlencode(given, errors='replace')}" if given else ""

    @property
    def focus(self) -> Focus:
        """The place that views look at."""
        return Focus(self.epoch, self.between, self.table, self.key, self.epoch is None and self.between is None)


def _epoch(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _EPOCH_DIGITS else None


def _between(text: str) -> tuple[int, int] | None:
    first, _, last = text.partition("-")
    a, b = _epoch(first), _epoch(last)
    return None if a is None or b is None else (a, b)


def _key(text: str) -> Mapping[str, Any] | None:
    with contextlib.suppress(ValueError, TypeError, InvalidOperation, RecursionError):
        found = _value(json.loads(text))
        return found if isinstance(found, dict) and found else None
    return None


def _value(form: Any) -> Any:
    if isinstance(form, list):
        return [_value(item) for item in form]
    if not isinstance(form, dict):
        return form
    if len(form) == 1:
        name, value = next(iter(form.items()))
        if name.startswith("$"):
            return _READERS[name](value) if name in _READERS else None
    return {name: _value(value) for name, value in form.items()}


def _form(value: Any) -> Any:  # noqa: PLR0911 (one line for each type)
    """``value`` in JSON types; a TypeError if an address cannot express it."""
    value = plain(value)
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": str(value)}
        case dt.datetime():
            return {"$time": value.isoformat()}
        case dt.date():
            return {"$date": value.isoformat()}
        case Decimal():
            return {"$decimal": str(value)}
        case bytes():
            return {"$bytes": value.hex()}
        case tuple():
            return {"$tuple": [_form(item) for item in value]}
        case list():
            return [_form(item) for item in value]
        case Mapping():
            members = {str(name): _form(item) for name, item in value.items()}
            return {"$struct": list(members.items())} if any(name.startswith("$") for name in members) else members
    raise TypeError(f"an address cannot express {type(value).__name__}")
