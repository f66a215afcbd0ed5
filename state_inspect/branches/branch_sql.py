"""The statements that compare a state table of two branches, each at an epoch of its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamstate.snapshots.change_log import listed, quoted
from streamstate.snapshots.operators import HASH
from streamstate.state_inspect.branches.encoding import encoded
from streamstate.state_inspect.differences.diff_sql import DiffSQL
from streamstate.state_inspect.temporal_index.interval_table import held_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import duckdb

    from streamstate.state_inspect.branches.common import CommonColumns
    from streamstate.state_inspect.temporal_index.index import Index
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

__all__ = ["BranchSQL", "IndexWith", "held_rows"]


class BranchSQL(DiffSQL):
    """Statements over the rows that two state tables held.

    Args:
        columns: what is compared.
        old: the rows of the one, as :func:`held_rows` gives them, in brackets.
        new: the same of the other.
        held: the tables that they are read from, which stay for as long as the statements do.
    """

    few = 0

    def __init__(self, columns: CommonColumns, old: str, new: str, held: Sequence[IntervalTable] = ()) -> None:
        self._table = columns
        self._held = held
        self._sources = {"old": old, "new": new}
        self._number_columns()

    def _unequal(self, name: str) -> str:
        kind = self._table.schema.field(name).type
        if not _holds_map(kind):
            return super()._unequal(name)
        # The order of a map's entries says nothing, and two runs need not agree in it.
        old, new = (encoded(f"{side}.{quoted(name)}", kind) for side in ("old", "new"))
        return f"({old}) IS DISTINCT FROM ({new})"


def held_rows(table: IntervalTable, epoch: int, columns: CommonColumns) -> str:
    """SQL for the rows that a state table held at an epoch, with the hash of the key, the common columns first to last.

    Args:
        table: the state table.
        epoch: the epoch.
        columns: those that are compared.
    """
    # The hash is that of the key columns in their order, which need not be the other branch's.
    hashed = HASH if table.key_columns == columns.key_columns else f"hash({listed(columns.key_columns)}) AS {HASH}"
    names = listed(["_valid_from", *columns.columns])
    return f"SELECT {hashed}, {names} FROM {table.relation} WHERE {held_at(epoch)}"


class IndexWith:
    """An index in which every statement sees some more relations, of another store.

    Args:
        index: the index.
        frames: the relations by name.
    """

    def __init__(self, index: Index, frames: Mapping[str, pa.Table]) -> None:
        self._index = index
        self._frames = dict(frames)

    def query(
        self, sql: str, parameters: list[Any] | None = None, frames: Mapping[str, pa.Table] | None = None
    ) -> pa.Table:
        """As :meth:`Index.query`."""
        return self._index.query(sql, parameters, {**self._frames, **(frames or {})})

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """As :meth:`Index.connection`."""
        with self._index.connection() as cursor:
            for name, frame in self._frames.items():
                cursor.register(name, frame)
            yield cursor


def _holds_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_holds_map(kind.field(at).type) for at in range(kind.num_fields))
