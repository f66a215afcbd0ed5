"""Numbers as people read them."""

from __future__ import annotations

__all__ = ["amount", "milliseconds", "percent", "rate", "size", "span"]

_SPACE = "\N{NO-BREAK SPACE}"
_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0


def size(bytes_: float) -> str:
    """Bytes in decimal units.

    Example:
        >>> size(12_608_640)
        '12.6 MB'
    """
    value = float(bytes_)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1_000:
            return f"{value:,.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1_000
    return f"{value:,.1f} TB"


def span(seconds: float) -> str:
    """A time span in the unit that fits it.

    Example:
        >>> span(0.25), span(95), span(2 * 86_400)
        ('250 ms', '1.6 min', '2.0 days')
    """
    length = abs(seconds)
    if length < 1:
        return f"{seconds * 1_000:,.0f} ms"
    for limit, unit, word in ((_MINUTE, 1.0, "s"), (_HOUR, _MINUTE, "min"), (2 * _DAY, _HOUR, "h")):
        if length < limit:
            return f"{seconds / unit:.1f} {word}"
    return f"{seconds / _DAY:,.1f} days"


def milliseconds(value: float) -> str:
    """A time span given in milliseconds."""
    return span(value / 1_000)


def rate(per_second: float) -> str:
    """Rows in a second.

    Example:
        >>> rate(12_345.6), rate(0.25)
        ('12,346/s', '0.25/s')
    """
    return f"{per_second:,.0f}/s" if abs(per_second) >= 10 else f"{per_second:.2g}/s"


def percent(share: float) -> str:
    r"""A share of a whole, whose sign stays with its number.

    Example:
        >>> percent(0.412), percent(0.004)
        ('41\xa0%', '0.4\xa0%')
    """
    return f"{share * 100:.0f}{_SPACE}%" if share >= 0.1 or share == 0 else f"{share * 100:.1f}{_SPACE}%"


def amount(count: int, one: str, many: str | None = None) -> str:
    """A number of things.

    Example:
        >>> amount(1, "row"), amount(12_000, "row")
        ('1 row', '12,000 rows')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
