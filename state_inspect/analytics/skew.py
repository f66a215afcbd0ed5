"""How unevenly a state is spread: over partitions, and over keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.change_log import listed
from streamstate.snapshots.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.operators import PARTITION, POSITION
from streamstate.state_inspect.analytics.sizes import bytes_of_row
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at

if TYPE_CHECKING:
    from streamstate.state_inspect.temporal_index.index import Index

Query = Callable[[str], pa.Table]


def partition_skew(table: IntervalTable, epoch: int, query: Query) -> pd.DataFrame:
    """Rows and bytes per partition; see :meth:`StateTable.skew`."""
    size = bytes_of_row(_fields(table, table.columns))
    # A partition that has no rows now is known by those that it had.
    found = query(
        f"SELECT {PARTITION} AS partition, count(*) FILTER ({held_at(epoch)}) AS rows,"
        f" coalesce(sum({size}) FILTER ({held_at(epoch)}), 0)::BIGINT AS bytes"
        f" FROM {table.relation} WHERE {PARTITION} IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    known = to_pandas(found).set_index("partition")
    frame = known.reindex(range(int(known.index.max()) + 1 if len(known) else 0), fill_value=0)
    frame = frame.rename_axis("partition").reset_index()
    mean = frame["rows"].mean()
    return frame.assign(share=frame["rows"] / max(frame["rows"].sum(), 1), ratio=frame["rows"] / (mean or 1))


def heavy_keys(table: IntervalTable, epoch: int, n: int, columns: Sequence[str], query: Query) -> pd.DataFrame:
    """The keys with most rows, or the largest; see :meth:`StateTable.heavy_keys`."""
    check_number("n", n)
    size = f"({bytes_of_row(_fields(table, table.columns))})"
    facts = f"count(*) AS _rows, sum{size}::BIGINT AS _bytes, count(*) / sum(count(*)) OVER () AS _share"
    group = f"GROUP BY {listed(columns)}"
    if {*columns} == {*table.key_columns}:
        # One row a key: nothing to group, which would cost more than all the rest.
        facts, group = f"1::BIGINT AS _rows, {size}::BIGINT AS _bytes, 1 / count(*) OVER () AS _share", ""
    return to_pandas(
        query(
            f"SELECT {listed(columns)}, {facts} FROM {table.relation} WHERE {held_at(epoch)}"
            f" {group} ORDER BY _rows DESC, _bytes DESC, {listed(columns)} LIMIT {n}"
        )
    )


def busy_keys(table: IntervalTable, index: Index, since: int, n: int) -> pd.DataFrame:
    """The keys that were written most often after an epoch; see :meth:`History.heavy_keys`."""
    check_number("n", n)
    keys = listed(table.key_columns)
    anew = ", ".join(map(str, sorted(table.starts))) or "NULL"
    return to_pandas(
        index.query(
            f"SELECT {keys}, count(*) AS _writes, max(_valid_from) AS _last_written FROM {table.relation}"
            f" WHERE _valid_from > {since} AND _valid_from <= {table.high} AND (_valid_from IN ({anew})) IS NOT TRUE"
            f" GROUP BY _hash, {keys} ORDER BY _writes DESC, _last_written DESC, {keys} LIMIT {n}"
        )
    )


def check_number(name: str, number: Any) -> int:
    """The number, which has to be whole and not negative."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidArgumentError(f"{name}={number!r} cannot be meant: a whole number from 0 on.")
    return int(number)


def grouping(table: IntervalTable, name: str, by: Sequence[str] | str | None) -> list[str]:
    """The columns that single out what is called a key; see :meth:`StateTable.heavy_keys`."""
    if by is not None:
        chosen = [by] if isinstance(by, str) else [*by]
        for one in chosen:
            if one not in table.key_columns:
                raise UnknownColumnError.among("key column", one, table.key_columns, where=f"in {name}")
        if not chosen:
            raise InvalidArgumentError(f"by names no column.\nKey columns: {', '.join(table.key_columns)}.")
        return chosen
    keys = [one for one in table.key_columns if one != POSITION]
    # The sides of a join number the rows of a key, in a column that Spark calls index.
    if name.endswith(("_left", "_right")) and len(keys) > 1 and keys[-1].startswith("index"):
        keys.pop()
    return keys or [*table.key_columns]


def _fields(table: IntervalTable, names: Sequence[str]) -> list[pa.Field]:
    return [table.schema.field(name) for name in names]
