"""Statistics, histograms and sizes of a state table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.store.duckdb_sql import listed, quoted
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.unix_time import from_microseconds

QUANTILES = {"p01": 0.01, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p99": 0.99}
_FACTS = ("nulls", "distinct", "min", "max", "mean", *QUANTILES, "bytes")

# An exact distinct count needs a hash table of all values; up to this many rows the cost is not noticeable.
_EXACT = 100_000
# Columns per statement: compiling one with several hundred expressions per column takes longer than running it.
_TOGETHER = 40
_MOST_BINS = 1000

Query = Callable[[str], pa.Table]


def column_summary(schema: pa.Schema, keys: Sequence[str], rows_sql: str, rows: int, query: Query) -> pd.DataFrame:
    """Return one row per column of a state table; see :meth:`StateTable.summary`."""
    fields = list(schema)
    found: list[dict[str, Any]] = []
    for start in range(0, len(fields), _TOGETHER):
        found += _facts(fields[start : start + _TOGETHER], rows_sql, query, exact=rows <= _EXACT)
    for facts, field in zip(found, fields, strict=True):
        facts |= {"column": field.name, "key": field.name in keys, "type": str(field.type), "rows": rows}
        facts["distinct"] = min(facts["distinct"], rows - facts["nulls"])
    names = ["column", "key", "type", "rows", *_FACTS]
    frame = pd.DataFrame(found, columns=names, dtype=object)
    return frame.astype({"key": bool, "rows": "int64", "nulls": "int64", "distinct": "int64", "bytes": "int64"})


def _facts(fields: Sequence[pa.Field], rows: str, query: Query, *, exact: bool) -> list[dict[str, Any]]:
    """Return the statistics of some columns, in one pass over the rows."""
    expressions = [
        f"{sql} AS {quoted(f'{at} {fact}')}"
        for at, field in enumerate(fields)
        for fact, sql in _statistics(field, exact=exact)
    ]
    names = listed([field.name for field in fields])
    answer = query(f"SELECT {', '.join(expressions)} FROM (SELECT {names} FROM ({rows}))").to_pylist()[0]
    found = []
    for at in range(len(fields)):
        facts = {fact: answer.get(f"{at} {fact}") for fact in _FACTS}
        quantiles = answer.get(f"{at} quantiles")
        if quantiles is not None:
            facts |= dict(zip(QUANTILES, quantiles, strict=True))
        found.append(facts)
    return found


def _statistics(column: pa.Field, *, exact: bool) -> list[tuple[str, str]]:
    """Return the statistics that a column's type has, each with its SQL."""
    name, kind = quoted(column.name), column.type
    facts = [
        ("nulls", f"count(*) - count({name})"),
        ("distinct", f"count(DISTINCT {name})" if exact else f"approx_count_distinct({name})"),
        ("bytes", f"coalesce(sum({_bytes_of(column)}), 0)::BIGINT"),
    ]
    if pa.types.is_nested(kind):
        return facts
    facts += [("min", f"min({name})"), ("max", f"max({name})")]
    if is_number(kind):
        facts += [("mean", f"avg({name}::DOUBLE)"), ("quantiles", _quantiles("cont", f"{name}::DOUBLE"))]
    elif pa.types.is_boolean(kind):
        facts.append(("mean", f"avg({name}::INTEGER)"))
    elif _is_time(kind):
        facts += [
            ("mean", f"avg({name}{'::TIMESTAMP' * pa.types.is_date(kind)})"),
            ("quantiles", _quantiles("disc", name)),
        ]
    return facts


def _quantiles(kind: str, value: str) -> str:
    return f"quantile_{kind}({value}, [{', '.join(map(str, QUANTILES.values()))}])"


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _bytes_of(column: pa.Field) -> str:
    """Return SQL for the size of a column's value, before encoding or compression; 0 if the value is missing.

    Fixed-width types take their width (8 for a long), strings their UTF-8, binaries their bytes, and nested values
    roughly the length of their text.
    """
    name, kind = quoted(column.name), column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"coalesce(strlen({name}), 0)"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"coalesce(octet_length({name}), 0)"
    if pa.types.is_nested(kind):
        return f"coalesce(strlen({name}::VARCHAR), 0)"
    return f"CASE WHEN {name} IS NULL THEN 0 ELSE {max(kind.bit_width // 8, 1)} END"


def bytes_of_row(columns: Iterable[pa.Field]) -> str:
    """Return SQL for the size of a row's values."""
    return " + ".join(_bytes_of(column) for column in columns) or "0"


def column_histogram(column: pa.Field, rows: str, bins: Any, query: Query) -> pd.DataFrame:
    """Return the values of a column by interval, or its most frequent values; see :meth:`StateTable.histogram`."""
    whole_number(bins, "bins", most=_MOST_BINS)
    name, kind = quoted(column.name), column.type
    if is_number(kind):
        return _intervals(f"{name}::DOUBLE", rows, bins, query)
    if _is_time(kind):
        frame = _intervals(f"epoch_us({name})::DOUBLE", rows, bins, query)
        zone = None if pa.types.is_date(kind) else kind.tz
        return frame.assign(low=_timestamps(frame["low"], zone), high=_timestamps(frame["high"], zone))
    return to_pandas(
        query(
            f"SELECT {name} AS value, count(*) AS rows, count(*) / sum(count(*)) OVER () AS share"
            f" FROM ({rows}) WHERE {name} IS NOT NULL GROUP BY ALL ORDER BY rows DESC, value LIMIT {bins}"
        )
    )


def _intervals(value: str, rows: str, bins: int, query: Query) -> pd.DataFrame:
    """Intervals of equal width; infinities and NaN come last, each in a row of its own."""
    values = f"(SELECT {value} AS x FROM ({rows}))"
    [ends] = query(f"SELECT min(x) AS low, max(x) AS high FROM {values} WHERE isfinite(x)").to_pylist()
    edges = _edges(ends["low"], ends["high"], bins)
    # Counted from each edge upwards, so that rounding of the edges never counts a value twice.
    above = [f"count(*) FILTER (isfinite(x) AND x >= {edge!r}::DOUBLE) AS e{at}" for at, edge in enumerate(edges[:-1])]
    special = [f"count(*) FILTER (x = '{name}'::DOUBLE) AS \"{name}\"" for name in ("-inf", "inf", "nan")]
    [counts] = query(f"SELECT {', '.join([*above, *special, 'count(x) AS n'])} FROM {values}").to_pylist()
    reached = [counts[f"e{at}"] for at in range(len(above))] + [0]
    found = [(edges[at], edges[at + 1], reached[at] - reached[at + 1]) for at in range(len(above))]
    found += [(float(name), float(name), counts[name]) for name in ("-inf", "inf", "nan") if counts[name]]
    frame = pd.DataFrame(found, columns=["low", "high", "rows"]).astype({"low": float, "high": float, "rows": "int64"})
    return frame.assign(share=frame["rows"] / max(counts["n"], 1))


def _edges(low: float | None, high: float | None, bins: int) -> list[float]:
    """Return the ends of the intervals, ascending; a single interval if all values are equal."""
    if low is None or high is None:
        return []
    if low == high:
        return [low, high]
    width = high / bins - low / bins  # high - low may overflow a float
    edges = [low, *(low + width * at for at in range(1, bins)), high]
    return sorted({min(max(edge, low), high) for edge in edges})


def _timestamps(microseconds: pd.Series[Any], zone: str | None) -> pd.Series[Any]:
    times = pd.Series(list(map(from_microseconds, microseconds)), dtype="datetime64[us, UTC]")
    return times if zone is not None else times.dt.tz_localize(None)
