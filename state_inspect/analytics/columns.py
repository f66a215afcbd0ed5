"""What each column of a state table holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.change_log import listed, quoted
from streamstate.state_inspect.analytics.sizes import bytes_of

if TYPE_CHECKING:
    from streamstate.state_inspect.state_table import StateTable

QUANTILES = {"p01": 0.01, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p99": 0.99}
_FACTS = ("nulls", "distinct", "min", "max", "mean", *QUANTILES, "bytes")

# Counting different values exactly takes a hash table of them; up to so many rows it is not felt.
_EXACT = 100_000
# Columns of one statement: with several hundred expressions each, compiling it takes longer than running it.
_TOGETHER = 40

Query = Callable[[str], pa.Table]


def column_summary(table: StateTable, query: Query) -> pd.DataFrame:
    """One row per column of a state table; see :meth:`StateTable.summary`."""
    rows = table.count()
    fields = list(table.schema)
    found: list[dict[str, Any]] = []
    for start in range(0, len(fields), _TOGETHER):
        found += _facts(fields[start : start + _TOGETHER], table.rows_sql(), query, exact=rows <= _EXACT)
    for facts, field in zip(found, fields, strict=True):
        facts |= {"column": field.name, "key": field.name in table.key_columns, "type": str(field.type), "rows": rows}
        facts["distinct"] = min(facts["distinct"], rows - facts["nulls"])
    names = ["column", "key", "type", "rows", *_FACTS]
    frame = pd.DataFrame(found, columns=names, dtype=object)
    return frame.astype({"key": bool, "rows": "int64", "nulls": "int64", "distinct": "int64", "bytes": "int64"})


def _facts(fields: Sequence[pa.Field], rows: str, query: Query, *, exact: bool) -> list[dict[str, Any]]:
    """The facts of some columns, in one pass over the rows."""
    asked = [
        f"{sql} AS {quoted(f'{at} {fact}')}" for at, one in enumerate(fields) for fact, sql in _sql(one, exact=exact)
    ]
    names = listed([one.name for one in fields])
    answer = query(f"SELECT {', '.join(asked)} FROM (SELECT {names} FROM ({rows}))").to_pylist()[0]
    found = []
    for at in range(len(fields)):
        facts = {fact: answer.get(f"{at} {fact}") for fact in _FACTS}
        quantiles = answer.get(f"{at} quantiles")
        if quantiles is not None:
            facts |= dict(zip(QUANTILES, quantiles, strict=True))
        found.append(facts)
    return found


def _sql(column: pa.Field, *, exact: bool) -> list[tuple[str, str]]:
    """The facts that make sense for a column, each with the SQL that finds it."""
    name, kind = quoted(column.name), column.type
    facts = [
        ("nulls", f"count(*) - count({name})"),
        ("distinct", f"count(DISTINCT {name})" if exact else f"approx_count_distinct({name})"),
        ("bytes", f"coalesce(sum({bytes_of(column)}), 0)::BIGINT"),
    ]
    if pa.types.is_nested(kind):
        return facts
    facts += [("min", f"min({name})"), ("max", f"max({name})")]
    if is_number(kind):
        facts += [("mean", f"avg({name}::DOUBLE)"), ("quantiles", _quantiles("cont", f"{name}::DOUBLE"))]
    elif pa.types.is_boolean(kind):
        facts.append(("mean", f"avg({name}::INTEGER)"))
    elif is_time(kind):
        facts += [("mean", f"avg({name})"), ("quantiles", _quantiles("disc", name))]
    return facts


def _quantiles(kind: str, value: str) -> str:
    return f"quantile_{kind}({value}, [{', '.join(map(str, QUANTILES.values()))}])"


def is_number(kind: pa.DataType) -> bool:
    """Whether a column's values are numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_time(kind: pa.DataType) -> bool:
    """Whether a column's values are days or points in time."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
