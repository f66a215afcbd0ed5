"""Watched expressions: what each is at an epoch, how far it moved there, and its course over the epochs before."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from streamstate.widgets.debugger.seen import Seen
from streamstate.widgets.diffs.rows import signed
from streamstate.widgets.values import Cell, canonical, cell, plain

__all__ = ["Watched", "watched"]


@dataclass(frozen=True)
class Watched:
    """One expression.

    Attributes:
        expression: as a person wrote it.
        now: its value at the epoch.
        was: its value at the epoch before, where that is another.
        moved: how far it moved, where that is a number.
        course: the numbers that it was, the oldest first, with None where it was none; empty where it never was one.
    """

    expression: str
    now: Cell
    was: Cell | None = None
    moved: str = ""
    course: tuple[float | None, ...] = ()

    def message(self) -> dict[str, Any]:
        """In JSON types."""
        return asdict(self) | {"course": list(self.course)}


def watched(now: Seen, epoch: int) -> tuple[int | None, list[Watched]]:
    """What is watched, at the newest known epoch up to one, and which epoch that is; None where nothing is known."""
    places = [at for at, known in enumerate(now.watched) if known <= epoch]
    if not places:
        return None, [Watched(name, cell(None)) for name in now.values]
    at = places[-1]
    return now.watched[at], [_watched(name, values, at) for name, values in now.values.items()]


def _watched(name: str, values: tuple[Any, ...], at: int) -> Watched:
    value, before = plain(values[at]), plain(values[at - 1]) if at else None
    numbers = tuple(_number(one) for one in values[: at + 1])
    course = numbers if sum(one is not None for one in numbers) > 1 else ()
    if not at or canonical(value) == canonical(before):
        return Watched(name, cell(value), course=course)
    return Watched(name, cell(value), cell(before), _moved(before, value), course)


def _number(value: Any) -> float | None:
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    number = float(value)
    return number if abs(number) < float("inf") else None  # NaN compares as no number


def _moved(before: Any, value: Any) -> str:
    """The difference of two numbers or times, with its sign."""
    numbers = (int, float, Decimal)
    if isinstance(before, numbers) and isinstance(value, numbers) and not isinstance(value, bool):
        if isinstance(before, Decimal) != isinstance(value, Decimal):
            before, value = float(before), float(value)
        return signed(value - before)
    if isinstance(before, dt.datetime) and isinstance(value, dt.datetime):
        return signed(value - before)
    return ""
