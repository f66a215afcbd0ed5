"""Seconds as people say them. ``timeline.js`` says them in the same way."""

from __future__ import annotations

__all__ = ["UNITS", "span", "unit_for"]

UNITS = (("ms", 0.001), ("s", 1.0), ("min", 60.0), ("h", 3_600.0), ("d", 86_400.0))
"""What an axis of time can be in, with the seconds in one."""


def span(seconds: float) -> str:
    """A span of time, rounded to what matters in it.

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
    """The unit of an axis whose largest value is given in seconds: its name, and its seconds.

    Example:
        >>> unit_for(0.4), unit_for(90)
        (('ms', 0.001), ('s', 1.0))
    """
    for name, seconds in reversed(UNITS):
        if largest >= 2 * seconds:
            return name, seconds
    return UNITS[0]
