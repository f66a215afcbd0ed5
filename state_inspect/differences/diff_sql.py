"""The statements that compare a state table at two epochs.

Only versions that are valid at one of the two epochs and not at the other are read. Columns are numbered here (``k0``
keys, ``o0`` old, ``n0`` new values, ``d0`` deltas), because the state's own column names can be anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.state_tables import HASH
from streamstate.snapshots.store.duckdb_sql import listed, quoted, same
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at

CHANGES = ADDED, REMOVED, CHANGED = "added", "removed", "changed"
_MICROSECONDS_A_DAY = 86_400_000_000


class TableColumns(Protocol):
    """The columns of a state table that is compared."""

    @property
    def columns(self) -> list[str]:
        """Key columns, then value columns."""

    @property
    def key_columns(self) -> list[str]:
        """In the order on disk."""

    @property
    def value_columns(self) -> list[str]:
        """In the order on disk."""

    @property
    def schema(self) -> pa.Schema:
        """The types of all columns."""


class DiffSQL:
    """Statements that compare two sets of rows by key, each given as SQL that follows FROM."""

    _held: tuple[IntervalTable, ...] = ()
    """Kept as long as the statements are."""
    few = 1_000
    """Up to so many versions, both sides together, are better grouped by their keys than joined."""

    def __init__(self, table: TableColumns, old: str, new: str) -> None:
        self.table = table
        self._sources = {"old": old, "new": new}
        self.keys = [f"k{at}" for at in range(len(table.key_columns))]
        self.deltas = {
            at: name for at, name in enumerate(table.value_columns) if _delta(table.schema.field(name).type, at)
        }
        """Numbers and names of the value columns that can be subtracted."""

    @classmethod
    def between(cls, tables: tuple[IntervalTable, IntervalTable], a: int, b: int) -> DiffSQL:
        """Return the statements for a state table from epoch ``a`` to ``b``, in the interval tables with them."""
        old, new = tables
        if old is new:
            return cls(new, *(f"{new.relation} WHERE {_only_at(*epochs)}" for epochs in ((a, b), (b, a))))
        made = cls(new, f"{old.relation} WHERE {held_at(a)}", f"{new.relation} WHERE {held_at(b)}")
        made._held = tables
        return made

    def named(self, kind: str, names: Mapping[str, str]) -> str:
        """Return the rows of one kind sorted by key, with some columns under their names."""
        columns = ", ".join(f"{number} AS {quoted(name)}" for number, name in names.items())
        order = ", ".join(f"rows.{key}" for key in self.keys)  # not the alias of another column
        return f"SELECT {columns} FROM ({self.joined(kind)}) AS rows ORDER BY {order}"

    def sizes(self) -> str:
        """Return the number of versions of each side, as rows of ``side`` and ``n``."""
        return " UNION ALL ".join(
            f"SELECT '{side}' AS side, count(*) AS n FROM {rows}" for side, rows in self._sources.items()
        )

    def in_both(self) -> str:
        """Return SQL for the keys with a version on both sides, ``n``, and those that differ, ``changed``."""
        # A join on the hash compares the keys once per pair; a join on the keys would hash them again.
        keys = same("old", "new", self.table.key_columns)
        return (
            f"SELECT count(*) FILTER ({keys}) AS n, count(*) FILTER ({keys} AND {self._differs}) AS changed"
            f" FROM ({self._side('old')}) AS old JOIN ({self._side('new')}) AS new USING ({HASH})"
        )

    def in_both_of_few(self) -> str:
        """As :meth:`in_both`, without a join.

        DuckDB keeps the handles of a join's blocks until tens of thousands have accumulated. A view that counted the
        changes of many epochs with joins grew the process by five kilobytes per count.
        """
        fields = ", ".join(f"{quoted(name)} := {quoted(name)}" for name in self.table.value_columns)
        values = f"struct_pack({fields})" if fields else "true"
        named = zip(self.table.key_columns, self.keys, strict=True)
        keys = ", ".join([HASH, *(f"{quoted(name)} AS {number}" for name, number in named)])
        both = " UNION ALL ".join(
            f"SELECT '{side}' AS side, {values} AS row, {keys} FROM {rows}" for side, rows in self._sources.items()
        )
        return (
            f"SELECT count(*) AS n, count(*) FILTER ({self._differs}) AS changed FROM ("
            f"SELECT first(row) FILTER (side = 'old') AS old, first(row) FILTER (side = 'new') AS new"
            f" FROM ({both}) GROUP BY {', '.join([HASH, *self.keys])} HAVING count(*) > 1)"
        )

    def order(self, number: str | None, *, descending: bool) -> str:
        """Return the ORDER BY list: a column, if one is given, then the keys."""
        direction = "DESC" if descending else "ASC"
        if number is None:
            return ", ".join(f"{key} {direction} NULLS LAST" for key in self.keys)
        return f"{number} {direction} NULLS LAST, {self.order(None, descending=False)}"

    def summed(self) -> str:
        """Four numbers for each value column: how many differ, their deltas' sum, the largest and the smallest."""
        numbers = []
        for at in range(len(self.table.value_columns)):
            numbers.append(f"count(*) FILTER ({self._distinct(f'o{at}', f'n{at}', self._kind(at))})")
            if at not in self.deltas:
                numbers += ["NULL"] * 3
                continue
            number = _is_number(f"d{at}", self._kind(at))
            numbers += [
                f"sum(d{at}) FILTER ({number})",
                f"max(d{at}) FILTER (d{at} > 0 AND {number})",
                f"min(d{at}) FILTER (d{at} < 0 AND {number})",
            ]
        return f"SELECT {', '.join(numbers)} FROM ({self.joined(CHANGED)})"

    def is_ratio(self, at: int) -> bool:
        """Return whether a column's delta can be a share of its value: not that of a time."""
        return not is_duration(self._kind(at))

    def number_where(self, at: int) -> str:
        """Return the condition that a column's delta is a number other than 0."""
        return f"d{at} <> 0 AND {_is_number(f'd{at}', self._kind(at))}"

    def movers(self, at: int, limit: int) -> str:
        """Return the rows in which a column moved the most, numbered."""
        moved = f"{self.joined(CHANGED)} WHERE {self.number_where(at)}"
        return numbered(moved, self.order(f"abs(d{at})", descending=True), limit)

    def _kind(self, at: int) -> pa.DataType:
        return self.table.schema.field(self.table.value_columns[at]).type

    def joined(self, kind: str | None) -> str:
        """Return SQL for differing rows: ``_change``, ``_hash``, keys, each value's old, new, delta."""
        keys = [
            f"coalesce(new.{quoted(name)}, old.{quoted(name)}) AS {number}"
            for number, name in zip(self.keys, self.table.key_columns, strict=True)
        ]
        values = [
            f"old.{quoted(name)} AS o{at}, new.{quoted(name)} AS n{at}"
            for at, name in enumerate(self.table.value_columns)
        ]
        change = (
            f"CASE WHEN old._valid_from IS NULL THEN '{ADDED}' WHEN new._valid_from IS NULL THEN '{REMOVED}'"
            f" ELSE '{CHANGED}' END AS _change, coalesce(new.{HASH}, old.{HASH}) AS {HASH}"
        )
        join, where = {
            CHANGED: ("JOIN", self._differs),
            ADDED: ("RIGHT JOIN", "old._valid_from IS NULL"),
            REMOVED: ("LEFT JOIN", "new._valid_from IS NULL"),
            None: ("FULL JOIN", f"old._valid_from IS NULL OR new._valid_from IS NULL OR {self._differs}"),
        }[kind]
        deltas = "".join(f", {_delta(self._kind(at), at)} AS d{at}" for at in self.deltas)
        return (
            f"SELECT *{deltas} FROM (SELECT {', '.join([change, *keys, *values])}"
            f" FROM ({self._side('old')}) AS old {join} ({self._side('new')}) AS new ON {self._match} WHERE {where})"
        )

    def of_view(self, columns: Sequence[str], where: str) -> str:
        """Return SQL for the differing rows of a view: some columns of the rows that meet a condition.

        Columns: ``was`` and ``is_there`` (whether the view has a row of the key on either side), and each column's old
        and new values, ``o0``, ``n0``, ….
        """
        names = listed([HASH, *dict.fromkeys([*self.table.key_columns, *columns])])
        old, new = (f"(SELECT {names} FROM (FROM {rows}) WHERE {where})" for rows in self._sources.values())
        values = [f"old.{quoted(name)} AS o{at}, new.{quoted(name)} AS n{at}" for at, name in enumerate(columns)]
        differs = [f"old.{quoted(name)} IS DISTINCT FROM new.{quoted(name)}" for name in columns]
        return (
            f"SELECT old.{HASH} IS NOT NULL AS was, new.{HASH} IS NOT NULL AS is_there, {', '.join(values)}"
            f" FROM {old} AS old FULL JOIN {new} AS new ON {self._match}"
            f" WHERE old.{HASH} IS NULL OR new.{HASH} IS NULL OR {' OR '.join(differs)}"
        )

    def _side(self, side: str) -> str:
        return f"SELECT {listed([HASH, '_valid_from', *self.table.columns])} FROM {self._sources[side]}"

    @property
    def _match(self) -> str:
        return same("old", "new", [HASH, *self.table.key_columns])

    @property
    def _differs(self) -> str:
        unequal = (
            self._distinct(f"old.{quoted(name)}", f"new.{quoted(name)}", self._kind(at))
            for at, name in enumerate(self.table.value_columns)
        )
        return f"({' OR '.join(unequal) or 'false'})"

    def _distinct(self, old: str, new: str, kind: pa.DataType) -> str:
        """Return SQL for whether two values of a type differ."""
        return f"{old} IS DISTINCT FROM {new}"


def numbered(rows: str, order: str, limit: int, offset: int = 0) -> str:
    """Return a slice of the rows of a SELECT in an order; ``_row`` numbers them from 0."""
    return (
        f"SELECT row_number() OVER (ORDER BY {order}) - 1 AS _row, * FROM"
        f" ({rows} ORDER BY {order} LIMIT {limit} OFFSET {offset}) ORDER BY _row"
    )


def check_change(change: str | None) -> None:
    """Raise unless a kind of change is None or exists."""
    if change is not None and change not in CHANGES:
        raise InvalidArgumentError(f"Invalid change={change!r}: expected one of {', '.join(CHANGES)}.")


def _only_at(epoch: int, other_epoch: int) -> str:
    """Return the condition that a version is valid at one epoch and not at another."""
    if epoch <= other_epoch:
        return f"_valid_from <= {epoch} AND _valid_to > {epoch} AND _valid_to <= {other_epoch}"
    return f"_valid_from > {other_epoch} AND _valid_from <= {epoch} AND _valid_to > {epoch}"


def _is_number(delta: str, kind: pa.DataType) -> str:
    return f"NOT isnan({delta})" if pa.types.is_floating(kind) else "true"


def _delta(kind: pa.DataType, at: int) -> str | None:
    """Return SQL for a column's new value minus its old value; None if its type cannot be subtracted."""
    if pa.types.is_integer(kind):
        wide = "HUGEINT" if kind.bit_width == 64 else "BIGINT"
        return f"n{at}::{wide} - o{at}::{wide}"
    if pa.types.is_floating(kind):
        return f"n{at} - o{at}"
    if pa.types.is_decimal(kind):
        return f"TRY(n{at} - o{at})"  # the difference may overflow the widest decimal
    if pa.types.is_timestamp(kind):
        return f"epoch_us(n{at}) - epoch_us(o{at})"
    if pa.types.is_date(kind):
        return f"(n{at} - o{at})::BIGINT * {_MICROSECONDS_A_DAY}"
    return None


def is_duration(kind: pa.DataType) -> bool:
    """Return whether a column's deltas are microseconds."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
