"""Differences between the state that Spark reads back and the rows that were written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from streamstate.snapshots.spark.state_comparison import TableDifference


def described(difference: TableDifference, keys: Sequence[str]) -> str:
    """A difference as text: a line for each key that is shown, with the row that was meant and the one that was read.

    Args:
        difference: between what was meant, the first state, and what Spark reads, the second.
        keys: the key columns of the table.
    """
    if not difference.of_one and not difference.of_other:
        return f"{difference.table}: {difference.why}"
    counts = f"{difference.only_one:,} of the rows that were meant are not read,"
    lines = [f"{difference.table}: {counts} {difference.only_other:,} are read that were not meant."]
    return "\n".join([*lines, *(f"  {line}" for line in _by_key(difference, keys))])


def _by_key(difference: TableDifference, keys: Sequence[str]) -> Iterator[str]:
    sides: list[dict[str, dict[str, Any]]] = [{}, {}]
    for side, texts in zip(sides, (difference.of_one, difference.of_other), strict=True):
        for row in map(json.loads, texts):
            key = ", ".join(f"{name} = {row.pop(name, None)!r}" for name in keys)
            side[key] = row
    meant, read = sides
    # Of a row that is not among those that were fetched, nothing is said.
    all_meant, all_read = len(meant) >= difference.only_one, len(read) >= difference.only_other
    for key in sorted({*meant, *read}):
        before, after = meant.get(key), read.get(key)
        if before is not None and after is not None:
            changed = [name for name in before if before[name] != after.get(name)]
            before, after = ({name: row.get(name) for name in changed} for row in (before, after))
        parts = [f"meant {_row(before)}"] * (before is not None or all_meant)
        parts += [f"read {_row(after)}"] * (after is not None or all_read)
        yield f"{key}: {', '.join(parts)}"


def _row(row: dict[str, Any] | None) -> str:
    return "no row" if row is None else ", ".join(f"{name} = {value!r}" for name, value in row.items()) or "this row"
