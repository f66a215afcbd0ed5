"""Explanations of keys' changes in a view: read once each, where the input can be read, and drawn.

A drawing is plain data, JSON for a page, text and still HTML.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import StreamStateError
from streamstate.snapshots.calls.html import Html, joined, tag
from streamstate.snapshots.spark.connect import uses_connect
from streamstate.snapshots.store.query_plans.plan_table import LivePlan, live_plan
from streamstate.state_inspect.cell_text import Cell, canonical, cell, key_text
from streamstate.state_inspect.frames import frame_cells, with_values
from streamstate.state_inspect.temporal_index.query_interrupts import QueryStopped, interruptible
from streamstate.widgets.number_text import amount
from streamstate.widgets.still import STILL_COLUMNS, table, td

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from streamstate.state_inspect import History, Why
    from streamstate.state_inspect.inputs.shown_rows import InputSides

_COLUMNS = 50
"""The most columns of a table; an input row may have thousands."""
_STILL_ROWS = 10
"""Rows in a saved notebook."""
_KEPT = 8
"""Answers that are kept, the newest ones."""
_SERVED = (
    "A served page shows what the store holds. The owner of a query sees the input rows behind a change:"
    " streamstate serve STORE --code MODULE:FUNCTION, or history.why(epoch, key) in a notebook."
)


@dataclass(frozen=True)
class WhyRow:
    """A row of cells, with its name if it has one; without cells, the key was absent."""

    cells: Sequence[Cell]
    name: str = ""


@dataclass(frozen=True)
class WhyTable:
    """A table of the panel: ``differ`` are its columns whose value changed, ``note`` says what is left out."""

    title: str
    columns: Sequence[str]
    rows: Sequence[WhyRow]
    differ: Sequence[int] = ()
    note: str = ""

    def html(self) -> Html:
        """Return the table with its title, without scripts."""
        columns = self.columns[:STILL_COLUMNS]
        names = any(row.name for row in self.rows)
        rows = ([*([row.name] if names else []), *self._still(row)] for row in self.rows[:_STILL_ROWS])
        short = f"The first {_STILL_ROWS} are shown." if len(self.rows) > _STILL_ROWS else ""
        title = " ".join(filter(None, [self.title, self.note, short]))
        return joined(tag("p", title), table(self.title, [*([""] if names else []), *columns], rows))

    def _still(self, row: WhyRow) -> list[Html]:
        cells = [td(value, changed=at in self.differ) for at, value in enumerate(row.cells[:STILL_COLUMNS])]
        return cells or [td(Cell("absent", "null"))]


@dataclass(frozen=True)
class WhyPanel:
    """The explanation of a key's change in an epoch; ``problem`` says why there is none.

    ``nearest`` are the epochs before and after at which the key changed, None where there is none.
    """

    key: str
    epoch: int
    busy: bool = False
    problem: str = ""
    summary: str = ""
    nearest: tuple[int | None, int | None] = (None, None)
    tables: Sequence[WhyTable] = ()

    def message(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)

    def text(self) -> str:
        """As a part of a line of text."""
        return f"why at epoch {self.epoch}: {self.summary or self.problem or 'not read yet'}"

    def html(self) -> Html:
        """As tables, without scripts."""
        title = tag("strong", f"Why {self.key} changed in epoch {self.epoch}")
        answer = self.summary or self.problem or "not read yet"
        return joined(tag("p", title, f" · {answer}"), [shown.html() for shown in self.tables])


def panel_of(why: Why, key: Mapping[str, Any]) -> WhyPanel:
    """Return the panel of an answer."""
    panel = WhyPanel(key_text(key), why.epoch)
    values = _changes(why.changes) if why.is_join else [_before_and_after(why)]
    moved = [] if why.moved is None else [_moved(why.moved, why.epoch)]
    rows = [*_rows("Input", why), *_rows("Dropped as late", why.late_rows)]
    return replace(panel, summary=_summary(why), nearest=why.nearest, tables=[*values, *rows, *moved])


def _summary(why: Why) -> str:
    came = f"{amount(why.count(), 'input row')} fell on it"
    late = f"{amount(why.dropped, 'row')} dropped as late" if why.dropped else ""
    cause = f"cause: {why.cause}" if why.cause else "its state did not change"
    return " · ".join(filter(None, [came, late, cause, why.may_differ]))


def _before_and_after(why: Why) -> WhyTable:
    before, after = (row or {} for row in why.shown_values)
    columns = [name for name in after or before if name not in why.key]
    both = [(before.get(name), after.get(name)) for name in columns]
    compared = enumerate(both) if before and after else ()
    differ = [at for at, (old, new) in compared if canonical(old) != canonical(new)]
    rows = [
        WhyRow([cell(row[name]) for name in columns] if row else [], label)
        for label, row in (("before", before), ("after", after))
    ]
    return _short(WhyTable("Before and after", columns, rows, differ))


def _changes(changes: pd.DataFrame) -> list[WhyTable]:
    """Return the changes of a join's state by table: both sides have columns of their own."""
    shown = changes.drop(columns=[name for name in ("epoch", "committed_at") if name in changes])
    tables = shown.pop("table") if "table" in shown else None
    if tables is None:
        return []
    return [_of_frame(f"Changes of {name}", with_values(shown[tables == name])) for name in dict.fromkeys(tables)]


def _rows(title: str, found: InputSides) -> Iterator[WhyTable]:
    """Yield a table for each side that has rows."""
    for side, frame in found.shown.items():
        if count := found.counts[side]:
            note = f"The first {len(frame):,} of {count:,} rows." if count > len(frame) else ""
            yield _of_frame(title if side == "rows" else f"{title}, {side} side", frame, note)


def _moved(row: Mapping[str, Any], epoch: int) -> WhyTable:
    title = f"The row of epoch {epoch - 1} that moved the watermark"
    return _short(WhyTable(title, [*row], [WhyRow([cell(value) for value in row.values()])]))


def _of_frame(title: str, frame: pd.DataFrame, note: str = "") -> WhyTable:
    rows = [WhyRow(cells) for cells in frame_cells(frame.iloc[:, :_COLUMNS])]
    return _short(WhyTable(title, [str(name) for name in frame.columns], rows, note=note))


def _short(whole: WhyTable) -> WhyTable:
    """Return the table with as many columns as are shown."""
    if len(whole.columns) <= _COLUMNS:
        return whole
    rows = [replace(row, cells=row.cells[:_COLUMNS]) for row in whole.rows]
    note = f"{whole.note} The first {_COLUMNS} of {len(whole.columns):,} columns.".strip()
    return replace(whole, columns=whole.columns[:_COLUMNS], rows=rows, note=note)


class WhyReader:
    """Explanations of the changes of one query's keys. Thread-safe."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._served = False
        self._lock = threading.Lock()
        self._found: dict[Any, WhyPanel] = {}

    def serve(self) -> None:
        """Refuse from now on: viewers of a served page see no input, and run nothing on Spark."""
        self._served = True

    def why_not(self) -> str:
        """Return the reason why the input cannot be read here, and what to do; empty if it can."""
        if self._served:
            return _SERVED
        name = self._history.name
        return "" if self._planned() or _read_by_worker() else (
            "The input rows behind a change can be shown where the query's plan is known: start the query in this"
            f' process, or describe it with streamstate.open_store(store)["{name}"].describe(build_query).'
        )  # fmt: skip

    def panel(self, table: str, key: Mapping[str, Any], epoch: int, *, whole: bool) -> WhyPanel:
        """Return the answer; without ``whole``, one that is still to be read is ``busy``."""
        at = (table, canonical(key), epoch)
        with self._lock:
            known = self._found.get(at)
        if known is not None:
            return known
        if not whole:
            return WhyPanel(key_text(key), epoch, busy=True)
        read = self._read(table, key, epoch)
        with self._lock:
            self._found[at] = read
            for old in list(self._found)[:-_KEPT]:
                del self._found[old]
        return read

    def again(self) -> None:
        """Try again what failed, because a person asks again."""
        with self._lock:
            self._found = {at: panel for at, panel in self._found.items() if not panel.problem}

    def _planned(self) -> LivePlan | None:
        return live_plan(self._history.recorded.layout, self._history.name, None)

    def _read(self, table: str, key: Mapping[str, Any], epoch: int) -> WhyPanel:
        blank = WhyPanel(key_text(key), epoch)
        planned = self._planned()
        if problem := self.why_not():
            return replace(blank, problem=problem)
        try:
            with _jobs(planned.spark) if planned else contextlib.nullcontext():
                return panel_of(self._history.why(epoch, table=table, key=dict(key)), key)
        except StreamStateError as problem:
            return replace(blank, problem=str(problem))
        except QueryStopped:
            raise
        except Exception as problem:  # noqa: BLE001 (the panel shows it; the view would try again twice a second)
            line = str(problem).strip().partition("\n")[0] or type(problem).__name__
            return replace(blank, problem=f"Spark could not read the input again: {line}")


def _read_by_worker() -> bool:
    """Return whether the input is read in a worker process, which alone knows the plans that were described."""
    return "pyspark" in sys.modules and uses_connect()


class _TaggedJobs:
    """Jobs of Spark with a tag."""

    def __init__(self, spark: SparkSession) -> None:
        self.context = spark.sparkContext
        self.tag = f"streamstate-why-{uuid.uuid4().hex}"

    def interrupt(self) -> None:
        """Cancel those that run now."""
        self.context.cancelJobsWithTag(self.tag)


@contextlib.contextmanager
def _jobs(spark: SparkSession) -> Iterator[None]:
    """Jobs of Spark that this thread starts in the block end when a newer request overtakes the drawing."""
    jobs = _TaggedJobs(spark)
    jobs.context.addJobTag(jobs.tag)
    try:
        with interruptible(jobs, Exception):  # which error depends on where Spark was
            yield
    finally:
        jobs.context.removeJobTag(jobs.tag)
