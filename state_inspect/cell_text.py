"""State values as text that fits a table cell.

State can hold anything that Spark can: nested structs, bytes, untrusted text of any length. A cell shows a short,
readable text on a single line, and marks where it was cut.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

CELL = 60
"""Characters that a cell shows before it is cut."""
WHOLE = 1_000
"""Characters of a cut value that its tooltip shows."""

_JOINERS = "\u200c\u200d"
"""Invisible characters that only join or separate letters and emoji."""

CellKind = Literal["text", "number", "null", "window"]


@dataclass(frozen=True)
class Cell:
    """A value as it is shown: its text, its style, and a longer text if it was shortened."""

    text: str
    kind: CellKind = "text"
    whole: str | None = None


NULL = Cell("null", "null")


def cell(value: Any) -> Cell:
    """Return a value as a table cell.

    Example:
        >>> cell({"legs": ["EWR", "ORD"], "n": 2}).text
        '{legs: [EWR, ORD], n: 2}'
        >>> cell(None)
        Cell(text='null', kind='null', whole=None)
    """
    value = plain(value)
    if value is None:
        return NULL
    if value == "" and isinstance(value, str):
        return Cell("(empty)", "null")
    if isinstance(value, float):
        short, exact = f"{value:.6g}", repr(value)
        return Cell(short, "number", None if float(short) == value or math.isnan(value) else exact)
    if window := _window(value):
        return Cell(_short_window(*window), "window", _whole_window(*window))
    numeric = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return _cut(value, "number" if numeric else "text")


def canonical(value: Any) -> Any:
    """``value`` in a hashable form that compares equal exactly when the state is equal."""
    value = plain(value)
    if isinstance(value, Mapping):
        return tuple((canonical(k), canonical(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(canonical(item) for item in value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def number(value: Any) -> float | None:
    """``value`` as a finite number; None if it is anything else, such as a bool, text, null or NaN.

    Example:
        >>> number(3), number(float("nan")), number(True)
        (3.0, None, None)
    """
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        return None
    return float(value)


def key_text(key: Mapping[str, Any]) -> str:
    """Return a key in words.

    Example:
        >>> key_text({"carrier": "UA", "origin": "EWR"})
        'carrier UA, origin EWR'
    """
    return ", ".join(f"{name} {cell(value).text}" for name, value in key.items())


def plain(value: Any) -> Any:
    """``value`` as a plain Python object: without the scalars, arrays and null values of pandas and NumPy."""
    kind = type(value)
    if kind.__name__ in ("NaTType", "NAType"):
        return None
    if kind.__module__.startswith("numpy"):
        return value.tolist() if hasattr(value, "dtype") and value.dtype.kind not in "mM" else value.item()
    if kind.__name__ == "Timestamp":
        return value.to_pydatetime(warn=False)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


def _cut(value: Any, kind: CellKind) -> Cell:
    """Return the text of ``value``, cut to a cell; of a long value, no more is turned into text than is kept."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > WHOLE:
            text = text[:WHOLE] + "…"
            break
    if len(text) <= CELL:
        return Cell(text, kind)
    size = ""
    if isinstance(value, bytes | str) and len(value) > WHOLE // 2:
        size = f" ({len(value):,} {'bytes' if isinstance(value, bytes) else 'characters'})"
    return Cell(text[: CELL - 1] + "…", kind, text + size)


def _pieces(value: Any) -> Iterator[str]:
    """Yield the text of ``value``, piece by piece."""
    value = plain(value)
    match value:
        case None:
            yield "null"
        case bool():
            yield str(value).lower()
        case str():
            yield _printable(value[: WHOLE + 1])
        case bytes():
            yield "0x" + value[: WHOLE // 2 + 1].hex()
        case dt.datetime():
            yield timestamp(value)
        case Decimal():
            yield f"{value:f}"
        case Mapping() if window := _window(value):
            yield _short_window(*window)
        case Mapping():
            yield from _joined("{", (("".join(_pieces(k)) + ": ", v) for k, v in value.items()), "}")
        case list() | tuple():
            yield from _joined("[", (("", item) for item in value), "]")
        case _:
            yield _printable(str(value)[: WHOLE + 1])


def _joined(start: str, items: Iterator[tuple[str, Any]], end: str) -> Iterator[str]:
    yield start
    for n, (label, item) in enumerate(items):
        yield (", " if n else "") + label
        yield from _pieces(item)
    yield end


def _window(value: Any) -> tuple[dt.datetime, dt.datetime] | None:
    """Return the start and the end of a time window, as Spark's ``window`` makes them; None for any other value."""
    match value:
        case {"start": dt.datetime() as start, "end": dt.datetime() as end, **rest} if not rest and start <= end:
            return plain(start), plain(end)
    return None


def _short_window(start: dt.datetime, end: dt.datetime) -> str:
    """Return a window's start in this machine's zone, as exactly as needed, and its length.

    Example:
        >>> _short_window(dt.datetime(2013, 1, 1, 5), dt.datetime(2013, 1, 2, 5))
        '2013-01-01 05:00 +1d'
    """
    local = _local(start).replace(tzinfo=None)
    return f"{local.isoformat(' ', _precision(local, 'minutes'))} +{span_text(end - start)}"


def _whole_window(start: dt.datetime, end: dt.datetime) -> str:
    """Return a window's start and end; the day and zone that both share appear once.

    Example:
        >>> _whole_window(dt.datetime(2013, 1, 1, 5), dt.datetime(2013, 1, 1, 6))
        '2013-01-01 05:00:00 – 06:00:00'
    """
    first, last = timestamp(start), timestamp(end)
    day, _, rest = first.partition(" ")
    clock, _, zone = rest.partition(" ")
    if zone and last.endswith(zone):
        first = f"{day} {clock}"
    return f"{first} – {last.removeprefix(f'{day} ')}"


def span_text(span: dt.timedelta) -> str:
    """Return a length of time in its units.

    Example:
        >>> span_text(dt.timedelta(days=1)), span_text(dt.timedelta(minutes=90)), span_text(dt.timedelta(seconds=0.5))
        ('1d', '1h 30min', '0.5s')
    """
    minutes, seconds = divmod(span, dt.timedelta(minutes=1))
    rest = f"{seconds.total_seconds():.6f}".rstrip("0").rstrip(".")
    units = {"d": minutes // 1440, "h": minutes // 60 % 24, "min": minutes % 60}
    whole = [f"{number}{unit}" for unit, number in units.items() if number]
    return " ".join(whole if whole and rest == "0" else [*whole, f"{rest}s"])


def _printable(text: str) -> str:
    """``text`` with invisible characters (line ends, controls, direction changes) written as escapes."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in _JOINERS else c.encode("unicode_escape").decode("ascii", "replace") for c in text
    )


def timestamp(value: dt.datetime) -> str:
    """Return a time in this machine's zone, with its offset; a time without a zone is shown as it is.

    Example:
        >>> timestamp(dt.datetime(2013, 1, 1, 5, 15))
        '2013-01-01 05:15:00'
    """
    value = plain(value)
    shown = _local(value)
    unit = _precision(value, "seconds")
    text = shown.replace(tzinfo=None).isoformat(" ", unit)
    return f"{text} {shown.isoformat(' ', unit)[len(text) :]}" if value.tzinfo else text


def _local(value: dt.datetime) -> dt.datetime:
    """Return a time in this machine's zone; in its own if it is too close to the first or the last year."""
    try:
        return value.astimezone() if value.tzinfo else value
    except (OverflowError, ValueError):
        return value


def _precision(value: dt.datetime, at_least: str) -> str:
    """Return the unit to which a time has to be written, so that nothing is lost."""
    if value.microsecond:
        return "microseconds" if value.microsecond % 1000 else "milliseconds"
    return "seconds" if value.second else at_least
