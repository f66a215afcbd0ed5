"""One state value as text that fits a table cell.

State can hold anything Spark can: nested structs, bytes, text of any length from anywhere. A cell
shows a short, single-line text that a person can read; what was cut off is said, never hidden.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cell", "canonical", "cell", "objects", "plain", "records", "timestamp"]

CELL = 60
"""Characters a cell shows before it is cut."""
WHOLE = 1_000
"""Characters of a cut value that can still be looked at."""

_JOINERS = "\u200c\u200d"
"""They join and part letters and emoji, and do nothing else."""

Kind = Literal["text", "number", "null"]


@dataclass(frozen=True)
class Cell:
    """A value as it is shown: its text, how to set it, and the longer text where something was cut."""

    text: str
    kind: Kind = "text"
    whole: str | None = None


def cell(value: Any) -> Cell:
    """What a table shows for ``value``.

    Example:
        >>> cell({"legs": ["EWR", "ORD"], "n": 2}).text
        '{legs: [EWR, ORD], n: 2}'
        >>> cell(None)
        Cell(text='null', kind='null', whole=None)
    """
    value = plain(value)
    if value is None:
        return Cell("null", "null")
    if value == "" and isinstance(value, str):
        return Cell("(empty)", "null")
    if isinstance(value, float):
        short, exact = f"{value:.6g}", repr(value)
        return Cell(short, "number", None if float(short) == value or math.isnan(value) else exact)
    number = isinstance(value, int) and not isinstance(value, bool)
    return _cut(value, "number" if number or type(value).__name__ == "Decimal" else "text")


def canonical(value: Any) -> Any:
    """``value`` in a form that compares equal exactly when the state did, and can be hashed."""
    value = plain(value)
    if isinstance(value, Mapping):
        return tuple((canonical(k), canonical(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(canonical(item) for item in value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def objects(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of plain objects with ``None`` for what is missing, where pandas may have put NaN."""
    nothing: Any = None
    found: pd.DataFrame = frame.astype(object).where(frame.notna(), nothing)
    return found


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as plain objects by column."""
    names = [str(name) for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in objects(frame).itertuples(index=False, name=None)]


def plain(value: Any) -> Any:
    """``value`` without pandas and NumPy around it: their scalars, arrays and kinds of nothing."""
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


def _cut(value: Any, kind: Kind) -> Cell:
    """The text of ``value``, cut to a cell; a long value is not turned into text beyond what is kept."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > WHOLE:
            text = text[:WHOLE] + "…"
            break
    if len(text) <= CELL:
        return Cell(text, kind)
    size = f" ({len(value):,} {'bytes' if isinstance(value, bytes) else 'characters'})" if _sized(value) else ""
    return Cell(text[: CELL - 1] + "…", kind, text + size)


def _sized(value: Any) -> bool:
    return isinstance(value, bytes | str) and len(value) > WHOLE // 2


def _pieces(value: Any) -> Iterator[str]:
    """The text of ``value``, piece by piece."""
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
        case {"start": dt.datetime() as start, "end": dt.datetime() as end} if len(value) == 2:
            yield _window(start, end)
        case Mapping():
            yield from _joined("{", ((f"{_text(k)}: ", v) for k, v in value.items()), "}")
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


def _window(start: dt.datetime, end: dt.datetime) -> str:
    """A time window, as Spark's ``window`` makes them; what both ends share is said once.

    Example:
        >>> _window(dt.datetime(2013, 1, 1, 5), dt.datetime(2013, 1, 1, 6))
        '2013-01-01 05:00:00 – 06:00:00'
    """
    first, last = timestamp(start), timestamp(end)
    day, _, rest = first.partition(" ")
    clock, _, zone = rest.partition(" ")
    if zone and last.endswith(zone):
        first = f"{day} {clock}"
    return f"{first} – {last.removeprefix(f'{day} ')}"


def _text(value: Any) -> str:
    return "".join(_pieces(value))


def _printable(text: str) -> str:
    """``text`` with what cannot be seen (line ends, controls, changes of direction) written as escapes."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in _JOINERS else c.encode("unicode_escape").decode("ascii", "replace") for c in text
    )


def timestamp(value: dt.datetime) -> str:
    """A time in the zone of this machine, with its offset; a time without a zone as it is.

    Example:
        >>> timestamp(dt.datetime(2013, 1, 1, 5, 15))
        '2013-01-01 05:15:00'
    """
    value = plain(value)
    shown = value.astimezone() if value.tzinfo else value
    text = shown.replace(tzinfo=None).isoformat(" ", "milliseconds" if value.microsecond else "seconds")
    return f"{text} {shown.isoformat()[-6:]}" if value.tzinfo else text
