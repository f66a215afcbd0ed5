"""The status of a query below the cell that started it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from streamstate.errors import first_line
from streamstate.launch.query_status import full_line, line_html
from streamstate.snapshots.calls.html import Html
from streamstate.widgets.model import NoSelection, ViewModel
from streamstate.widgets.tables.summary_table import state_cell
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.launch.running import Running


@dataclass(frozen=True)
class StatusDrawing:
    """A query's status: its name, its state, and the rest of the line, with the sign of the state."""

    name: str
    state: str
    rest: str
    sign: str = ""
    colour: str = ""

    def message(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)

    def text(self) -> str:
        """Return the line."""
        return f"{self.name} is {self.state}{self.rest}"

    def html(self) -> Html:
        """Return the line in the past tense and without the sign, because a saved notebook keeps it."""
        return line_html(self.name, f"{self.name} was {self.state}{self.rest}")


class RunningModel(ViewModel[NoSelection]):
    """Reads the status of a query, through its restarts."""

    kind = "query_status"
    again = "to resume the query"

    def __init__(self, running: Running) -> None:
        self.name = running.name
        self._running = running

    def newest(self) -> object:
        """Return the status, without what changes all the time."""
        return self.view(NoSelection())

    def view(self, selection: NoSelection) -> StatusDrawing:
        """Return the status now."""
        try:
            status = self._running.newest.status()
        except Exception as problem:  # noqa: BLE001 (py4j raises many errors when the JVM is gone; the line shows it)
            return StatusDrawing(self.name, "unreachable", f": Spark does not answer: {first_line(problem)}")
        cell, line = state_cell(status.state), full_line(status)
        rest = line.removeprefix(f"{self.name} is {status.state}")
        return StatusDrawing(self.name, status.state, rest, cell.sign, cell.colour)


class RunningView(View[NoSelection]):
    """Shows what a query is doing, in one line. A query's handle shows this view at the end of a notebook's cell."""

    def __init__(self, running: Running) -> None:
        super().__init__(RunningModel(running), NoSelection())
