"""What differs between two epochs of a state table, of one query or of two branches."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.operators import HASH
from streamstate.state_inspect.branches.ancestry import branch_names
from streamstate.state_inspect.differences.cause_rules import UNKNOWN
from streamstate.state_inspect.differences.causes import Keys
from streamstate.state_inspect.differences.diff_sql import ADDED, CHANGED, REMOVED, DiffSQL, is_duration
from streamstate.state_inspect.differences.held_rows import HeldRows
from streamstate.state_inspect.frames import to_pandas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamstate.state_inspect.branches.common import CommonColumns
    from streamstate.state_inspect.differences.causes import Caused
    from streamstate.state_inspect.differences.held_rows import Readable
    from streamstate.state_inspect.recorded import Recorded
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

_SHOWN = 20
_CHANGES = (ADDED, REMOVED, CHANGED)


class Explains(Protocol):
    """Finds the causes of changes, as :class:`Causes` does."""

    def of(self, keys: Keys, first: int, last: int) -> dict[int, list[Caused]]:
        """The changes of some keys after one epoch up to another."""


@dataclass(frozen=True)
class DiffSummary:
    """What two epochs differ by, in numbers."""

    counts: dict[str, int]
    """How many keys were ``added``, ``removed`` and ``changed``."""
    columns: pd.DataFrame
    """A row for each value column that can be subtracted: ``column``, ``changed`` (keys whose value differs), ``sum``
    of the differences, ``largest_increase`` and ``largest_decrease`` (missing where there is none)."""

    def __repr__(self) -> str:
        return (
            f"{self._said()}\n{self.columns.to_string(index=False, na_rep='')}" if len(self.columns) else self._said()
        )

    def _said(self) -> str:
        return ", ".join(f"{count:,} {change}" for change, count in self.counts.items())

    def _repr_html_(self) -> str:
        return f"<p>{self._said()}</p>" + (_as_html(self.columns) if len(self.columns) else "")


class Diff:
    """Keys added, removed and changed from epoch ``a`` to epoch ``b``.

    Between two epochs of one query only versions that hold at one of them and not at the other are looked at, so the
    work follows what changed, not the state. Between two branches all rows of both are joined by their keys.
    """

    def __init__(
        self,
        index: Readable,
        table: IntervalTable | CommonColumns,
        name: str,
        a: int,
        b: int,
        *,
        causes: Explains | None = None,
        history: Recorded | None = None,
        sql: DiffSQL | None = None,
        sides: tuple[Recorded, Recorded] | None = None,
    ) -> None:
        self._index = index
        self._table = table
        self._causes = causes
        self._sql = DiffSQL(cast("IntervalTable", table), a, b) if sql is None else sql
        self.table = name
        """The state table."""
        self.a = a
        """The epoch compared from."""
        self.b = b
        """The epoch compared to."""
        self.history = history
        """The history that was asked."""
        self.sides = sides
        """The histories that the two epochs are of, where they are two; None where both are of :attr:`history`."""
        self.left_out = tuple(getattr(table, "left_out", ()))
        """Columns that are not compared, because one of two branches lacks them or has them with another type."""

    @property
    def queries(self) -> tuple[str, str]:
        """The names of the queries that the two epochs are of.

        Example:
            >>> history.diff(45, store["what_if"].at(45)).queries  # doctest: +SKIP
            ('delays', 'what_if')
        """
        if self.sides is not None:
            return branch_names(*self.sides)
        return (self.history.name,) * 2 if self.history is not None else ("", "")

    @property
    def key_columns(self) -> list[str]:
        """The table's key columns, in the order on disk."""
        return list(self._table.key_columns)

    @property
    def value_columns(self) -> dict[str, bool]:
        """The table's value columns, in the order on disk, and whether each can be subtracted."""
        return {name: at in self._sql.deltas for at, name in enumerate(self._table.value_columns)}

    @cached_property
    def added(self) -> pd.DataFrame:
        """Keys that are there at ``b`` only, with their values."""
        return to_pandas(self._index.query(self._sql.one_sided(added=True)))

    @cached_property
    def removed(self) -> pd.DataFrame:
        """Keys that are there at ``a`` only, with their values."""
        return to_pandas(self._index.query(self._sql.one_sided(added=False)))

    @cached_property
    def changed(self) -> pd.DataFrame:
        """Keys that are there at both with other values: ``<column>_old`` at ``a``, ``<column>_new`` at ``b``."""
        return to_pandas(self._index.query(self._sql.both_sided()))

    @property
    def counts(self) -> dict[str, int]:
        """How many keys were added, removed and changed."""
        return dict(self._counts)

    @cached_property
    def _counts(self) -> dict[str, int]:
        sides = {row["side"]: row["n"] for row in self._index.query(self._sql.sizes()).to_pylist()}
        n = changed = 0
        if sides["old"] and sides["new"]:
            few = sides["old"] + sides["new"] <= self._sql.few
            both = self._sql.in_both_of_few() if few else self._sql.in_both()
            [(n, changed)] = (tuple(row.values()) for row in self._index.query(both).to_pylist())
        return dict(zip(_CHANGES, (sides["new"] - n, sides["old"] - n, changed), strict=True))

    def summary(self) -> DiffSummary:
        """The counts and, for each column that can be subtracted, how far it moved in the keys that changed.

        Numbers, decimals, dates and timestamps can; the differences of dates and timestamps are durations.

        Example:
            >>> history.diff(10, 12).summary().columns  # doctest: +SKIP
               column  changed  sum  largest_increase  largest_decrease
            0   count      412  980                17              <NA>
        """
        names = list(self._sql.deltas.values())
        found = self._index.query(self._sql.summed()).columns if names else []
        rows = []
        for at, name in enumerate(names):
            changed, *moved = (column[0].as_py() for column in found[4 * at : 4 * at + 4])
            if is_duration(self._table.schema.field(name).type):
                moved = [None if one is None else pd.Timedelta(one, unit="us") for one in moved]
            rows.append([name, changed, *moved])
        columns = ["column", "changed", "sum", "largest_increase", "largest_decrease"]
        return DiffSummary(self.counts, pd.DataFrame(rows, columns=columns, dtype=object))

    def movers(self, column: str | None = None, n: int = 10) -> pd.DataFrame:
        """The changed keys in which a column moved the most, up or down; the columns are those of :meth:`page`.

        Args:
            column: a value column that can be subtracted; may be left out where there is one.
            n: rows to give at most.

        Raises:
            UnknownColumnError: where no such column can be subtracted.
            InvalidArgumentError: where the column is left out and there are several, or n is negative.

        Example:
            >>> history.diff(10, 12).movers("count", n=3)  # doctest: +SKIP
        """
        _not_negative(n=n)
        names = list(self._sql.deltas.values())
        if column is None and len(names) == 1:
            column = names[0]
        if column is None:
            raise InvalidArgumentError(
                f"{self.table} has {len(names)} columns that can be subtracted; say which one.\n"
                f"Columns: {', '.join(names) or 'none'}."
            )
        if column not in names:
            raise UnknownColumnError.among("column with differences", column, names, where=f"in {self.table}")
        at = next(at for at, name in self._sql.deltas.items() if name == column)
        return self._frame(self._index.query(self._sql.movers(at, n)))

    def page(
        self,
        offset: int = 0,
        limit: int = 20,
        *,
        change: str | None = None,
        order_by: str | None = None,
        descending: bool = False,
    ) -> pd.DataFrame:
        """Some of the keys that differ, in an order that is the same at every call, with the causes.

        Columns: ``_change`` (``added``, ``removed``, ``changed``), the key; for each value column ``<column>_old``,
        ``<column>_new`` and, where it can be subtracted, ``<column>_delta``; ``_cause``; ``_epochs`` (those at which
        the key changed, of the epochs between the two). Where several causes played a part, ``_cause`` names them in
        the order in which they came, separated by commas; for a key that is gone it is the cause of its removal.

        Args:
            offset: rows to pass over.
            limit: rows to give at most.
            change: only ``added``, ``removed`` or ``changed`` keys.
            order_by: one of the page's columns to sort by; by default the key.
            descending: the largest first; missing values come last either way.

        Raises:
            InvalidArgumentError: where an argument cannot be meant.
            UnknownColumnError: where there is no such column to sort by.

        Example:
            >>> history.diff(10, 12).page(limit=5, change="removed")[["key", "_cause", "_epochs"]]  # doctest: +SKIP
        """
        _not_negative(offset=offset, limit=limit)
        if change is not None and change not in _CHANGES:
            raise InvalidArgumentError(f"change={change!r} cannot be meant: give one of {', '.join(_CHANGES)}.")
        order = self._order(order_by, descending=descending)
        return self._frame(self._index.query(self._sql.page(change, order, offset, limit)))

    def held(self) -> HeldRows:
        """The keys that differ, held for reading many pages of them, sorted by any column and searched by key.

        The two epochs are compared once; :meth:`page` compares them at every call. Close it, or use it in ``with``.

        Example:
            >>> with history.diff(10, 12).held() as rows:  # doctest: +SKIP
            ...     rows.page(limit=5, contains="jfk", order_by="count_delta", by_size=True, descending=True)
        """
        return HeldRows(self._index, self._sql, [*self._columns().items()], len(self), self._frame)

    def to_pandas(self) -> pd.DataFrame:
        """All three as one frame: ``_change`` (``added``, ``removed``, ``changed``), the key, old and new values."""
        values = self._table.value_columns
        added = self.added.rename(columns={name: f"{name}_new" for name in values})
        removed = self.removed.rename(columns={name: f"{name}_old" for name in values})
        parts = [(ADDED, added), (REMOVED, removed), (CHANGED, self.changed)]
        columns = [
            "_change",
            *self._table.key_columns,
            *(f"{name}_{side}" for name in values for side in ("old", "new")),
        ]
        labelled = [part.assign(_change=change).reindex(columns=columns) for change, part in parts if len(part)]
        return pd.concat(labelled, ignore_index=True) if labelled else pd.DataFrame(columns=columns)

    def __len__(self) -> int:
        return sum(self._counts.values())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {change}" for change, count in self.counts.items())
        return f"<Diff of {self.table} from {' to '.join(self._ends())}: {counts}{self._not_compared()}>"

    def _ends(self) -> tuple[str, str]:
        """The two epochs in words, with their queries where these are two."""
        if self.sides is None:
            return f"epoch {self.a}", f"{self.b}"
        a, b = self.queries
        return f"{a} at epoch {self.a}", f"{b} at epoch {self.b}"

    def _not_compared(self) -> str:
        return f"; not compared: {', '.join(self.left_out)}" if self.left_out else ""

    def _repr_html_(self) -> str:
        counts = " ".join(f"{sign}{count:,}" for sign, count in zip("+\u2212~", self.counts.values(), strict=True))
        ends = html.escape(" → ".join(self._ends()))
        left_out = html.escape(self._not_compared())
        title = f"{html.escape(self.table)}: {ends} ({counts}: added, removed, changed{left_out})"
        summary, rows = self.summary().columns, self.page(limit=_SHOWN)
        parts = [f"<p>{title}</p>"]
        if len(summary):
            parts.append(_as_html(summary))
        parts.append(_as_html(rows))
        if len(self) > len(rows):
            parts.append(f"<p>The first {len(rows)} of {len(self):,} keys; page() and movers() show others.</p>")
        return "".join(parts)

    def _columns(self) -> dict[str, str]:
        """The page's columns by their numbers."""
        named = {"_change": "_change", **dict(zip(self._sql.keys, self._table.key_columns, strict=True))}
        for at, name in enumerate(self._table.value_columns):
            named |= {f"o{at}": f"{name}_old", f"n{at}": f"{name}_new"}
            if at in self._sql.deltas:
                named[f"d{at}"] = f"{name}_delta"
        return named

    def _order(self, order_by: str | None, *, descending: bool) -> list[str]:
        if order_by is None:
            return [f"{key} DESC NULLS LAST" for key in self._sql.keys] if descending else []
        found = next((number for number, name in self._columns().items() if name == order_by), None)
        if found is None:
            raise UnknownColumnError.among(
                "column", order_by, self._columns().values(), where=f"in {self.table}'s diff"
            )
        return [f"{found} {'DESC' if descending else 'ASC'} NULLS LAST"]

    def _frame(self, found: pa.Table) -> pd.DataFrame:
        """Rows that a statement found, as a page shows them."""
        named = self._columns()
        columns = [self._as_shown(number, found[number]) for number in named]
        caused = self._caused(found)
        last_there = REMOVED if self.a < self.b else ADDED
        rows = [
            _explained(caused.get(row, ()), gone=change == last_there)
            for row, change in enumerate(found["_change"].to_pylist())
        ]
        columns.append(pa.array([cause for cause, _ in rows], pa.string()))
        columns.append(pa.array([epochs for _, epochs in rows], pa.list_(pa.int64())))
        return to_pandas(pa.table(columns, names=[*named.values(), "_cause", "_epochs"]))

    def _as_shown(self, number: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
        if number[0] != "d":
            return values
        kind = self._table.schema.field(self._sql.deltas[int(number[1:])]).type
        return values.cast(pa.duration("us")) if is_duration(kind) else values

    def _caused(self, page: pa.Table) -> dict[int, list[Caused]]:
        if self._causes is None or not page.num_rows:
            return {}
        rows = page.select(["_row", HASH, *self._sql.keys]).rename_columns(["_row", HASH, *self._table.key_columns])
        first, last = sorted((self.a, self.b))
        # Branches look each of their tables up themselves.
        return self._causes.of(Keys(self.table, cast("IntervalTable", self._table), rows), first, last)


def _explained(events: Sequence[Caused], *, gone: bool) -> tuple[str, list[int]]:
    """The cause of what became of a key, and the epochs at which it changed."""
    changes = [one for one in events if not one.same]
    if not changes:
        return UNKNOWN, []
    causes = [changes[-1].cause] if gone else list(dict.fromkeys(one.cause for one in changes))
    return ", ".join(causes), [one.epoch for one in changes]


def _as_html(frame: pd.DataFrame) -> str:
    """A table in which what is missing is empty."""
    return str(frame.astype(object).where(frame.notna(), "").to_html(index=False))


def _not_negative(**numbers: Any) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InvalidArgumentError(f"{name}={number!r} cannot be meant: give a whole number that is not negative.")
