"""The SQL tab of a served page: a statement over the store, and the first rows of its result."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.calls.html import Html
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.state_inspect.cell_text import Cell
from streamstate.state_inspect.results.results import shown_columns
from streamstate.widgets.address_fields import LONGEST, in_address
from streamstate.widgets.model import PAGE_ACTIONS, SIZES, Drawing, ViewModel, applied, first_row, tables_shown
from streamstate.widgets.number_text import amount, described
from streamstate.widgets.still import frame, table
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect import History
    from streamstate.widgets.page.statements import Statements

_KEPT = 4
"""The results that are kept for turning pages, the newest ones."""


@dataclass(frozen=True)
class StatementSelection:
    """The statement that was run, and the page of its result."""

    sql: str = in_address(str, "")
    page: int = in_address(int, 0)
    size: int = in_address(int, SIZES[1], among=SIZES)


@dataclass(frozen=True)
class Relation:
    """A relation that a statement can read."""

    name: str
    columns: Sequence[str]


@dataclass(frozen=True)
class StatementDrawing:
    """A page of a result; ``busy`` while the statement runs, and ``problem`` says why there is no result."""

    name: str
    selection: StatementSelection
    relations: Sequence[Relation] = ()
    busy: bool = False
    problem: str = ""
    summary: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Mapping[str, Any]]] = ()
    offset: int = 0
    total: int = 0

    def message(self) -> dict[str, Any]:
        """As JSON types."""
        relations = [vars(relation) for relation in self.relations]
        return vars(self) | {"selection": vars(self.selection), "relations": relations}

    def text(self) -> str:
        """Return the statement and the size of its result."""
        return f"{self.name}: {self.selection.sql} {self.problem or self.summary}".strip()

    def html(self) -> Html:
        """Return the rows as a table."""
        cells = ([Cell(**each) for each in row] for row in self.rows)
        return frame(self.name, [self.problem or self.summary], table("Result", self.columns, cells))


class StatementModel(ViewModel[StatementSelection]):
    """Runs a statement once, and turns the pages of its result."""

    kind = "sql"

    def __init__(self, history: History, statements: Statements) -> None:
        self.history = history
        self.name = history.name
        self._statements = statements
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def newest(self) -> object:
        """Return the tables that can be read; a result stays as it is until its statement is run again."""
        return tables_shown(self.history) if self.history.captured() else []

    def view(self, selection: StatementSelection, *, whole: bool = True) -> StatementDrawing:
        """Return the page of the result; without ``whole``, a statement that has not run yet is ``busy``."""
        drawing = StatementDrawing(self.name, selection, self._relations())
        if not selection.sql.strip():
            return drawing
        if len(selection.sql) > LONGEST:
            size = f"{len(selection.sql):,} characters; at most {LONGEST:,} are allowed"
            return replace(drawing, problem=f"The statement has {size}. Run it in a notebook: %%statesql.")
        with self._lock:
            answer = self._answers.get(selection.sql)
        if answer is None and not whole:
            return replace(drawing, busy=True)
        return _with_answer(drawing, answer or self._run(selection.sql))

    @consistent_read()
    def quick(self, selection: StatementSelection) -> Drawing:
        """Return the drawing without a result that has to be computed."""
        view = self.view(selection, whole=False)
        return Drawing(view.message(), view, unfinished=view.busy)

    def acted(self, selection: StatementSelection, action: str, value: Any, kept: Any) -> StatementSelection:
        """Return the selection after an action. Running a statement again computes its result again."""
        if action == "run":
            with self._lock:
                self._answers.pop(str(value), None)
            return replace(selection, sql=str(value)[: LONGEST + 1], page=0)
        return applied(PAGE_ACTIONS, selection, action, value)

    def release(self) -> None:
        """Drop the results."""
        with self._lock:
            self._answers.clear()

    def _run(self, sql: str) -> dict[str, Any]:
        answer = self._statements.run(sql)
        with self._lock:
            self._answers[sql] = answer
            while len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
        return answer

    def _relations(self) -> list[Relation]:
        """Return the relations of this query that the statement can read."""
        if not self.history.captured():
            return []
        tables = {name: shown_columns(self.history.recorded, name) for name in tables_shown(self.history)}
        return [
            Relation(f"{self.name}.{name}", [*found.key_columns, *found.value_columns])
            for name, found in tables.items()
        ]


def _with_answer(drawing: StatementDrawing, answer: Mapping[str, Any]) -> StatementDrawing:
    """Return the drawing with a page of an answer."""
    if "problem" in answer:
        return replace(drawing, problem=answer["problem"])
    rows, selection = answer["rows"], drawing.selection
    start = first_row(selection.page, selection.size, len(rows))
    size = f"the first {amount(len(rows), 'row')}" if answer["more"] else amount(len(rows), "row")
    read = [f"{name} at epoch {described(sorted(epochs))}" for name, epochs in answer["epochs"].items()]
    return replace(
        drawing,
        summary=" · ".join([size, *read]),
        columns=answer["columns"],
        rows=rows[start : start + selection.size],
        offset=start,
        total=len(rows),
    )


class StatementView(View[StatementSelection]):
    """Runs SQL over the store, as ``store.sql`` does, with limits on time, memory and rows."""

    def __init__(self, history: History, statements: Statements) -> None:
        super().__init__(StatementModel(history, statements), StatementSelection())
