"""Rows of the result that wait for the watermark: windows in append mode, and rows of an outer join without a match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from streamstate.snapshots.checkpoint.state_tables import JOIN, operator_number
from streamstate.snapshots.store.duckdb_sql import database_errors, quoted
from streamstate.snapshots.store.epoch_progress import MOST, EpochProgress
from streamstate.snapshots.store.query_plans.query_plan import Expression, OperatorPlan, QueryPlan, TablePlan
from streamstate.state_inspect.advice.advice import Advice
from streamstate.state_inspect.advice.growing import Reads, removed_rows
from streamstate.state_inspect.advice.kept_states import OUTER
from streamstate.state_inspect.advice.stall import IdleSource
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.cell_text import timestamp
from streamstate.state_inspect.results.duckdb_expressions import UntranslatableError, in_duckdb
from streamstate.state_inspect.temporal_index.interval_table import held_at
from streamstate.state_inspect.unix_time import from_microseconds, microseconds

_FEWEST = 3
"""Epochs with input after which something may have been returned."""
_AGGREGATION, _SESSIONS = "stateStoreSave", "sessionWindowStateStoreSaveExec"
_WINDOW, _SESSION, _ROW, _UNMATCHED = "window", "session", "row", "row without a match"
_WAITS_FOR = {
    _WINDOW: "append mode waits for the end of each window",
    _SESSION: "append mode waits for the end of each session",
    _ROW: "append mode waits for the event time of each",
    _UNMATCHED: "an outer join waits until no match can come any more",
}


@dataclass(frozen=True)
class TimedRows:
    """The rows of a state table that the watermark has not passed yet."""

    count: int
    times: int
    """The number of different times: that of the windows, if the times are the ends of windows."""
    first: datetime | None
    """The earliest of their times; None without rows."""
    newest: datetime | None
    """A time that their newest event has at least; None without rows."""


def timed_rows(
    query: CapturedQuery, table: str, plan: TablePlan, epoch: int, passed: datetime | None, *, unmatched: bool = False
) -> TimedRows | None:
    """Return the rows of a state table that the watermark has to pass for Spark to remove them.

    ``passed`` is the watermark that has passed the other rows; ``unmatched`` leaves out rows of a join with a partner.

    Returns:
        None if the times cannot be computed here.
    """
    log = query.columns(table)
    names = {"key": log.key_columns, "value": log.value_columns}
    if plan.time is None or (unmatched and "matched" not in log.value_columns):
        return None
    try:
        time, begin = (_micros(tree, names) for tree in (plan.time, _begin(plan.time)))
    except UntranslatableError:
        return None
    held = query.interval_table(table, epoch, epoch)
    bound = -1 if passed is None else microseconds(passed) - plan.behind
    where = [held_at(epoch), f"{time} > {bound}", *(["NOT matched"] if unmatched else [])]
    facts = f"count(*) AS n, count(DISTINCT {time}) AS times, min({time}) AS first, max({begin}) AS newest"
    try:
        counted = query.index.query(f"SELECT {facts} FROM {held.relation} WHERE {' AND '.join(where)}")
    except database_errors():  # the record of the plan says something else than the state
        return None
    [found] = counted.to_pylist()
    first, newest = (None if found[name] is None else from_microseconds(found[name]) for name in ("first", "newest"))
    return TimedRows(found["n"], found["times"], first, newest)


def _begin(tree: Expression) -> Expression:
    """Return the start of a window, for its end; other times are those of events themselves."""
    return {**tree, "at": 0} if tree.get("is") == "GetStructField" else tree


def _micros(tree: Expression, names: Mapping[str, list[str]]) -> str:
    """Return a time in microseconds since 1970 as SQL."""

    def column(state: Expression) -> str:
        part, at = names[str(state["part"])], int(state["at"])
        if not 0 <= at < len(part):
            raise UntranslatableError("its record is damaged")
        return quoted(part[at])

    sql, kind = in_duckdb(tree, column)
    return sql if kind == "long" else f"epoch_us({sql})"


def waiting_advice(
    query: CapturedQuery,
    plan: QueryPlan,
    progress: Sequence[EpochProgress],
    reads: Reads,
    *,
    stuck: bool,
    held_by: Sequence[IdleSource],
) -> Iterator[Advice]:
    """Advise on rows that wait, if none has been returned yet, or if the watermark is stuck."""
    newest = progress[-1]
    for table, known in plan.tables.items() if plan.mode == "append" else ():
        operator = plan.operators[operator_number(table)]
        waits = _what_waits(operator, known, table)
        if not waits or table not in query.tables() or not reads(table):
            continue
        if not stuck and not _never_returned(query, table, progress):
            continue
        rows = timed_rows(query, table, known, newest.epoch, newest.watermark, unmatched=operator.name == JOIN)
        if rows is not None and rows.first is not None:
            number = rows.times if waits == _WINDOW else rows.count
            first = (rows.first + timedelta(microseconds=known.behind)).replace(microsecond=0)
            text = f"{_counted(number, waits)} of {table} {'is' if number == 1 else 'are'} not returned yet"
            earliest = ", for the first of them" if number > 1 else ""
            reason = f"{_WAITS_FOR[waits]}{earliest} {_until(first, newest.watermark)}"
            evidence = _evidence(newest, held_by, stuck=stuck)
            yield Advice("not_returned", f"{text}, because {reason}.", evidence, newest.epoch)


def _what_waits(operator: OperatorPlan, table: TablePlan, name: str) -> str:
    """Name the rows of a table that wait for the watermark; empty if none do."""
    if table.time is None:
        return ""
    if operator.name == JOIN:
        return _UNMATCHED if name.rpartition("_")[2] in OUTER.get(operator.kind, ()) else ""
    if operator.name == _SESSIONS:
        return _SESSION
    is_window = table.time.get("is") == "GetStructField"
    return (_WINDOW if is_window else _ROW) if operator.name == _AGGREGATION else ""


def _counted(number: int, noun: str) -> str:
    first, space, rest = noun.partition(" ")
    return f"{number:,} {first}{'s' * (number != 1)}{space}{rest}"


def _never_returned(query: CapturedQuery, table: str, progress: Sequence[EpochProgress]) -> bool:
    """Return True if a query was captured from its first epoch on and no row of a state was removed."""
    first, last = progress[0].epoch, progress[-1].epoch
    pairs = zip([None, *progress], progress, strict=False)
    read = sum(epoch.read_more_than(before) for before, epoch in pairs)
    return first == 0 and len(progress) < MOST and read >= _FEWEST and not removed_rows(query, table, first, last)


def _until(first: datetime, watermark: datetime | None) -> str:
    """Say at which watermark the first of them is returned, and how much is missing."""
    if watermark is None:
        return f"until the watermark is {timestamp(first)}, and there is none yet"
    missing = timedelta(seconds=ceil((first - watermark).total_seconds()))
    return f"until the watermark is {timestamp(first)}; it is {timestamp(watermark)}, {missing} too early"


def _evidence(newest: EpochProgress, held_by: Sequence[IdleSource], *, stuck: bool) -> str:
    if held_by:
        return f"The watermark is stuck: {' and '.join(map(str, held_by))}."
    return "The watermark is stuck." if stuck else f"None has been returned up to epoch {newest.epoch}."
