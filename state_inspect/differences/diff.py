"""Differences of a state table between two epochs, of one query or of two branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.calls.html import joined, tag
from streamstate.snapshots.checkpoint.state_tables import HASH
from streamstate.state_inspect.branches.ancestors import branch_names
from streamstate.state_inspect.captured_query import QueryHistory
from streamstate.state_inspect.causes.cause_rules import UNKNOWN
from streamstate.state_inspect.causes.causes import Caused, KeyRows
from streamstate.state_inspect.differences.diff_sql import (
    ADDED,
    CHANGED,
    CHANGES,
    REMOVED,
    DiffSQL,
    check_change,
    is_duration,
    numbered,
)
from streamstate.state_inspect.differences.held_rows import HeldRows, Readable
from streamstate.state_inspect.frames import as_html, to_pandas
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

_SHOWN = 20


class Explains(Protocol):
    """Finds the causes of changes, as :class:`Causes` does."""

    def of(self, keys: KeyRows, first: int, last: int) -> dict[int, list[Caused]]:
        """Return the changes of some keys after epoch ``first`` up to ``last``."""


@dataclass(frozen=True)
class DiffSummary:
    """The differences between two epochs in numbers."""

    counts: dict[str, int]
    """The number of keys ``added``, ``removed`` and ``changed``."""
    columns: pd.DataFrame
    """One row per value column: ``column``, ``changed`` (keys of both epochs whose value differs, as it does if it is
    null at one of them), ``sum`` of the differences, ``largest_increase`` and ``largest_decrease`` (missing if there
    is none, and for columns that cannot be subtracted)."""

    def __repr__(self) -> str:
        rows = f"\n{self.columns.to_string(index=False, na_rep='')}" if len(self.columns) else ""
        return self._counted() + rows

    def _counted(self) -> str:
        return ", ".join(f"{count:,} {change}" for change, count in self.counts.items())

    def _repr_html_(self) -> str:
        return joined(tag("p", self._counted()), as_html(self.columns, missing="") if len(self.columns) else None)


class Diff:
    """Keys added, removed and changed from epoch ``a`` to epoch ``b``.

    Between two epochs of one query, only versions that are valid at one of them and not at the other are read, so the
    cost follows the changes, not the size of the state. Between two branches, all rows of both are joined by key.
    """

    def __init__(
        self,
        index: Readable,
        sql: DiffSQL,
        name: str,
        a: int,
        b: int,
        *,
        causes: Explains,
        history: QueryHistory,
        sides: tuple[QueryHistory, QueryHistory] | None = None,
        left_out: tuple[str, ...] = (),
        title: str | None = None,
    ) -> None:
        self._index = index
        self._sql = sql
        self._table = sql.table
        self._causes = causes
        self._state = name
        self.table = name if title is None else title
        """The state table, or ``result``."""
        self.a = a
        """The epoch to compare from."""
        self.b = b
        """The epoch to compare to."""
        self.history = history
        """The history whose method was called."""
        self.sides = sides
        """The histories of the two epochs; None if both are of :attr:`history`."""
        self.left_out = left_out
        """Columns that are not compared, because one branch lacks them or has them with another type."""

    @property
    def queries(self) -> tuple[str, str]:
        """The names of the queries of the two epochs.

        Example:
            >>> history.diff(45, store["what_if"].at(45)).queries
            ('delays', 'what_if')
        """
        return branch_names(*(self.sides or (self.history, self.history)))

    @property
    def key_columns(self) -> list[str]:
        """The table's key columns, in the order on disk."""
        return list(self._table.key_columns)

    @property
    def value_columns(self) -> list[str]:
        """The table's value columns, in the order on disk."""
        return list(self._table.value_columns)

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the table's columns."""
        return pa.schema([self._table.schema.field(name).remove_metadata() for name in self._table.columns])

    @property
    def delta_columns(self) -> list[str]:
        """The value columns that can be subtracted: numbers, decimals, dates and timestamps."""
        return list(self._sql.deltas.values())

    @cached_property
    def added(self) -> pd.DataFrame:
        """Keys that exist only at ``b``, with their values."""
        return self._of_kind(ADDED, n="")

    @cached_property
    def removed(self) -> pd.DataFrame:
        """Keys that exist only at ``a``, with their values."""
        return self._of_kind(REMOVED, o="")

    @cached_property
    def changed(self) -> pd.DataFrame:
        """Keys that exist at both with different values: ``<column>_old`` at ``a``, ``<column>_new`` at ``b``."""
        return self._of_kind(CHANGED, o="_old", n="_new")

    @property
    def counts(self) -> dict[str, int]:
        """The number of keys added, removed and changed."""
        return dict(self._counts)

    @cached_property
    def _counts(self) -> dict[str, int]:
        sides = {row["side"]: row["n"] for row in self._index.query(self._sql.sizes()).to_pylist()}
        n = changed = 0
        if sides["old"] and sides["new"]:
            few = sides["old"] + sides["new"] <= self._sql.few
            both = self._sql.in_both_of_few() if few else self._sql.in_both()
            [(n, changed)] = (tuple(row.values()) for row in self._index.query(both).to_pylist())
        return dict(zip(CHANGES, (sides["new"] - n, sides["old"] - n, changed), strict=True))

    def summary(self) -> DiffSummary:
        """Return the counts and, for each column, in how many of the changed keys it differs, and how far it moved.

        Numbers, decimals, dates and timestamps can be subtracted; differences of dates and timestamps are durations.

        Example:
            >>> history.diff(10, 12).summary().columns
                column changed    sum largest_increase largest_decrease
            0    count       5     12                3             None
            1      sum       5  381.0            116.0             None
            ...
        """
        names = self.value_columns
        found = self._index.query(self._sql.summed()).columns if names else []
        rows = []
        for at, name in enumerate(names):
            changed, *moved = (column[0].as_py() for column in found[4 * at : 4 * at + 4])
            if is_duration(self._table.schema.field(name).type):
                # By way of NumPy, or pandas would count nanoseconds, which reach only 292 years.
                moved = [None if value is None else pd.Timedelta(np.timedelta64(value, "us")) for value in moved]
            rows.append([name, changed, *moved])
        columns = ["column", "changed", "sum", "largest_increase", "largest_decrease"]
        return DiffSummary(self.counts, pd.DataFrame(rows, columns=columns, dtype=object))

    def movers(self, column: str | None = None, n: int = 10) -> pd.DataFrame:
        """Return the changed keys in which a column moved the most, up or down. The columns are those of :meth:`page`.

        Args:
            column: a value column that can be subtracted; may be left out if there is only one.
            n: the maximum number of rows to return.

        Raises:
            UnknownColumnError: there is no such column that can be subtracted.
            InvalidArgumentError: the column is left out and there are several, or ``n`` is not an integer of at least
                0.

        Example:
            >>> history.diff(10, 12).movers("sum", n=2)[["carrier", "origin", "sum_old", "sum_new", "sum_delta"]]
              carrier origin  sum_old  sum_new  sum_delta
            0      UA    EWR    387.0    503.0      116.0
            1      UA    JFK    362.0    456.0       94.0
        """
        whole_number(n, "n", least=0)
        names = self.delta_columns
        if column is None and len(names) == 1:
            column = names[0]
        if column is None:
            raise InvalidArgumentError(
                f"{self.table} has {len(names)} columns that can be subtracted; name one.\n"
                f"Columns: {', '.join(names) or 'none'}."
            )
        if column not in names:
            raise UnknownColumnError.among("column with differences", column, names, where=f"in {self.table}")
        at = next(at for at, name in self._sql.deltas.items() if name == column)
        return to_pandas(self._page(self._index.query(self._sql.movers(at, n))))

    def page(
        self,
        offset: int = 0,
        limit: int = 20,
        *,
        change: str | None = None,
        order_by: str | None = None,
        descending: bool = False,
    ) -> pd.DataFrame:
        """Return a slice of the differing keys with causes, in a stable order; :meth:`page_arrow` returns Arrow.

        Columns: ``_change`` (``added``, ``removed``, ``changed``), the key; for each value column ``<column>_old``,
        ``<column>_new`` and, if it can be subtracted, ``<column>_delta``; ``_cause``; ``_epochs`` (the epochs between
        the two at which the key changed). If there were several causes, ``_cause`` lists them in order, separated by
        commas; for a removed key it is the cause of the removal.

        Args:
            offset: the number of rows to skip.
            limit: the maximum number of rows to return.
            change: return only ``added``, ``removed`` or ``changed`` keys.
            order_by: the column of the page to sort by; by default the key.
            descending: sort the largest values first. Missing values come last either way.

        Raises:
            InvalidArgumentError: an argument is invalid.
            UnknownColumnError: there is no such column to sort by.

        Example:
            >>> delays_by_hour.diff(10, 12).page(limit=2, change="removed")[["carrier", "_cause", "_epochs"]]
              carrier     _cause _epochs
            0      AA  watermark    [11]
            1      DL  watermark    [11]
        """
        return to_pandas(self.page_arrow(offset, limit, change=change, order_by=order_by, descending=descending))

    def page_arrow(
        self,
        offset: int = 0,
        limit: int = 20,
        *,
        change: str | None = None,
        order_by: str | None = None,
        descending: bool = False,
    ) -> pa.Table:
        """As :meth:`page`."""
        whole_number(offset, "offset", least=0)
        whole_number(limit, "limit", least=0)
        check_change(change)
        order = self._order(order_by, descending=descending)
        return self._page(self._index.query(numbered(self._sql.joined(change), order, limit, offset)))

    def held(self) -> HeldRows:
        """Return the differing keys for reading many pages, sorted by any column and searched by key.

        The two epochs are compared once; :meth:`page` compares them at every call. Close it, or use it in a ``with``
        block.

        Example:
            >>> with history.diff(10, 12).held() as rows:
            ...     rows.page(limit=5, contains="jfk", order_by="count_delta", by_size=True, descending=True)
        """
        return HeldRows(self._index, self._sql, [*self._columns().items()], len(self), self._page)

    def to_pandas(self) -> pd.DataFrame:
        """Return all three as one frame: ``_change`` (such as ``added``), the key, old and new values."""
        names = {"_change": "_change", **self._named(o="_old", n="_new")}
        parts = [self._index.query(self._sql.named(change, names)) for change in (ADDED, REMOVED, CHANGED)]
        return to_pandas(pa.concat_tables(parts))

    def __len__(self) -> int:
        return sum(self._counts.values())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {change}" for change, count in self.counts.items())
        return f"<Diff of {self.table} from {' to '.join(self._ends())}: {counts}{self._not_compared()}>"

    def _ends(self) -> tuple[str, str]:
        """Return the two epochs for a title, with their queries if these differ."""
        if self.sides is None:
            return f"epoch {self.a}", f"{self.b}"
        a, b = self.queries
        return f"{a} at epoch {self.a}", f"{b} at epoch {self.b}"

    def _not_compared(self) -> str:
        return f"; not compared: {', '.join(self.left_out)}" if self.left_out else ""

    def _repr_html_(self) -> str:
        counts = " ".join(f"{sign}{count:,}" for sign, count in zip("+\u2212~", self.counts.values(), strict=True))
        ends, left_out = " → ".join(self._ends()), self._not_compared()
        title = f"{self.table}: {ends} ({counts}: added, removed, changed{left_out})"
        with self.held() as held:
            rows = held.page(limit=_SHOWN, **held.opening_order())
        summary = self.summary().columns
        parts = [tag("p", title)]
        if len(summary):
            parts.append(as_html(summary, missing=""))
        parts.append(as_html(rows, missing=""))
        if len(self) > len(rows):
            parts.append(tag("p", f"The first {len(rows)} of {len(self):,} keys; page() and movers() return more."))
        return joined(parts)

    def _columns(self) -> dict[str, str]:
        """Return the page's columns by their names in the statements."""
        return {"_change": "_change", **self._named(o="_old", n="_new", d="_delta")}

    def _named(self, **suffixes: str) -> dict[str, str]:
        """Return the keys and the wanted sides of each value (old, new, delta), by their names in the statements."""
        named = dict(zip(self._sql.keys, self._table.key_columns, strict=True))
        for at, name in enumerate(self._table.value_columns):
            for side, suffix in suffixes.items():
                if side != "d" or at in self._sql.deltas:
                    named[f"{side}{at}"] = name + suffix
        return named

    def _of_kind(self, change: str, **suffixes: str) -> pd.DataFrame:
        return to_pandas(self._index.query(self._sql.named(change, self._named(**suffixes))))

    def _order(self, order_by: str | None, *, descending: bool) -> str:
        found = next((number for number, name in self._columns().items() if name == order_by), None)
        if found is None and order_by is not None:
            raise UnknownColumnError.among(
                "column", order_by, self._columns().values(), where=f"in {self.table}'s diff"
            )
        return self._sql.order(found, descending=descending)

    def _page(self, found: pa.Table, causes: bool = True) -> pa.Table:  # noqa: FBT001, FBT002 (for HeldRows)
        """Return the rows of a statement as a page."""
        named = self._columns()
        columns = [self._as_shown(number, found[number]) for number in named]
        caused = self._caused(found) if causes else {}
        last_there = REMOVED if self.a < self.b else ADDED
        rows = [
            _explained(caused.get(row, ()), gone=change == last_there)
            for row, change in enumerate(found["_change"].to_pylist())
        ]
        columns.append(pa.array([cause for cause, _ in rows], pa.string()))
        columns.append(pa.array([epochs for _, epochs in rows], pa.list_(pa.int64())))
        return pa.table(columns, names=[*named.values(), "_cause", "_epochs"])

    def _as_shown(self, number: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
        if number[0] != "d":
            return values
        kind = self._table.schema.field(self._sql.deltas[int(number[1:])]).type
        return values.cast(pa.duration("us")) if is_duration(kind) else values

    def _caused(self, page: pa.Table) -> dict[int, list[Caused]]:
        if not page.num_rows:
            return {}
        # The causes of two branches use the branches' own tables.
        state = self._table.state if isinstance(self._table, IntervalTable) else cast("IntervalTable", self._table)
        rows = page.select(["_row", HASH, *self._sql.keys]).rename_columns(["_row", HASH, *state.key_columns])
        first, last = sorted((self.a, self.b))
        return self._causes.of(KeyRows(self._state, state, rows), first, last)


def _explained(events: Sequence[Caused], *, gone: bool) -> tuple[str, list[int]]:
    """Return the cause of a key's change, and the epochs at which it changed."""
    changes = [event for event in events if not event.same]
    if not changes:
        return UNKNOWN, []
    causes = [changes[-1].cause] if gone else list(dict.fromkeys(change.cause for change in changes))
    return ", ".join(causes), [change.epoch for change in changes]
