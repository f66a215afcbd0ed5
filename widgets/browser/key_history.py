"""One key through all epochs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamstate.widgets.browser.changes import ADDED, CHANGED, REMOVED
from streamstate.widgets.browser.drawing import KeyChange, KeyHistory
from streamstate.widgets.values import canonical, cell, records, timestamp

if TYPE_CHECKING:
    from streamstate.state_inspect import History

__all__ = ["LISTED", "key_history"]

LISTED = 50
"""Changes that are shown; a key that changes in every epoch has thousands."""
_OWN = 3
"""Columns before the values: the epoch, what changed, when it was committed. The last is the cause."""


def key_history(
    history: History, table: str, key: Mapping[str, Any], among: Collection[str] | None = None
) -> KeyHistory:
    """The newest changes of one key, newest first, each compared with the one before; of some columns."""
    frame = history.key_history(table, **key)
    columns = [str(name) for name in frame.columns[_OWN:-1] if among is None or name in among]
    rows = records(frame.tail(LISTED + 1))
    every = [str(name) for name in frame.columns[_OWN:-1]]
    changes = [_change(row, before, columns, every) for before, row in zip([None, *rows], rows, strict=False)]
    shown = changes[-LISTED:][::-1]
    named = [(name, cell(value)) for name, value in key.items()]
    return KeyHistory(named, columns, shown, len(frame) - len(shown))


def _change(
    row: Mapping[Any, Any], before: Mapping[Any, Any] | None, columns: Sequence[str], every: Sequence[str]
) -> KeyChange:
    """One change; that something changed counts for the mark also where the column is out of sight."""
    gone = row["change"] == "delete"
    fresh = before is None or before["change"] == "delete"
    differ = set() if gone or fresh or before is None else _differing(row, before, every)
    mark = REMOVED if gone else ADDED if fresh else CHANGED if differ else ""
    seen = [at for at, name in enumerate(columns) if name in differ]
    cells = [] if gone else [cell(row[name]) for name in columns]
    return KeyChange(int(row["epoch"]), mark, timestamp(row["committed_at"]), cells, seen, row["change"] == "keyframe")


def _differing(row: Mapping[Any, Any], before: Mapping[Any, Any], columns: Sequence[str]) -> set[str]:
    return {name for name in columns if canonical(row[name]) != canonical(before[name])}
