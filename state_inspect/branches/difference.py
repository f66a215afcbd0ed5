"""What differs between two snapshots of different queries: of a query and its fork, of two forks, of two stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streamstate.state_inspect.branches.ancestry import branch_names, same_history
from streamstate.state_inspect.branches.branch_sql import BranchSQL, IndexWith, held_rows
from streamstate.state_inspect.branches.common import common_columns, shared_table
from streamstate.state_inspect.differences.diff import Diff

if TYPE_CHECKING:
    from streamstate.state_inspect.differences.causes import Caused, Keys
    from streamstate.state_inspect.differences.held_rows import Readable
    from streamstate.state_inspect.recorded import Recorded
    from streamstate.state_inspect.snapshot import Snapshot
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

__all__ = ["difference"]

_THERE = "_rows_of_the_other_store"


def difference(old: Snapshot, new: Snapshot, table: str | None, *, asked: Recorded) -> Diff:
    """What differs in a state table from a snapshot of one query to one of another.

    Args:
        old: the snapshot compared from.
        new: the one compared to.
        table: may be left out where both share one table.
        asked: the history that was asked.

    Raises:
        UnknownTableError, InvalidArgumentError: where they share no such table, or its keys differ.
    """
    sides = old.history, new.history
    names = branch_names(*sides)
    chosen = shared_table(table, sides[0].tables(), sides[1].tables(), names)
    tables = [_intervals(one, chosen) for one in (old, new)]
    columns = common_columns(tables[0], tables[1], chosen, names)
    here, there = (held_rows(one, at.epoch, columns) for one, at in zip(tables, (old, new), strict=True))
    index: Readable = sides[0].index
    if sides[0].index is not sides[1].index:
        index = IndexWith(sides[0].index, {_THERE: sides[1].index.query(there)})
        there = f"SELECT * FROM {_THERE}"
    sql = BranchSQL(columns, f"({here})", f"({there})", held=tables)
    causes = LineCauses(descent(old, new) or descent(new, old))
    return Diff(index, columns, chosen, old.epoch, new.epoch, causes=causes, history=asked, sql=sql, sides=sides)


def _intervals(snapshot: Snapshot, table: str) -> IntervalTable:
    if table in snapshot.tables():
        return snapshot.intervals(table)
    return snapshot.history.interval_table(table, snapshot.epoch, snapshot.epoch)  # in which no row held then


Span = tuple["Recorded", int, int]
"""A history, and the epochs after which and up to which it tells what happened."""


def descent(older: Snapshot, newer: Snapshot) -> list[Span]:
    """The histories that lead from a snapshot to one of a fork, ascending; none where there is no such way."""
    spans: list[Span] = []
    history, last = newer.history, newer.epoch
    for one in newer.history.ancestry.ancestors():
        spans.append((history, one.last, last))
        history, last = one.history, one.last
        if same_history(history, older.history):
            return [(history, older.epoch, last), *reversed(spans)] if older.epoch <= last else []
    return []


class LineCauses:
    """Finds the causes of changes along a line of forks; between branches that parted before there are none.

    Args:
        spans: the histories of the line, ascending.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans

    def of(self, keys: Keys, first: int, last: int) -> dict[int, list[Caused]]:
        """The changes of some keys, by the keys' numbers, ascending by epoch; ``first`` and ``last`` are the line's."""
        found: dict[int, list[Caused]] = {}
        for history, after, upto in self._spans:
            if after < upto and keys.name in history.tables():
                own = replace(keys, table=history.interval_table(keys.name, after))
                for row, changes in history.causes().of(own, after, upto).items():
                    found.setdefault(row, []).extend(changes)
        return found
