"""Skew of a state, and of the writes to it, over partitions and keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd
import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.checkpoint.state_tables import HASH, PARTITION, POSITION
from streamstate.snapshots.store.duckdb_sql import listed
from streamstate.state_inspect.analytics.columns import Query, bytes_of_row
from streamstate.state_inspect.captured_query import HistoryPart
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.keys.key_rows import row_number_column
from streamstate.state_inspect.temporal_index.index import Index
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at


def partition_skew(table: IntervalTable, epoch: int, query: Query) -> pd.DataFrame:
    """Return rows and bytes per partition; see :meth:`StateTable.skew`."""
    size = bytes_of_row(_fields(table))
    # A partition without rows now is known from the rows that it had.
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
    """Return the keys with the most rows, or the largest rows; see :meth:`StateTable.heavy_keys`."""
    whole_number(n, "n", least=0)
    size = f"({bytes_of_row(_fields(table))})"
    facts = f"count(*) AS _rows, sum{size}::BIGINT AS _bytes, count(*) / sum(count(*)) OVER () AS _share"
    group = f"GROUP BY {listed(columns)}"
    if {*columns} == {*table.key_columns}:
        # One row per key: grouping would cost more than everything else.
        facts, group = f"1::BIGINT AS _rows, {size}::BIGINT AS _bytes, 1 / count(*) OVER () AS _share", ""
    return to_pandas(
        query(
            f"SELECT {listed(columns)}, {facts} FROM {table.relation} WHERE {held_at(epoch)}"
            f" {group} ORDER BY _rows DESC, _bytes DESC, {listed(columns)} LIMIT {n}"
        )
    )


def busy_keys(parts: Iterable[HistoryPart], index: Index, names: Sequence[str], n: int) -> pa.Table:
    """Return the keys that were written most often in parts of a history; see :meth:`History.heavy_keys`."""
    whole_number(n, "n", least=0)
    keys = listed(names)
    written = (
        f"SELECT {HASH}, {keys}, count(*) AS _writes, max(_valid_from) AS _last_written FROM {part.table.relation}"
        f" WHERE {_written_since(part.table, part.first)} AND _valid_from <= {part.last} GROUP BY ALL"
        for part in parts
    )
    return index.query_parts(
        ((statement, []) for statement in written),
        f"SELECT {keys}, sum(_writes)::BIGINT AS _writes, max(_last_written) AS _last_written FROM parts"
        f" GROUP BY {HASH}, {keys} ORDER BY _writes DESC, _last_written DESC, {keys} LIMIT {n}",
    )


def busy_partitions(table: IntervalTable, index: Index, since: int) -> dict[int, int]:
    """Return rows written after an epoch, by partition. Removals do not count."""
    found = index.query(
        f"SELECT {PARTITION} AS partition, count(*)::BIGINT AS writes FROM {table.relation}"
        f" WHERE {_written_since(table, since)} AND {PARTITION} IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    return dict(zip(found["partition"].to_pylist(), found["writes"].to_pylist(), strict=True))


def _written_since(table: IntervalTable, since: int) -> str:
    """Return the condition that a version was written after an epoch, not only repeated after a gap."""
    starts = ", ".join(map(str, sorted(table.starts))) or "NULL"
    return f"_valid_from > {since} AND _valid_from <= {table.high} AND (_valid_from IN ({starts})) IS NOT TRUE"


def grouping(table: IntervalTable, name: str, by: Sequence[str] | str | None) -> list[str]:
    """Return the columns to group rows by; see :meth:`StateTable.heavy_keys`."""
    if by is not None:
        chosen = [by] if isinstance(by, str) else [*by]
        for column in chosen:
            if column not in table.key_columns:
                raise UnknownColumnError.among("key column", column, table.key_columns, where=f"in {name}")
        if not chosen:
            raise InvalidArgumentError(
                f"Invalid by={by!r}: expected at least one key column.\nKey columns: {', '.join(table.key_columns)}."
            )
        return chosen
    number = row_number_column(name, table.key_columns)
    keys = [column for column in table.key_columns if column not in (POSITION, number)]
    return keys or [*table.key_columns]


def _fields(table: IntervalTable) -> list[pa.Field]:
    return [table.schema.field(name) for name in table.columns]
