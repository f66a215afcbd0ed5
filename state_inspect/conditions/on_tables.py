"""Conditions on a state table or a result, for all keys or one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from streamstate.errors import UnknownColumnError
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.conditions.condition import Condition, ConditionInPart
from streamstate.state_inspect.keys.key_rows import typed_key
from streamstate.state_inspect.keys.table_key import TableKey
from streamstate.state_inspect.results.results import (
    RESULT,
    plan_throughout,
    results_shown,
    shown_columns,
    state_of,
    table_of_result,
    with_result,
)
from streamstate.state_inspect.snapshot import choose_table
from streamstate.state_inspect.sql.condition_policy import predicate_sql
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable


def table_of_condition(query: CapturedQuery, predicate: str, table: str | None, key: Mapping[str, Any]) -> str:
    """Return the table that a condition is about; without a name the result, if it has the columns, else the state."""
    if table is None and RESULT in results_shown(query):
        columns = shown_columns(query, RESULT)
        try:
            predicate_sql(predicate, columns.columns, RESULT)
            _given(query, RESULT, key)
        except UnknownColumnError:
            pass
        else:
            return RESULT
    return table if table is not None and state_of(table)[1] else choose_table(table, query.tables(), query.name)


def condition_on(query: CapturedQuery, predicate: str, table: str, key: Mapping[str, Any]) -> Condition:
    """Return a condition on the rows of a state table or a result at all epochs, perhaps only on those of one key."""
    columns = shown_columns(query, table)
    given = _given(query, table, key)
    state, is_result = state_of(table)
    if is_result:
        versions = _of_result(query, state, lambda name: query.interval_table(name, -1))
    else:
        versions = query.versions_of(table, typed_key(given, columns.schema) if given else None, -1)
    return Condition(predicate, table, versions, given)


def _given(query: CapturedQuery, table: str, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key that a call gives, or some of its columns, or none."""
    return TableKey.of(query, table).given(key, whole=False) if key else {}


def condition_in_parts(
    query: CapturedQuery, predicate: str, table: str, key: Mapping[str, Any]
) -> Iterator[ConditionInPart]:
    """As :func:`condition_on`, in parts of the history that fit into memory."""
    if key:
        condition = condition_on(query, predicate, table, key)
        yield ConditionInPart(condition, -1, condition.table.high)
        return
    state, is_result = state_of(table)
    if is_result:
        state = table_of_result(query, state, query.tables(), query.live_entry().epoch)
    for part in query.parts(state or table):
        rows = _of_result(query, state, part.has) if is_result else part.table
        yield ConditionInPart(Condition(predicate, table, rows, {}), part.first, part.last)


def _of_result(query: CapturedQuery, state: str | None, versions: Callable[[str], IntervalTable]) -> IntervalTable:
    """Versions of the result at all epochs, computed from those of the state."""
    epochs = query.entries().captured
    name = table_of_result(query, state, query.tables(), epochs[-1])
    plan = plan_throughout(query, name, epochs[0], epochs[-1])
    return with_result(versions(name), plan, name, epochs[-1])
