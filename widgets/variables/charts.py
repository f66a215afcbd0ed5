"""The plots of a shared variable, and of the query that uses it, over the same epochs or versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamstate.state_inspect.cell_text import number
from streamstate.widgets.chart import (
    ACCENT,
    CHANGED,
    CLOSE,
    EPOCHS,
    Chart,
    aligned,
    bars,
    layer,
    only,
    quantity,
    tooltips,
)

HEIGHT = 90
_AXIS = 48
"""Pixels that each plot reserves for its labels, so that the epochs are aligned."""
_FEW = 60
"""Up to so many values, each has a dot; beyond that, only those that were set."""
_SHOWN = 4
"""The most numbers of one value, such as a struct's fields, that have a plot."""


@dataclass(frozen=True)
class Span:
    """The axis of the plots: epochs of a query, or versions.

    Attributes:
        first, last: its ends.
        title: what is counted.
    """

    first: int
    last: int
    title: str

    def ends(self) -> list[dict[str, Any]]:
        """Return the two ends, as invisible data: with them, the plots share an axis."""
        return [{"kind": "end", "x": self.first - 0.5}, {"kind": "end", "x": self.last + 0.5}]


@dataclass(frozen=True)
class Held:
    """A value, and from where on it held.

    Attributes:
        x: the epoch or version.
        value: the value.
        what: how it came about, in words.
        is_set: whether a person set it.
    """

    x: int
    value: Any
    what: str
    is_set: bool = False


def numbers_in(value: Any, merge: str) -> dict[str, float | None]:
    """Return the numbers in a value, by name: itself, the fields of a struct, or the coefficients of a regression.

    Example:
        >>> numbers_in({"n": 2, "mean": 0.5}, "moments"), numbers_in(45, "last"), numbers_in("a", "last")
        ({'n': 2.0, 'mean': 0.5}, {'': 45.0}, {})
    """
    if merge == "regression" and isinstance(value, list):
        return {"intercept" if not at else f"coefficient {at}": number(part) for at, part in enumerate(value)}
    if isinstance(value, Mapping):
        return {name: known for name, part in value.items() if (known := number(part)) is not None}
    known = number(value)
    return {} if known is None else {"": known}


def value_charts(name: str, held: Sequence[Held], merge: str, span: Span) -> Iterator[Chart]:
    """Yield a plot for each number of the values: a step where another value began to hold."""
    newest = next((numbers_in(one.value, merge) for one in reversed(held) if one.value is not None), {})
    for part in list(newest)[:_SHOWN]:
        rows = [_value_row(one, numbers_in(one.value, merge).get(part)) for one in held]
        last = {**rows[-1], "x": span.last + 0.5, "dot": None}
        title = f"{part} of {name}" if part else name
        yield Chart(
            f"{title}, by {span.title}", _steps(span, few=len(rows) <= _FEW), [*span.ends(), *rows, last], HEIGHT
        )


def increment_chart(name: str, added: Sequence[Held], span: Span) -> Chart:
    """Bars: by how much a counter grew."""
    rows = [
        {"kind": "bar", "first": one.x - 0.5, "last": one.x + 0.5, "y": one.value, "what": one.what} for one in added
    ]
    return Chart(f"Added to {name}, by {span.title}", _bars(span, many=len(rows) > _FEW), [*span.ends(), *rows], HEIGHT)


def state_chart(rows: Mapping[int, int | None], span: Span) -> Chart:
    """Return the plot of a query's state rows."""
    points = [{"kind": "value", "x": epoch, "y": count} for epoch, count in rows.items()]
    return Chart(f"State rows, by {span.title}", _line(span), [*span.ends(), *points], HEIGHT)


def _value_row(one: Held, value: float | None) -> dict[str, Any]:
    # A value holds from half an epoch before its first epoch: the value that an epoch saw is drawn above its number.
    return {
        "kind": "value",
        "x": one.x - 0.5,
        "dot": one.x,
        "y": value,
        "from": one.x,
        "what": one.what,
        "set": one.is_set,
    }


def _layered(span: Span, *layers: dict[str, Any]) -> dict[str, Any]:
    return {"layer": [layer("end", {"type": "rule", "opacity": 0}, x=_x(span)), *layers]}


def _x(span: Span, field: str = "x") -> dict[str, Any]:
    return quantity(field, title=span.title, scale=CLOSE, axis=EPOCHS | {"format": ",d"})


def _y(*, zero: bool) -> dict[str, Any]:
    label = "format(datum.value, abs(datum.value) < 1e4 ? ',.4~r' : '~s')"
    return quantity("y", title=None, scale={"zero": zero}, axis=aligned(_AXIS, tickCount=3, labelExpr=label))


def _steps(span: Span, *, few: bool) -> dict[str, Any]:
    dots = {"filter": "isValid(datum.dot)" + ("" if few else " && datum.set")}
    line = {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "color": ACCENT}
    points = {
        "transform": [*only("value"), dots],
        "mark": {"type": "point", "filled": True, "opacity": 1},
        "encoding": {
            "x": _x(span, "dot"),
            "y": _y(zero=False),
            "size": {"condition": {"test": "datum.set", "value": 50}, "value": 18},
            "color": {"condition": {"test": "datum.set", "value": CHANGED}, "value": ACCENT},
            "tooltip": tooltips({"from": f"from {span.title}", "y": "value", "what": "how"}),
        },
    }
    return _layered(span, layer("value", line, x=_x(span), y=_y(zero=False)), points)


def _bars(span: Span, *, many: bool) -> dict[str, Any]:
    over = {"x": _x(span, "first"), "x2": {"field": "last"}, "y": _y(zero=True), "y2": {"datum": 0}}
    tooltip = tooltips({"y": "added", "what": "by"})
    return _layered(span, layer("bar", bars(many=many), **over, tooltip=tooltip))


def _line(span: Span) -> dict[str, Any]:
    line = {"type": "line", "strokeWidth": 1.5, "point": {"size": 12, "filled": True}, "tooltip": True}
    return _layered(span, layer("value", line, x=_x(span), y=_y(zero=False)))
