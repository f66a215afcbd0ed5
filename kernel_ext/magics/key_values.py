"""Values of a key column to complete with: a bounded number of rows is looked at, and no state is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamstate.snapshots.operators import EPOCH

if TYPE_CHECKING:
    from streamstate.state_inspect import History
    from streamstate.state_inspect.change_logs import ChangeLog

__all__ = ["BATCH", "OFFERED", "ROWS", "key_values"]

OFFERED = 50
"""How many values are offered."""

ROWS = 200_000
"""How many rows of a change log are looked at, the newest files first, where the state was not read before."""

BATCH = 20_000
"""So many of them at a time."""


def key_values(history: History, table: str, column: str, begun: str) -> list[str]:
    """Values of a column that begin with a text, sorted.

    Args:
        history: the query.
        table: its state table.
        column: a column of it.
        begun: what is written of the value already.
    """
    log = history.change_log(table)
    if column not in log.columns or pa.types.is_nested(log.version.schema.field(column).type):
        return []
    held = history.index.held(history.name, table)
    found = _searched(history, held, column, begun) if held is not None else _looked_through(log, column, begun)
    return sorted(found)


def _searched(history: History, held: Any, column: str, begun: str) -> set[str]:
    """In the index, which is at hand: every key that the state has."""
    from streamstate.snapshots.change_log import quoted
    from streamstate.state_inspect.temporal_index.interval_table import held_at

    text = f"CAST({quoted(column)} AS VARCHAR)"
    sql = f"SELECT DISTINCT {quoted(column)} AS v FROM {held.relation} WHERE starts_with({text}, ?)"
    rows = history.index.query(f"{sql} AND {held_at(held.high)} LIMIT {OFFERED}", [begun])
    return {_written(value) for value in rows["v"].to_pylist() if value is not None}


def _looked_through(log: ChangeLog, column: str, begun: str) -> set[str]:
    """In the newest rows of the change log."""
    found: set[str] = set()
    seen = 0
    for rows in _newest(log, column):
        texts = {_written(value) for value in rows.unique().to_pylist() if value is not None}
        found |= {text for text in texts if text.startswith(begun)}
        seen += len(rows)
        if len(found) >= OFFERED or seen >= ROWS:
            break
    return set(sorted(found)[:OFFERED])


def _newest(log: ChangeLog, column: str) -> Iterator[pa.Array]:
    """The values of a column in small portions, those of the newest file first."""
    for file in reversed(log.version.files(EPOCH)):
        for batch in log.version.scan_files([file], columns=[column]):
            for start in range(0, batch.num_rows, BATCH):
                yield batch.column(0).slice(start, BATCH)


def _written(value: Any) -> str:
    """A value as ``--key`` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)
