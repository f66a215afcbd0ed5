"""Numbers, times, sizes and ranges of epochs as people read them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

RUNS = 4
"""Ranges of epochs that a text lists one by one; beyond that it names the first and the last."""
UNITS = (("ms", 0.001), ("s", 1.0), ("min", 60.0), ("h", 3_600.0), ("d", 86_400.0))
"""The units that an axis of time can have, with the seconds in each."""


def amount(count: int, singular: str, plural: str | None = None) -> str:
    """Format a number of things.

    Example:
        >>> amount(1, "row"), amount(12_000, "row"), amount(2, "query", "queries")
        ('1 row', '12,000 rows', '2 queries')
    """
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def size(number: float) -> str:
    """Format a number of bytes, in decimal units.

    Example:
        >>> size(812), size(12_345), size(3_400_000)
        ('812 B', '12.3 kB', '3.4 MB')
    """
    if number < 1_000:
        return f"{number:.0f} B"
    for unit, factor in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if number < 999.95 * factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number / 1e12:,.1f} TB"


def span(seconds: float) -> str:
    """Format a span of time, rounded to two units at most; ``timeline.js`` rounds in the same way.

    Example:
        >>> [span(value) for value in (0.045, 2.31, 125, 7_300, 400_000_000, -3)]
        ['45 ms', '2.3 s', '2 min 5 s', '2 h 1 min', '4,629 days', '−3.0 s']
    """
    if seconds < 0:
        return f"−{span(-seconds)}"
    if seconds < 0.9995:
        return f"{round(seconds * 1000)} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24:,} days"


def unit_for(largest: float) -> tuple[str, float]:
    """Return the unit for an axis of time, and the seconds in it; ``largest`` is the axis' largest value, in seconds.

    Example:
        >>> unit_for(0.4), unit_for(90)
        (('ms', 0.001), ('s', 1.0))
    """
    for name, seconds in reversed(UNITS):
        if largest >= 2 * seconds:
            return name, seconds
    return UNITS[0]


def rate(per_second: float) -> str:
    """Rows per second.

    Example:
        >>> rate(12_345.6), rate(0.25)
        ('12,346/s', '0.25/s')
    """
    return f"{per_second:,.0f}/s" if abs(per_second) >= 10 else f"{per_second:.2g}/s"


def percent(share: float) -> str:
    r"""Return a share of a whole; the sign never wraps to the next line.

    Example:
        >>> percent(0.412), percent(0.004)
        ('41\xa0%', '0.4\xa0%')
    """
    digits = 0 if share >= 0.1 or share == 0 else 1
    return f"{share * 100:.{digits}f}\N{NO-BREAK SPACE}%"


def ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Ascending numbers as inclusive ranges, so that ten thousand epochs are a few pairs.

    Example:
        >>> ranges([0, 1, 2, 5, 6])
        [[0, 2], [5, 6]]
    """
    found: list[list[int]] = []
    at = 0
    while at < len(numbers):
        after = at + 1
        if after < len(numbers) and numbers[after] == numbers[at] + 1:
            # Within a range, the numbers grow as fast as their places.
            after = bisect_right(range(len(numbers)), numbers[at] - at, lo=at, key=lambda place: numbers[place] - place)
        found.append([numbers[at], numbers[after - 1]])
        at = after
    return found


def described(epochs: Sequence[int]) -> str:
    """Ascending epochs in words, with the gaps between them.

    Example:
        >>> described([0, 1, 2, 5, 6])
        '0–2, 5–6'
    """
    runs = [f"{first}–{last}" if first != last else f"{first}" for first, last in ranges(epochs)]
    return ", ".join(runs) if len(runs) <= RUNS else f"{runs[0]}, …, {runs[-1]} ({len(runs) - 1} gaps)"
