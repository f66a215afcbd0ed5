"""Expiry times of rows, which Spark keeps in milliseconds and views show as times."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamstate.snapshots.store.changelog import operator_of
from streamstate.state_inspect.causes.causes import TIMEOUT, TIMER, TTL
from streamstate.state_inspect.cell_text import plain
from streamstate.state_inspect.python_rows import python_values
from streamstate.state_inspect.results.results import state_of
from streamstate.state_inspect.unix_time import from_microseconds

if TYPE_CHECKING:
    from streamstate.state_inspect.captured_query import CapturedQuery


def expiry_columns(query: CapturedQuery, table: str) -> frozenset[str]:
    """Return the columns of a table with the time at which a row expires, in milliseconds since 1970.

    A column of the same name that a user has made is none.
    """
    state, is_result = state_of(table)
    if state is None or is_result:
        return frozenset()
    schema = query.columns(state).schema
    operator = operator_of(schema)
    name = "" if operator is None else operator.name
    known = {TTL, TIMER} if name.startswith("transformWithState") else {TIMEOUT} if "WithState" in name else set()
    return frozenset(field.name for field in schema if field.name in known and pa.types.is_int64(field.type))


def expiry(value: Any) -> datetime | str | None:
    """Return the time at which a row expires; ``never`` if it does not."""
    milliseconds = plain(value)
    if milliseconds is None:
        return None
    return "never" if milliseconds < 0 else from_microseconds(milliseconds * 1000)


def rows_with_times(table: pa.Table, columns: frozenset[str]) -> list[tuple[Any, ...]]:
    """Return the rows of a table, to be shown: with times in some columns."""
    parts = zip(table.column_names, map(python_values, table.columns), strict=True)
    return list(zip(*(map(expiry, values) if name in columns else values for name, values in parts), strict=True))
