"""Differences between snapshots of two branches: a query and its fork, two forks, or two stores.

They are compared by the state tables and columns that both have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownTableError
from streamstate.snapshots.checkpoint.state_tables import HASH
from streamstate.snapshots.store.duckdb_sql import listed
from streamstate.state_inspect.branches.ancestors import ancestors, branch_names, same_branch
from streamstate.state_inspect.branches.fingerprints import encoded_value
from streamstate.state_inspect.captured_query import QueryHistory
from streamstate.state_inspect.causes.causes import Caused, KeyRows
from streamstate.state_inspect.differences.diff import Diff
from streamstate.state_inspect.differences.diff_sql import DiffSQL
from streamstate.state_inspect.differences.held_rows import Readable
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.temporal_index.index import Index
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at

_THERE = "_rows_of_the_other_store"


def branch_diff(old: Snapshot, new: Snapshot, table: str | None, *, history: QueryHistory) -> Diff:
    """Compare a state table in snapshots of two branches; see :meth:`History.diff`."""
    sides = old.history, new.history
    queries = sides[0].recorded, sides[1].recorded
    names = branch_names(*sides)
    chosen = common_table(table, queries[0].tables(), queries[1].tables(), names)
    tables = [_intervals(snapshot, chosen) for snapshot in (old, new)]
    columns = common_columns(tables[0], tables[1], chosen, names)
    here, there = (
        _rows_sql(intervals, snapshot.epoch, columns) for intervals, snapshot in zip(tables, (old, new), strict=True)
    )
    index: Readable = queries[0].index
    if queries[0].index is not queries[1].index:
        index = _IndexWithRelations(queries[0].index, {_THERE: queries[1].index.query(there)})
        there = f"SELECT * FROM {_THERE}"
    sql = _BranchDiffSQL(columns, f"({here})", f"({there})", held=tables)
    causes = _LineageCauses(_descent(old, new) or _descent(new, old))
    return Diff(
        index, sql, chosen, old.epoch, new.epoch, causes=causes, history=history, sides=sides, left_out=columns.left_out
    )


def _intervals(snapshot: Snapshot, table: str) -> IntervalTable:
    if table in snapshot.tables():
        return snapshot.intervals(table)
    # The table has no rows at the snapshot's epoch.
    return snapshot.history.recorded.interval_table(table, snapshot.epoch, snapshot.epoch)


def _rows_sql(table: IntervalTable, epoch: int, columns: CommonColumns) -> str:
    """Return SQL for the rows of a state table at an epoch: the hash of the key, then the common columns."""
    # The hash depends on the order of the key columns, which the other branch need not share.
    hashed = HASH if table.key_columns == columns.key_columns else f"hash({listed(columns.key_columns)}) AS {HASH}"
    names = listed(["_valid_from", *columns.columns])
    return f"SELECT {hashed}, {names} FROM {table.relation} WHERE {held_at(epoch)}"


class _BranchDiffSQL(DiffSQL):
    """Statements over the rows of two state tables, which are held as long as the statements are."""

    few = 0

    def __init__(self, columns: CommonColumns, old: str, new: str, held: Sequence[IntervalTable]) -> None:
        super().__init__(columns, old, new)
        self._held = (*held,)

    def _distinct(self, old: str, new: str, kind: pa.DataType) -> str:
        if not _contains_map(kind):
            return super()._distinct(old, new, kind)
        # The order of a map's entries has no meaning, and two runs may differ in it.
        return super()._distinct(f"({encoded_value(old, kind)})", f"({encoded_value(new, kind)})", kind)


def _contains_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_contains_map(kind.field(at).type) for at in range(kind.num_fields))


class _IndexWithRelations:
    """An index with additional relations, which come from another store."""

    def __init__(self, index: Index, relations: Mapping[str, pa.Table]) -> None:
        self._index = index
        self._relations = dict(relations)

    def query(
        self, sql: str, parameters: list[Any] | None = None, frames: Mapping[str, pa.Table] | None = None
    ) -> pa.Table:
        """As :meth:`Index.query`."""
        return self._index.query(sql, parameters, {**self._relations, **(frames or {})})

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """As :meth:`Index.connection`."""
        with self._index.connection() as cursor:
            for name, rows in self._relations.items():
                cursor.register(name, rows)
            yield cursor


_Span = tuple[QueryHistory, int, int]
"""A history, and the epochs after which and up to which its changes count."""


def _descent(older: Snapshot, newer: Snapshot) -> list[_Span]:
    """Return the histories that lead from a snapshot to that of a descendant, oldest first; empty if it is none."""
    spans: list[_Span] = []
    history, last = newer.history, newer.epoch
    for ancestor in ancestors(newer.history.recorded):
        spans.append((history, ancestor.last, last))
        history, last = ancestor.history, ancestor.last
        if same_branch(history, older.history):
            return [(history, older.epoch, last), *reversed(spans)] if older.epoch <= last else []
    return []


class _LineageCauses:
    """Finds the causes of changes from an ancestor to a descendant; between other branches there are none."""

    def __init__(self, spans: Sequence[_Span]) -> None:
        self._spans = spans

    def of(self, keys: KeyRows, first: int, last: int) -> dict[int, list[Caused]]:
        """Return the changes of some keys, by the keys' numbers, ascending by epoch; the spans say at which epochs."""
        found: dict[int, list[Caused]] = {}
        for history, after, upto in self._spans:
            query = history.recorded
            if after < upto and keys.name in query.tables():
                only = keys.rows.select(keys.table.key_columns)
                own = replace(keys, table=query.versions_of(keys.name, only, after, upto))
                for row, changes in query.causes().of(own, after, upto).items():
                    found.setdefault(row, []).extend(changes)
        return found


@dataclass(frozen=True)
class CommonColumns:
    """The columns by which two state tables are compared."""

    key_columns: list[str]
    value_columns: list[str]
    schema: pa.Schema
    left_out: tuple[str, ...] = ()
    """Columns that are not compared, and why: one table lacks them, or has them with another type."""

    @property
    def columns(self) -> list[str]:
        """Key columns, then value columns."""
        return [*self.key_columns, *self.value_columns]

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns with their types."""
        return {name: self.schema.field(name).type for name in self.columns}


def common_columns(here: IntervalTable, there: IntervalTable, table: str, names: Sequence[str]) -> CommonColumns:
    """Return the columns that a state table has in both branches; raise if the key columns differ."""
    keys = [{name: side.schema.field(name).type for name in side.key_columns} for side in (here, there)]
    if {*keys[0]} != {*keys[1]} or any(not same_type(kind, keys[1][name]) for name, kind in keys[0].items()):
        listing = "\n".join(f"  {name}: {_listed(columns)}" for name, columns in zip(names, keys, strict=True))
        raise InvalidArgumentError(
            f"{table} has different key columns in {names[0]} and {names[1]}, so its rows cannot be compared.\n"
            f"Its key columns:\n{listing}\nCompare a table with the same key, or query each branch with SQL."
        )
    shared, left_out = [], []
    for name in dict.fromkeys([*here.value_columns, *there.value_columns]):
        kinds = [side.schema.field(name).type if name in side.value_columns else None for side in (here, there)]
        if None in kinds:
            left_out.append(f"{name} (only in {names[1] if kinds[0] is None else names[0]})")
        elif not same_type(*kinds):
            left_out.append(f"{name} ({kinds[0]} in {names[0]}, {kinds[1]} in {names[1]})")
        else:
            shared.append(name)
    return CommonColumns(list(here.key_columns), shared, here.schema, tuple(left_out))


def common_table(table: str | None, here: Sequence[str], there: Sequence[str], names: Sequence[str]) -> str:
    """Return the table with a name in both branches, or the only table that both have."""
    shared = [name for name in here if name in there]
    if table in shared:
        return str(table)
    if table is not None or not shared:
        missing = (
            f"The state table {table!r} is not in both" if table is not None else "There is no state table in both"
        )
        raise UnknownTableError(
            f"{missing} {names[0]} and {names[1]}.\n"
            f"{names[0]} has {', '.join(here) or 'none'}; {names[1]} has {', '.join(there) or 'none'}."
        )
    if len(shared) > 1:
        raise InvalidArgumentError(
            f"{names[0]} and {names[1]} have {len(shared)} state tables in common; name one.\n"
            f"Tables: {', '.join(shared)}."
        )
    return shared[0]


def same_type(a: pa.DataType, b: pa.DataType) -> bool:
    """Return whether two types hold the same values, nulls left aside.

    Example:
        >>> same_type(pa.list_(pa.field("item", pa.int64(), nullable=False)), pa.list_(pa.int64()))
        True
    """
    if a.id != b.id or a.num_fields != b.num_fields:
        return False
    if a.num_fields == 0:
        return bool(a == b)
    if pa.types.is_map(a):
        return same_type(a.key_type, b.key_type) and same_type(a.item_type, b.item_type)
    if not pa.types.is_struct(a):
        return same_type(a.value_type, b.value_type)
    pairs = [(a.field(at), b.field(at)) for at in range(a.num_fields)]
    return all(left.name == right.name and same_type(left.type, right.type) for left, right in pairs)


def _listed(keys: dict[str, pa.DataType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in keys.items())
