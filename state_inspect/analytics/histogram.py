"""How the values of a column are spread."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.change_log import quoted
from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.state_inspect.analytics.columns import is_number, is_time
from streamstate.state_inspect.frames import to_pandas

if TYPE_CHECKING:
    from streamstate.state_inspect.state_table import StateTable

_MOST = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Query = Callable[[str], pa.Table]


def column_histogram(table: StateTable, column: str, bins: Any, query: Query) -> pd.DataFrame:
    """The values of a column by interval, or the most frequent ones; see :meth:`StateTable.histogram`."""
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= _MOST:
        raise InvalidArgumentError(f"bins={bins!r} cannot be meant: a whole number from 1 to {_MOST}.")
    kind = table.schema.field(column).type
    if is_number(kind):
        return _numbers(f"{quoted(column)}::DOUBLE", table.rows_sql(), bins, query)
    if is_time(kind):
        frame = _numbers(f"epoch_us({quoted(column)})::DOUBLE", table.rows_sql(), bins, query)
        zone = None if pa.types.is_date(kind) else kind.tz
        return frame.assign(low=_moments(frame["low"], zone), high=_moments(frame["high"], zone))
    return _categories(quoted(column), table.rows_sql(), bins, query)


def _numbers(value: str, rows: str, bins: int, query: Query) -> pd.DataFrame:
    """Intervals of equal width; what is not finite comes last, each kind in a row of its own."""
    values = f"(SELECT {value} AS x FROM ({rows}))"
    [ends] = query(f"SELECT min(x) AS low, max(x) AS high FROM {values} WHERE isfinite(x)").to_pylist()
    edges = _edges(ends["low"], ends["high"], bins)
    # From each edge on, so that a value is counted once whatever the rounding of the edges.
    above = [f"count(*) FILTER (isfinite(x) AND x >= {edge!r}::DOUBLE) AS e{at}" for at, edge in enumerate(edges[:-1])]
    odd = [f"count(*) FILTER (x = '{one}'::DOUBLE) AS \"{one}\"" for one in ("-inf", "inf", "nan")]
    [counts] = query(f"SELECT {', '.join([*above, *odd, 'count(x) AS n'])} FROM {values}").to_pylist()
    reached = [counts[f"e{at}"] for at in range(len(above))] + [0]
    found = [(edges[at], edges[at + 1], reached[at] - reached[at + 1]) for at in range(len(above))]
    found += [(float(one), float(one), counts[one]) for one in ("-inf", "inf", "nan") if counts[one]]
    frame = pd.DataFrame(found, columns=["low", "high", "rows"]).astype({"low": float, "high": float, "rows": "int64"})
    return frame.assign(share=frame["rows"] / max(counts["n"], 1))


def _edges(low: float | None, high: float | None, bins: int) -> list[float]:
    """The ends of the intervals, ascending; one interval where all values are the same, none where there are none."""
    if low is None or high is None:
        return []
    if low == high:
        return [low, high]
    width = high / bins - low / bins  # the difference itself may be more than a float holds
    edges = [low, *(low + width * at for at in range(1, bins)), high]
    return sorted({min(max(one, low), high) for one in edges})


def _moments(microseconds: pd.Series[Any], zone: str | None) -> pd.Series[Any]:
    found = [_EPOCH + timedelta(microseconds=one) for one in microseconds]
    times = pd.Series(found, dtype="datetime64[us, UTC]")
    return times if zone is not None else times.dt.tz_localize(None)


def _categories(value: str, rows: str, bins: int, query: Query) -> pd.DataFrame:
    sql = (
        f"SELECT {value} AS value, count(*) AS rows, count(*) / sum(count(*)) OVER () AS share"
        f" FROM ({rows}) WHERE {value} IS NOT NULL GROUP BY ALL ORDER BY rows DESC, value LIMIT {bins}"
    )
    return to_pandas(query(sql))
