"""Grades for a learner's streaming query: each looks at the epochs that were captured of it, and says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from streamstate.errors import NoResultError

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.state_inspect import History


def does_not_grow(history: History, *, by: float = 0.25) -> str:
    """Say which state table grows from epoch to epoch; empty if none does.

    The epochs are taken in thirds. A table grows if its largest size in the last third exceeds that in the middle one
    by more than a share; the first third may fill it.

    Args:
        history: the captured query, over at least nine epochs with input.
        by: the share.
    """
    with_input = history.epochs().query("input_rows > 0")["epoch"]
    sizes = history.growth()
    for table, rows in sizes[sizes["epoch"].isin(with_input)].groupby("table", sort=True):
        counts = rows.sort_values("epoch")["rows"].tolist()
        third = len(counts) // 3
        middle, last = max(counts[third : 2 * third], default=0), max(counts[2 * third :], default=0)
        if last > middle * (1 + by):
            return (
                f"It leaks: `{table}` had at most {middle:,} rows in the middle third of the epochs, and {last:,} in "
                "the last. What is never forgotten?"
            )
    return ""


def has_results(
    history: History, expected: Callable[[int], pd.Series], *, key: Iterable[str], value: str, epochs: Iterable[int]
) -> str:
    """Say where a query's result differs from what it should be; empty if it does nowhere.

    Only keys that the state still has are compared; those of the newest input must be there.

    Args:
        history: the captured query.
        expected: returns the right values at an epoch, by key, as text.
        key: the result's key columns.
        value: the result's column.
        epochs: the epochs to compare.
    """
    names = [*key, value]
    table = next((name for name in history.tables() if set(names) <= _result_columns(history, name)), None)
    if table is None:
        return f"The result needs the columns {', '.join(f'`{name}`' for name in names)}."
    for epoch in epochs:
        rows = history.at(epoch).result(table).to_pandas()
        rows.index = [tuple(map(_text, values)) for values in rows[list(key)].itertuples(index=False)]
        right = expected(epoch)
        for found in rows.index:
            wanted = int(right.get(found, 0))
            if rows.at[found, value] != wanted:
                where = ", ".join(found)
                return f"At epoch {epoch}, `{value}` of {where} is {rows.at[found, value]:,}. It should be {wanted:,}."
        missing = [found for found in right.index if found[0] == max(right.index)[0] and found not in rows.index]
        if missing:
            return (
                f"At epoch {epoch}, the result has no row for {', '.join(missing[0])}, which had departures that day."
            )
    return ""


def _result_columns(history: History, table: str) -> set[str]:
    try:
        result = history.live().result(table)
    except NoResultError:
        return set()
    return {*result.key_columns, *result.value_columns}


def _text(value: object) -> str:
    """A key's value as text; a window by the day on which it begins."""
    return str(value["start"])[:10] if isinstance(value, dict) else str(value)
