"""A slider that sets a shared variable, and says from which epoch on a query saw what it set."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, VariableConflictError, first_line
from streamstate.snapshots.calls.html import Html, tag
from streamstate.state_inspect.analytics.columns import is_number
from streamstate.state_inspect.bound_versions import BoundVersions
from streamstate.state_inspect.cell_text import cell, number, timestamp
from streamstate.variables.shared_variable import SharedVariable
from streamstate.widgets.model import NoSelection, ViewModel
from streamstate.widgets.still import frame
from streamstate.widgets.variables.model import FollowedQuery
from streamstate.widgets.variables.recorded_variable import SET
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.variables.version_bytes import VersionEntry
    from streamstate.widgets.variables.model import Query

HOW = {"init": "declared", "merge": "merged"}
_STEPS = 100
"""The number of steps, roughly, if the step is not given."""


@dataclass(frozen=True)
class SliderDrawing:
    """A slider: its ends, where it is, and what its value and its version are, in words."""

    name: str
    least: float
    most: float
    step: float
    value: float
    decimals: int
    sentence: str

    def message(self) -> dict[str, Any]:
        """As JSON types."""
        return dict(vars(self))

    def text(self) -> str:
        """Return the words."""
        return self.sentence

    def html(self) -> Html:
        """Return the words, and the value between the ends."""
        least, most = (f"{end:,.{self.decimals}f}" for end in (self.least, self.most))
        meter = tag("meter", aria_label=self.name, min=self.least, max=self.most, value=self.value)
        return frame(self.name, [], tag("p", f"{least} ", meter, f" {most}"), tag("p", self.sentence))


class SliderModel(ViewModel[NoSelection]):
    """Follows a variable, and sets it."""

    kind = "variable_slider"
    again = "to set it"

    def __init__(
        self, variable: SharedVariable, ends: tuple[float, float], step: float | None, query: FollowedQuery | None
    ) -> None:
        self.name = variable.name
        self._variable = variable
        # With a memory of its own for what it has shown, because that decides whether setting is a conflict.
        self._own = SharedVariable(variable.declaration, variable.transport, variable.storage_options)
        self._ends = ends
        self._step = _step(variable, ends, step)
        self._query = query
        self._bound: BoundVersions | None = None
        self._lock = threading.RLock()
        self._entry: VersionEntry | None = None
        self._held_from: int | None = None
        self._value: Any = None
        self._refused = ""

    @property
    def value(self) -> float | None:
        """The variable's newest value; None if it has none."""
        with self._lock:
            self._follow()
            return number(self._value)

    def newest(self) -> object:
        """Return the newest version, the epoch that saw it first, and why nothing was set."""
        with self._lock:
            self._follow()
            return self._entry, self._held_from, self._refused

    def view(self, selection: NoSelection) -> SliderDrawing:
        """Return the slider's position: the value, or the end next to it."""
        with self._lock:
            self._follow()
            least, most = self._ends
            value = number(self._value)
            at = least if value is None else min(max(value, least), most)
            decimals = 0 if isinstance(self._step, int) else max(0, -math.floor(math.log10(self._step)))
            return SliderDrawing(self.name, least, most, self._step, at, decimals, self._sentence())

    def acted(self, selection: NoSelection, action: str, value: Any, kept: Any) -> NoSelection:
        """Set the variable; the selection stays the same."""
        (least, most), fits = self._ends, isinstance(value, int | float) and not isinstance(value, bool)
        if action == "set" and fits and least <= value <= most:
            with self._lock:
                self._set(type(least)(value))
        return selection

    def _set(self, value: float) -> None:
        self._refused = ""
        try:
            self._own.set(value)
            self._variable.get()  # so that setting it in a cell is no conflict with this
        except VariableConflictError:
            self._refused = "Not set: another had set it meanwhile. The slider shows that value now."
        except Exception as problem:  # noqa: BLE001 (the line below the slider shows it)
            self._refused = f"Not set: {first_line(problem)}"

    def _follow(self) -> None:
        """Read the newest version, and look for the first epoch that saw it."""
        head = self._own.log.head()
        if self._entry is None or head != self._entry.number:
            self._value = self._own.get()
            self._entry, self._held_from = self._own.log.entry(head), None
        history = None if self._query is None else self._query.history()
        if history is None or self._held_from is not None:
            return
        if self._bound is None:
            self._bound = BoundVersions(history.recorded)
        self._held_from = self._bound.held_from(self.name, self._entry.number)

    def _sentence(self) -> str:
        """Return the value, its version, and the epoch that saw it first."""
        entry = self._entry
        assert entry is not None
        when = timestamp(entry.at)
        how = f"set {when} by {entry.by}" if entry.kind == SET else f"{HOW.get(entry.kind, entry.kind)} {when}"
        now = f"{self.name} = {cell(self._value).text}: version {entry.number}, {how}"
        return " ".join(filter(None, [self._refused, " · ".join(filter(None, [now, self._seen()]))]))

    def _seen(self) -> str:
        """From which epoch on the query saw it."""
        if self._query is None or not self._variable.declaration.is_bound:
            return ""
        if self._held_from is None:
            return f"no captured epoch of {self._query.name} has seen it yet"
        return f"{self._query.name} saw it from epoch {self._held_from} on"


class VariableSlider(View[NoSelection]):
    """A slider that sets a number, for the next epoch that begins.

    A line below it says which version that is and, for a query, from which epoch on it held. The slider follows what is
    set elsewhere. If another has set the variable meanwhile, nothing is set: the line says so, and the slider moves to
    the newest value.

    Args:
        variable: the variable: a number whose merge keeps it as it is set, such as ``last``.
        least: the value at the left end.
        most: the value at the right end.
        step: how far apart values are; by default about a hundredth of the range.
        query: a query that uses the variable: its history, or what :func:`streamstate.start` returned.

    Raises:
        InvalidArgumentError: the variable is no such number, or the ends are not in order.

    Example:
        >>> VariableSlider(limit, 0, 120, query=delays)
        limit = 45: version 1, set ... by ...@... · no captured epoch of delays has seen it yet
    """

    model: SliderModel

    def __init__(
        self,
        variable: SharedVariable,
        least: float,
        most: float,
        *,
        step: float | None = None,
        query: Query | None = None,
    ) -> None:
        followed = None if query is None else FollowedQuery(query)
        super().__init__(SliderModel(variable, _checked_ends(variable, least, most), step, followed), NoSelection())

    @property
    def value(self) -> float | None:
        """The variable's newest value; None if it has none."""
        return self.model.value


def _checked_ends(variable: SharedVariable, least: float, most: float) -> tuple[float, float]:
    made = variable.declaration
    arrow = made.type.arrow
    if not is_number(arrow) or pa.types.is_decimal(arrow) or made.merge not in ("last", "sum", "min", "max"):
        raise InvalidArgumentError(
            f"{made.name} is a {made.type.text}, merge {made.merge}: a slider sets a number.\nDeclare it as a double,"
            " float, int or bigint."
        )
    for end in (least, most):
        if number(end) is None:
            raise InvalidArgumentError(f"Invalid end {end!r} of the slider for {made.name}: expected a number.")
    if not least < most:
        raise InvalidArgumentError(f"Invalid ends {least!r} and {most!r}: the least value comes first.")
    whole = pa.types.is_integer(arrow)
    return (math.ceil(least), math.floor(most)) if whole else (float(least), float(most))


def _step(variable: SharedVariable, ends: tuple[float, float], step: float | None) -> float:
    width = step_of(ends[1] - ends[0]) if step is None else step
    return max(1, round(width)) if pa.types.is_integer(variable.declaration.type.arrow) else float(width)


def step_of(extent: float) -> float:
    """Return a step that is about a hundredth of a range: 1, 2 or 5 times a power of ten.

    Example:
        >>> step_of(120), step_of(1), step_of(5000)
        (1.0, 0.01, 50.0)
    """
    power = 10.0 ** math.floor(math.log10(extent / _STEPS))
    return next(float(f"{factor * power:.6g}") for factor in (1, 2, 5, 10) if factor * power >= extent / _STEPS / 1.5)
