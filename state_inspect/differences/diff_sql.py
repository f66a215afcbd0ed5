"""The statements that compare a state table at two epochs.

Only versions that held at one of the two epochs and not at the other are looked at. Columns have numbers in here
(``k0`` keys, ``o0`` old, ``n0`` new values, ``d0`` deltas), because the state's own names are anyone's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from streamstate.snapshots.change_log import listed, quoted, same
from streamstate.snapshots.operators import HASH

if TYPE_CHECKING:
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
_MICROSECONDS_A_DAY = 86_400_000_000


class Columns(Protocol):
    """What a comparison has to know of the columns of a state table."""

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
        """With all of them."""


class DiffSQL:
    """Statements over one interval table.

    Args:
        table: the interval table.
        a: the epoch compared from.
        b: the epoch compared to.
    """

    few = 1_000
    """Up to so many versions, both sides together, are better grouped by their keys than joined."""

    def __init__(self, table: IntervalTable, a: int, b: int) -> None:
        self._table: Columns = table
        self._sources = {
            "old": f"{table.relation} WHERE {_only_at(a, b)}",
            "new": f"{table.relation} WHERE {_only_at(b, a)}",
        }
        self._number_columns()

    def _number_columns(self) -> None:
        table = self._table
        self.keys = [f"k{at}" for at in range(len(table.key_columns))]
        self.deltas = {
            at: name for at, name in enumerate(table.value_columns) if _delta(table.schema.field(name).type, at)
        }
        """Numbers and names of the value columns that can be subtracted."""

    def one_sided(self, *, added: bool) -> str:
        """The rows that are there at one epoch only."""
        there, other = ("new", "old") if added else ("old", "new")
        columns = ", ".join(f"{there}.{quoted(name)}" for name in self._table.columns)
        order = ", ".join(f"{there}.{quoted(name)}" for name in self._table.key_columns)
        return f"{self._sides()} SELECT {columns} FROM {there} ANTI JOIN {other} ON {self._match} ORDER BY {order}"

    def both_sided(self) -> str:
        """The rows of both epochs whose values differ: keys, then old and new values by turns."""
        keys = [f"new.{quoted(name)}" for name in self._table.key_columns]
        pairs = [
            f"{side}.{quoted(name)} AS {quoted(f'{name}_{side}')}"
            for name in self._table.value_columns
            for side in ("old", "new")
        ]
        return (
            f"{self._sides()} SELECT {', '.join([*keys, *pairs])} FROM old JOIN new ON {self._match}"
            f" WHERE {self._differs} ORDER BY {', '.join(keys)}"
        )

    def sizes(self) -> str:
        """How many versions each side has: a row of ``side`` and ``n`` for either."""
        return " UNION ALL ".join(
            f"SELECT '{side}' AS side, count(*) AS n FROM {rows}" for side, rows in self._sources.items()
        )

    def in_both(self) -> str:
        """How many keys have a version on both sides, ``n``, and in how many of these values differ, ``changed``."""
        # Joined by the hash, the keys are compared once for each pair; as keys of the join they would be hashed again.
        keys = same("old", "new", self._table.key_columns)
        return (
            f"SELECT count(*) FILTER ({keys}) AS n, count(*) FILTER ({keys} AND {self._differs}) AS changed"
            f" FROM ({self._side('old')}) AS old JOIN ({self._side('new')}) AS new USING ({HASH})"
        )

    def in_both_of_few(self) -> str:
        """As :meth:`in_both`, without a join.

        DuckDB keeps the handles of the blocks that a join took until tens of thousands have gathered: where a view
        counts what each of many epochs changed, the process grew by five kilobytes each time.
        """
        fields = ", ".join(f"{quoted(name)} := {quoted(name)}" for name in self._table.value_columns)
        values = f"struct_pack({fields})" if fields else "true"
        named = zip(self._table.key_columns, self.keys, strict=True)
        keys = ", ".join([HASH, *(f"{quoted(name)} AS {number}" for name, number in named)])
        both = " UNION ALL ".join(
            f"SELECT '{side}' AS side, {values} AS row, {keys} FROM {rows}" for side, rows in self._sources.items()
        )
        return (
            f"SELECT count(*) AS n, count(*) FILTER ({self._differs}) AS changed FROM ("
            f"SELECT first(row) FILTER (side = 'old') AS old, first(row) FILTER (side = 'new') AS new"
            f" FROM ({both}) GROUP BY {', '.join([HASH, *self.keys])} HAVING count(*) > 1)"
        )

    def page(self, change: str | None, order: Sequence[str], offset: int, limit: int) -> str:
        """Some rows of any kind, in an order; ``_row`` numbers them from 0."""
        ordered = ", ".join([*order, *(f"{key} ASC NULLS LAST" for key in self.keys)])
        return (
            f"SELECT row_number() OVER (ORDER BY {ordered}) - 1 AS _row, * FROM ({self.joined(change)}"
            f" ORDER BY {ordered} LIMIT {limit} OFFSET {offset}) ORDER BY _row"
        )

    def differing(self) -> str:
        """All rows that differ, in no order, with the columns by their numbers."""
        return self.joined(None)

    def summed(self) -> str:
        """For each column that has deltas four numbers: how many differ, their sum, the largest and the smallest."""
        numbers = []
        for at in self.deltas:
            number = _is_number(f"d{at}", self._kind(at))
            numbers.append(
                f"count(*) FILTER (d{at} <> 0), sum(d{at}) FILTER ({number}),"
                f" max(d{at}) FILTER (d{at} > 0 AND {number}), min(d{at}) FILTER (d{at} < 0 AND {number})"
            )
        return f"SELECT {', '.join(numbers)} FROM ({self.joined(CHANGED)})"

    def number_where(self, at: int) -> str:
        """The condition that a column's delta is a number other than 0."""
        return f"d{at} <> 0 AND {_is_number(f'd{at}', self._kind(at))}"

    def movers(self, at: int, limit: int) -> str:
        """The rows whose column moved the most, as :meth:`page` gives them."""
        order = f"abs(d{at}) DESC, {', '.join(f'{key} ASC NULLS LAST' for key in self.keys)}"
        return (
            f"SELECT row_number() OVER (ORDER BY {order}) - 1 AS _row, * FROM ({self.joined(CHANGED)}"
            f" WHERE {self.number_where(at)} ORDER BY {order} LIMIT {limit}) ORDER BY _row"
        )

    def _kind(self, at: int) -> pa.DataType:
        return self._table.schema.field(self._table.value_columns[at]).type

    def joined(self, kind: str | None) -> str:
        """All rows that differ, or those of one kind: ``_change``, ``_hash``, keys, each value's old, new, delta."""
        keys = [
            f"coalesce(new.{quoted(name)}, old.{quoted(name)}) AS {number}"
            for number, name in zip(self.keys, self._table.key_columns, strict=True)
        ]
        values = [
            f"old.{quoted(name)} AS o{at}, new.{quoted(name)} AS n{at}"
            for at, name in enumerate(self._table.value_columns)
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

    def _sides(self) -> str:
        return f"WITH {', '.join(f'{side} AS ({self._side(side)})' for side in ('old', 'new'))}"

    def _side(self, side: str) -> str:
        return f"SELECT {listed([HASH, '_valid_from', *self._table.columns])} FROM {self._sources[side]}"

    @property
    def _match(self) -> str:
        return same("old", "new", [HASH, *self._table.key_columns])

    @property
    def _differs(self) -> str:
        return f"({' OR '.join(self._unequal(name) for name in self._table.value_columns) or 'false'})"

    def _unequal(self, name: str) -> str:
        return f"old.{quoted(name)} IS DISTINCT FROM new.{quoted(name)}"


def _only_at(epoch: int, other: int) -> str:
    """The condition that a version held at one epoch and not at the other."""
    if epoch <= other:
        return f"_valid_from <= {epoch} AND _valid_to > {epoch} AND _valid_to <= {other}"
    return f"_valid_from > {other} AND _valid_from <= {epoch} AND _valid_to > {epoch}"


def _is_number(delta: str, kind: pa.DataType) -> str:
    return f"NOT isnan({delta})" if pa.types.is_floating(kind) else "true"


def _delta(kind: pa.DataType, at: int) -> str | None:
    """SQL for a column's new value less its old one; None where its type has no difference."""
    if pa.types.is_integer(kind):
        wide = "HUGEINT" if kind.bit_width == 64 else "BIGINT"
        return f"n{at}::{wide} - o{at}::{wide}"
    if pa.types.is_floating(kind):
        return f"n{at} - o{at}"
    if pa.types.is_decimal(kind):
        return f"TRY(n{at} - o{at})"  # which may not fit the widest decimal
    if pa.types.is_timestamp(kind):
        return f"epoch_us(n{at}) - epoch_us(o{at})"
    if pa.types.is_date(kind):
        return f"(n{at} - o{at})::BIGINT * {_MICROSECONDS_A_DAY}"
    return None


def is_duration(kind: pa.DataType) -> bool:
    """Whether a column's deltas are microseconds."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
