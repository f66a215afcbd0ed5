"""What differs from the previous epoch: marks for the rows of a page, and a page of only what changed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamstate.widgets.browser.drawing import Column, Counts, Row, Rows
from streamstate.widgets.browser.selection import Selection
from streamstate.widgets.values import canonical, cell, objects, records

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.state_inspect import Diff

__all__ = ["ADDED", "CHANGED", "REMOVED", "changed_page", "counts", "marked"]

ADDED, CHANGED, REMOVED = "+", "~", "−"


def counts(diff: Diff) -> Counts:
    """The numbers of a diff, in the words of the view."""
    numbers = diff.counts
    return Counts(int(diff.a), int(numbers["added"]), int(numbers["changed"]), int(numbers["removed"]))


def marked(page: Sequence[Mapping[str, Any]], columns: Sequence[Column], diff: Diff | None) -> list[Row]:
    """Rows of the state, each with its mark and, where it changed, what its cells were."""
    if diff is None:
        return [Row([cell(value) for value in record.values()]) for record in page]
    keys = [column.name for column in columns if column.key]
    added = {_key(record, keys) for record in _among(diff.added, keys, page)}
    changed = {_key(record, keys): record for record in _among(diff.changed, keys, page)}
    rows = []
    for record in page:
        key = _key(record, keys)
        if key in changed:
            rows.append(_compared(list(record.values()), [changed[key][name] for name in _before(columns)]))
        else:
            rows.append(Row([cell(value) for value in record.values()], ADDED if key in added else ""))
    return rows


def _key(record: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return canonical([record[name] for name in keys])


def _among(frame: pd.DataFrame, keys: Sequence[str], wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a large frame whose keys may be those of the records: as few as can be found quickly."""
    for name in keys:
        with contextlib.suppress(TypeError):  # a struct cannot be hashed; the other columns narrow it down
            frame = frame[frame[name].isin([record[name] for record in wanted])]
    return records(frame)


def _before(columns: Sequence[Column]) -> list[str]:
    """The columns of ``diff.changed`` that hold what a row was."""
    return [column.name if column.key else f"{column.name}_old" for column in columns]


def _compared(now: Sequence[Any], before: Sequence[Any]) -> Row:
    """A changed row and, for each cell that differs, what it was."""
    differ = [at for at, (new, old) in enumerate(zip(now, before, strict=True)) if canonical(new) != canonical(old)]
    return Row([cell(value) for value in now], CHANGED, {at: cell(before[at]) for at in differ})


def changed_page(diff: Diff, columns: Sequence[Column], selection: Selection) -> Rows:
    """One page of the keys that were added, changed or removed."""
    names = [column.name for column in columns]
    frame = _wanted(_together(diff, columns), names, selection)
    start = min(selection.page, max(0, (len(frame) - 1) // selection.size)) * selection.size
    rows, keys = [], []
    for record in frame.iloc[start : start + selection.size].itertuples(index=False):
        now, before, mark = record[: len(names)], record[len(names) : -1], record[-1]
        rows.append(_compared(now, before) if mark == CHANGED else Row([cell(value) for value in now], mark))
        keys.append({column.name: now[at] for at, column in enumerate(columns) if column.key})
    return Rows(columns, rows, start, len(frame), keys)


def _together(diff: Diff, columns: Sequence[Column]) -> pd.DataFrame:
    """Added, changed and removed keys in one frame: the values, the values before, and the mark.

    The columns are numbers, because the state's own names are anyone's.
    """
    import pandas as pd

    names = [column.name for column in columns]
    numbered = [str(number) for number in range(2 * len(names))]
    old = _before(columns)
    new = [c.name if c.key else f"{c.name}_new" for c in columns]
    parts = []
    for mark, frame, now, before in (
        (ADDED, diff.added, names, names),
        (CHANGED, diff.changed, new, old),
        (REMOVED, diff.removed, names, names),
    ):
        if len(frame):
            part = objects(pd.concat([frame[now], frame[before]], axis="columns"))
            parts.append(part.set_axis(numbered, axis="columns").assign(mark=mark))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*numbered, "mark"])


def _wanted(frame: pd.DataFrame, names: Sequence[str], selection: Selection) -> pd.DataFrame:
    """The rows that hold the filter's text, in the order asked for."""
    if selection.text and selection.column in names:
        texts = frame[str(names.index(selection.column))].map(lambda value: cell(value).text)
        frame = frame[texts.str.contains(selection.text, case=False, regex=False)]
    if selection.order_by in names:
        by = str(names.index(selection.order_by))
        return frame.sort_values(by, ascending=not selection.descending, key=_sortable, kind="stable")
    return frame


def _sortable(values: pd.Series[Any]) -> pd.Series[Any]:
    """Values of one column as they are where they compare, else as text."""
    from pandas.api.types import infer_dtype

    if infer_dtype(values, skipna=True) in ("integer", "floating", "mixed-integer-float", "boolean", "datetime"):
        return values.infer_objects()
    return values.map(lambda value: cell(value).text)
