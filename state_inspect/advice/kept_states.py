"""States from which Spark never removes a row, with the reason, from a query's plan or its checkpoint.

The checkpoint has the columns of each state. Spark marks those with event time by the delay of their watermark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.operator_metadata import recorded_stores, sources_in_metadata
from streamstate.snapshots.checkpoint.decoding.state_schema import table_formats
from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.state_tables import JOIN, StateSource, operator_number
from streamstate.snapshots.store.changelog import Operator, operator_of
from streamstate.snapshots.store.query_plans.query_plan import OperatorPlan, QueryPlan, TablePlan
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.causes.causes import TIMEOUT, TIMER, TTL

_AGGREGATES = ("stateStoreSave", "StatefulStreamlineAggregate", "sessionWindowStateStoreSaveExec")
_DEDUPLICATES = "dedupe"
_GROUPS, _TRANSFORMS = ("applyInPandasWithState", "flatMapGroupsWithState"), "transformWithState"
_DELAY = "spark.watermarkDelayMs"
_LEFT, _RIGHT = "left", "right"
OUTER = {"LEFT OUTER": (_LEFT,), "RIGHT OUTER": (_RIGHT,), "FULL OUTER": (_LEFT, _RIGHT)}
"""The sides of a join whose rows are returned without a match, too, by its type."""
_COMPLETE = "in complete mode the query returns all groups in every epoch, so that Spark keeps them all"


@dataclass(frozen=True)
class KeptState:
    """State tables of an operator from which Spark removes no rows."""

    tables: tuple[str, ...]
    why: str
    """The reason, as a clause."""
    by_user_code: bool = False
    """True if the user's own code may remove rows."""


def kept_by_plan(plan: QueryPlan, tables: Sequence[str]) -> list[KeptState]:
    """Return the states among some tables from which a planned query never removes rows."""
    found: list[KeptState] = []
    for number, operator in enumerate(plan.operators):
        own = tuple(table for table in tables if operator_number(table) == number)
        found += _of_operator(plan, operator, own, number)
    return _together(found)


def _together(states: Iterable[KeptState]) -> list[KeptState]:
    """Return the states, with those that are kept for the same reason as one."""
    by_reason: dict[tuple[str, bool], tuple[str, ...]] = {}
    for state in states:
        reason = state.why, state.by_user_code
        by_reason[reason] = by_reason.get(reason, ()) + state.tables
    return [KeptState(tables, why, by_user_code=own) for (why, own), tables in by_reason.items()]


def _of_operator(plan: QueryPlan, operator: OperatorPlan, tables: tuple[str, ...], number: int) -> Iterator[KeptState]:
    if operator.name == JOIN:
        for at, side in enumerate((_LEFT, _RIGHT)):
            table = f"op{number}_{side}"
            if table in tables and plan.tables[table].time is None:
                yield KeptState((table,), _of_side(operator, at))
    elif operator.keys and tables and (table_plan := plan.tables.get(tables[0])) and table_plan.time is None:
        keys = _key_names(table_plan, plan, number)
        watermarks = ", ".join(dict.fromkeys(watermark.column for watermark in plan.event_times))
        if operator.name in _AGGREGATES:
            yield KeptState(tables, _COMPLETE if plan.mode == "complete" else _of_keys("it keeps", keys, watermarks))
        elif operator.name == _DEDUPLICATES:
            yield KeptState(tables, _of_keys("dropDuplicates remembers", keys, watermarks))


def _key_names(table: TablePlan, plan: QueryPlan, number: int) -> str:
    """Return the key's columns by name; an expression without a name as SQL."""
    expressions = plan.inputs[number].keys if number < len(plan.inputs) else ()
    names = [column.name for column in table.keys or ()]
    named = [
        expressions[at] if name.startswith("_groupingexpression") and at < len(expressions) else name
        for at, name in enumerate(names)
    ]
    return ", ".join(named)


def _of_keys(keeps: str, keys: str, watermarks: str) -> str:
    lacks = f"the key lacks the event time {watermarks}" if watermarks else "the query has no watermark"
    return f"{keeps} every key ({keys}), and {lacks}"


def _of_side(operator: OperatorPlan, at: int) -> str:
    """Return the reason for which a side of a join is kept: 0 is the left one."""
    side, other = ((_LEFT, _RIGHT), (_RIGHT, _LEFT))[at]
    own, others = operator.event_times[at], operator.event_times[1 - at]
    why = _of_watermarks(side, other, own=bool(own), others=bool(others))
    if own and others:
        why = f"the join condition does not say how much later than {own[0]} a row of the {other} side may match"
    waits = side in OUTER.get(operator.kind, ())
    return f"{why}; its rows without a match are therefore never returned" if waits else why


def _of_watermarks(side: str, other: str, *, own: bool, others: bool) -> str:
    """Return the reason for which a side of a join is kept, unless both have a watermark."""
    if own or others:
        return f"the {other if own else side} side of the join has no watermark"
    return "neither side of the join has a watermark"


def kept_by_user_code(query: CapturedQuery) -> list[KeptState]:
    """Return the states of user code from which only that code removes rows: it has no timeouts, timers or TTL."""
    schemas = {table: query.columns(table).schema for table in query.tables()}
    of_operator: dict[tuple[int, Operator], list[str]] = {}
    for table, schema in schemas.items():
        if (operator := operator_of(schema)) is not None:
            of_operator.setdefault((operator_number(table), operator), []).append(table)
    found: list[KeptState] = []
    for (_, operator), tables in of_operator.items():
        columns = {column for table in tables for column in schemas[table].names}
        timers = [table for table in tables if TIMER in schemas[table].names]
        unused = not any(query.known_entries.facts(table).changes.any() for table in timers)
        found += _of_user_code(operator.name, columns, operator.time_mode, tables, no_timers=unused)
    return found


def _of_user_code(
    name: str, columns: Collection[str], time_mode: str, tables: Sequence[str], *, no_timers: bool
) -> Iterator[KeptState]:
    """Yield the states of an operator, if it is user code that has no other way to remove rows."""
    if name in _GROUPS and TIMEOUT not in columns:
        why = "it has no timeout, and its own code has removed the state of no key"
        yield KeptState(tuple(tables), why, by_user_code=True)
    if name.startswith(_TRANSFORMS) and TTL not in columns and (no_timers or time_mode == "NoTime"):
        why = "it has no timers and no times to live, and its own code has cleared the state of no key"
        yield KeptState(tuple(table for table in tables if not table.endswith("_timers")), why, by_user_code=True)


def kept_by_checkpoint(checkpoint: CheckpointFiles, epoch: int) -> list[KeptState]:
    """Return the states of a checkpoint from which Spark certainly removes no rows, whatever the query's plan.

    Raises:
        CheckpointError, UnsupportedStateError: the states' schemas cannot be read.
    """
    sources = sources_in_metadata(checkpoint, epoch)
    formats = dict(zip((source.table for source in sources), table_formats(checkpoint, epoch), strict=True))
    states = {source: known for source in sources if isinstance(known := formats[source.table], TableFormat)}
    modes = {store.operator: str(store.properties.get("timeMode", "")) for store in recorded_stores(checkpoint, epoch)}
    found: list[KeptState] = []
    for number in sorted({known.operator for known in states.values()}):
        own = {source: known for source, known in states.items() if known.operator == number}
        found += _in_checkpoint(own, modes[number])
    return _together(found)


def _in_checkpoint(own: Mapping[StateSource, TableFormat], time_mode: str) -> Iterator[KeptState]:
    """Yield the states of one operator."""
    tables = tuple(source.table for source in own)
    name = next(iter(own)).operator
    known = next(iter(own.values()))
    names = [str(field["name"]) for field in known.key["fields"] if field["type"] != "void"]
    if name == JOIN:
        yield from _sides_in_checkpoint(own)
    elif name in _GROUPS or name.startswith(_TRANSFORMS):
        columns = {str(field["name"]) for each in own.values() for field in each.value["fields"]}
        yield from _of_user_code(name, columns, time_mode, tables, no_timers=False)
    elif name in (*_AGGREGATES, _DEDUPLICATES) and names and not _event_times(known):
        keeps = "dropDuplicates remembers" if name == _DEDUPLICATES else "it keeps"
        yield KeptState(tables, f"{keeps} every key, and the key ({', '.join(names)}) has no event time")


def _sides_in_checkpoint(own: Mapping[StateSource, TableFormat]) -> Iterator[KeptState]:
    """Yield the sides of a join: with one watermark, the rows stay unless they are joined by event time."""
    sides = {source.table.rpartition("_")[2]: (source.table, known) for source, known in own.items()}
    if {*sides} != {_LEFT, _RIGHT}:
        return
    has = {side: bool(_event_times(known)) for side, (_, known) in sides.items()}
    by_time = any(_may_be_time(field["type"]) for _, known in sides.values() for field in known.key["fields"])
    if all(has.values()) or (any(has.values()) and by_time):
        return
    for side, other in ((_LEFT, _RIGHT), (_RIGHT, _LEFT)):
        yield KeptState((sides[side][0],), _of_watermarks(side, other, own=has[side], others=has[other]))


def _may_be_time(kind: Any) -> bool:
    return "timestamp" in str(kind)


def _event_times(known: TableFormat) -> list[str]:
    """Return the columns of a state with a watermark."""
    fields = [*known.key["fields"], *known.value["fields"]]
    return [str(field["name"]) for field in fields if _DELAY in (field.get("metadata") or {})]
