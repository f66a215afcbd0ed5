"""One key through all epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def key_history(history: History, table: str, key: Mapping[str, Any]) -> KeyHistory:
    """The newest changes of one key, newest first, each compared with the one before."""
    frame = history.key_history(table, **key)
    columns = [str(name) for name in frame.columns[_OWN:-1]]
    rows = records(frame.tail(LISTED + 1))
    changes = [_change(row, before, columns) for before, row in zip([None, *rows], rows, strict=False)]
    shown = changes[-LISTED:][::-1]
    named = [(name, cell(value)) for name, value in key.items()]
    return KeyHistory(named, columns, shown, len(frame) - len(shown))


def _change(row: Mapping[Any, Any], before: Mapping[Any, Any] | None, columns: Sequence[str]) -> KeyChange:
    gone = row["change"] == "delete"
    fresh = before is None or before["change"] == "delete"
    differ = [] if gone or fresh or before is None else _differing(row, before, columns)
    mark = REMOVED if gone else ADDED if fresh else CHANGED if differ else ""
    cells = [] if gone else [cell(row[name]) for name in columns]
    return KeyChange(
        int(row["epoch"]), mark, timestamp(row["committed_at"]), cells, differ, row["change"] == "keyframe"
    )


def _differing(row: Mapping[Any, Any], before: Mapping[Any, Any], columns: Sequence[str]) -> list[int]:
    return [at for at, name in enumerate(columns) if canonical(row[name]) != canonical(before[name])]
