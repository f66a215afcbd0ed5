"""A slider that sets a shared variable, and says from which epoch on a query saw what it set."""

from __future__ import annotations

import contextvars
import math
import threading
import uuid
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets
import pyarrow as pa

from streamstate.errors import InvalidArgumentError, VariableConflictError, first_line
from streamstate.state_inspect.bound_versions import BoundVersions
from streamstate.state_inspect.values import cell, number, timestamp
from streamstate.variables.shared_variable import SharedVariable
from streamstate.widgets.live import hosts
from streamstate.widgets.live.loop import Loop
from streamstate.widgets.settings import refresh
from streamstate.widgets.variables.query_beside import FollowedQuery
from streamstate.widgets.variables.recorded_variable import SET, is_number

if TYPE_CHECKING:
    from streamstate.variables.version_bytes import Entry
    from streamstate.widgets.variables.query_beside import Query

HOW = {"init": "declared", "merge": "merged"}
_STEPS = 100
"""About so many steps a slider has, if nobody says how wide they are."""


class VariableSlider:
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
        >>> VariableSlider(limit, 0, 120, query=delays)  # doctest: +SKIP
        limit = 45.0: version 3, set 2026-03-01 12:00:00 +01:00 by ana@host:4711 · delays saw it from epoch 12 on
    """

    def __init__(
        self,
        variable: SharedVariable,
        least: float,
        most: float,
        *,
        step: float | None = None,
        query: Query | None = None,
    ) -> None:
        self._variable = variable
        # With a memory of its own for what it has shown, because that decides whether setting is a conflict.
        self._own = SharedVariable(variable.declaration, variable.transport, variable.storage_options)
        self._ends = _checked_ends(variable, least, most)
        self._query = None if query is None else FollowedQuery(query)
        self._bound: BoundVersions | None = None
        self._lock = threading.RLock()
        self._entry: Entry | None = None
        self._held_from: int | None = None
        self._value: Any = None
        self._shown = self._ends[0]
        self._refused = ""
        self._trouble = ""
        self._closed = False
        self._displays: list[str] = []
        self._slider = _slider(variable, self._ends, step)
        self._line = ipywidgets.HTML()
        self._box = ipywidgets.VBox([self._slider, self._line])
        self._context = contextvars.copy_context()
        self._follow()
        self._slider.observe(self._moved, names="value")
        self._loop = Loop(self._turn, f"streamstate-slider-{variable.name}", interrupt=_nothing, ended=_nothing)
        hosts.close_with_views(self)

    @property
    def widget(self) -> ipywidgets.VBox:
        """The Jupyter widget, for layouts."""
        return self._box

    @property
    def value(self) -> float | None:
        """The variable's value, as far as the slider knows; None if it has none."""
        return number(self._value)

    def __repr__(self) -> str:
        return self._words()

    def _ipython_display_(self) -> None:
        """Display under an id, so that closing can replace the slider by its last words."""
        from IPython.display import display

        data: dict[str, Any] = {}
        if not self._closed:
            shown: Any = self._box._repr_mimebundle_()
            data |= shown[0] if isinstance(shown, tuple) else shown
        data |= self._still()
        display_id = uuid.uuid4().hex
        display(data, raw=True, display_id=display_id)
        if not self._closed:
            self._displays.append(display_id)

    def close(self) -> None:
        """Stop following, and leave the last words in the slider's place. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        hosts.forget(self)
        self._loop.stop()
        self._loop.join()
        displays, self._displays = self._displays, []
        if displays:
            from IPython.display import update_display

            for display_id in displays:
                update_display(self._still(), raw=True, display_id=display_id)
        for widget in (self._box, self._line, self._slider):
            widget.close()

    def _still(self) -> dict[str, str]:
        return {"text/plain": self._words(), "text/html": f"<p>{escape(self._words())}</p>"}

    def _moved(self, change: Mapping[str, Any]) -> None:
        """Set what a person chose."""
        with self._lock:
            if change["new"] == self._shown or self._closed:
                return  # it was moved by _show
            self._context = contextvars.copy_context()
            self._refused = ""
            try:
                self._own.set(change["new"])
                self._variable.get()  # so that setting it in a cell is no conflict with this
            except VariableConflictError:
                self._refused = "Not set: another had set it meanwhile. The slider shows that value now."
            except Exception as problem:  # noqa: BLE001 (the line below the slider says it)
                self._refused = f"Not set: {first_line(problem)}"
            self._shown = change["new"]
            self._follow(moved=True)

    def _turn(self) -> tuple[float, bool]:
        """Follow what is set elsewhere; returns the seconds until the next turn, and that nothing was drawn."""
        with self._lock:
            if not self._closed:
                self._context.copy().run(self._follow)
        return refresh(), False

    def _follow(self, *, moved: bool = False) -> None:
        """Show the newest version, and the epoch that saw it first; ``moved``: the slider may stand elsewhere."""
        try:
            head = self._own.log.head()
            if moved or self._entry is None or head != self._entry.number:
                self._value = self._own.get()
                self._entry, self._held_from = self._own.log.entry(head), None
                self._show()
            self._look_for_epoch()
            self._trouble = ""
        except Exception as problem:  # noqa: BLE001 (the line below the slider says it)
            self._trouble = first_line(problem)
        self._say()

    def _show(self) -> None:
        """Move the slider to the value, or to the end that is next to it."""
        least, most = self._ends
        value = number(self._value)
        # Known before it moves: what the slider then reports by itself sets nothing.
        self._shown = least if value is None else type(least)(min(max(value, least), most))
        self._slider.value = self._shown

    def _look_for_epoch(self) -> None:
        history = None if self._query is None else self._query.history()
        if history is None or self._entry is None or self._held_from is not None:
            return
        if self._bound is None:
            self._bound = BoundVersions(history.recorded)
        self._held_from = self._bound.held_from(self._variable.name, self._entry.number)

    def _say(self) -> None:
        said = f'<span role="status">{escape(self._words())}</span>'
        if said != self._line.value:
            self._line.value = said

    def _words(self) -> str:
        words, entry = [self._refused, self._trouble], self._entry
        if entry is not None:
            when = timestamp(entry.at)
            how = f"set {when} by {entry.by}" if entry.kind == SET else f"{HOW.get(entry.kind, entry.kind)} {when}"
            now = f"{self._variable.name} = {cell(self._value).text}: version {entry.number}, {how}"
            words.append(f"{now} · {self._seen()}" if self._seen() else now)
        return " ".join(filter(None, words))

    def _seen(self) -> str:
        """From which epoch on the query saw it."""
        if self._query is None or not self._variable.declaration.is_bound:
            return ""
        if self._held_from is None:
            return f"no captured epoch of {self._query.name} has seen it yet"
        return f"{self._query.name} saw it from epoch {self._held_from} on"


def _nothing() -> None:
    pass


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


def _slider(variable: SharedVariable, ends: tuple[float, float], step: float | None) -> Any:
    whole = pa.types.is_integer(variable.declaration.type.arrow)
    make: Callable[..., Any] = ipywidgets.IntSlider if whole else ipywidgets.FloatSlider
    width = step_of(ends[1] - ends[0]) if step is None else step
    more = {} if whole else {"readout_format": f",.{max(0, -math.floor(math.log10(width)))}f"}
    return make(
        value=ends[0],
        min=ends[0],
        max=ends[1],
        step=max(1, round(width)) if whole else width,
        description=variable.name,
        continuous_update=False,
        style={"description_width": "initial"},
        layout={"width": "min(100%, 36em)"},
        **more,
    )


def step_of(extent: float) -> float:
    """About a hundredth of a range: 1, 2 or 5 times a power of ten.

    Example:
        >>> step_of(120), step_of(1), step_of(5000)
        (1.0, 0.01, 50.0)
    """
    power = 10.0 ** math.floor(math.log10(extent / _STEPS))
    return next(float(f"{factor * power:.6g}") for factor in (1, 2, 5, 10) if factor * power >= extent / _STEPS / 1.5)
