"""The event times of the rows of a state table, by which Spark removes them, read from the index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from streamstate.snapshots.store.duckdb_sql import database_errors, quoted
from streamstate.snapshots.store.query_plans.query_plan import Expression, TablePlan
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.results.duckdb_expressions import UntranslatableError, in_duckdb
from streamstate.state_inspect.temporal_index.interval_table import held_at
from streamstate.state_inspect.unix_time import from_microseconds, microseconds


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
