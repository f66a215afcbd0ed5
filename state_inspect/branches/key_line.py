"""All that happened to a key in a fork and, before that, in the queries that it was forked from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.names import unused
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.snapshot import choose_table

if TYPE_CHECKING:
    from streamstate.state_inspect.recorded import Recorded

__all__ = ["key_line"]

Told = Callable[["Recorded", str], pd.DataFrame]
"""Gives the key's history in a state table of one query alone."""
_FIXED = 3
"""Columns before those of the values; after them is the cause."""


def key_line(history: Recorded, table: str | None, key: Mapping[str, Any], told: Told) -> pd.DataFrame:
    """A key's history with that in the ancestors before it, and a last column ``query`` that says whose each row is.

    Args:
        history: the fork.
        table: may be left out where there is one table.
        key: a value for each key column.
        told: gives the key's history in one query alone.
    """
    ancestors = history.ancestry.ancestors()
    tables = dict.fromkeys(name for one in [history, *(one.history for one in ancestors)] for name in one.tables())
    chosen = choose_table(table, list(tables), history.name)
    # Each tells of the epochs after those that it shares with the one before it.
    bounds = [one.last for one in ancestors]
    spans = zip([history, *(one.history for one in ancestors)], [*bounds, -1], [None, *bounds], strict=True)
    parts: list[tuple[pd.DataFrame, str]] = []
    for one, after, upto in reversed([*spans]):
        if chosen in one.tables() and {*one.interval_table(chosen, -1).key_columns} == {*key}:
            frame = told(one, chosen)
            if one.begins_by(after):
                parts.append((_edited([part for part, _ in parts], frame, one, after), one.name))
            within = (frame["epoch"] > after) & (frame["epoch"] <= (frame["epoch"] if upto is None else upto))
            parts.append((frame[within], one.name))
    if not parts:
        told(history, chosen)  # says what is wrong with the key
    return _together(parts)


def _edited(before: Sequence[pd.DataFrame], frame: pd.DataFrame, fork: Recorded, epoch: int) -> pd.DataFrame:
    """What a fork's state was edited to at the epoch that it shares with its parent; no row where it was not."""
    earlier = next((_there(part) for part in reversed(before) if len(part)), None)
    own = _there(frame[frame["epoch"] <= epoch])
    if _values(earlier) == _values(own):
        return frame.head(0)
    if own is not None:
        return own.assign(epoch=epoch, change="put").astype(own.dtypes)
    assert earlier is not None
    schema = pa.Schema.from_pandas(earlier, preserve_index=False).remove_metadata()
    told = {"epoch": epoch, "change": "delete", "committed_at": fork.own(epoch).committed_at}
    told |= {schema.names[-1]: "unknown"}
    return to_pandas(pa.table([pa.array([told.get(field.name)], field.type) for field in schema], schema=schema))


def _there(frame: pd.DataFrame) -> pd.DataFrame | None:
    """A history's last row, where the key is there then."""
    last = frame.tail(1)
    return None if last.empty or last["change"].iloc[0] == "delete" else last


def _values(row: pd.DataFrame | None) -> str | None:
    return None if row is None else repr(pa.Table.from_pandas(row.iloc[:, _FIXED:-1], preserve_index=False).to_pylist())


def _together(parts: Sequence[tuple[pd.DataFrame, str]]) -> pd.DataFrame:
    """The parts, oldest first; the newest one's columns come first."""
    columns = list(dict.fromkeys(name for frame, _ in reversed(parts) for name in frame.columns))
    named = unused("query", columns)
    filled = [frame.assign(**{named: query}) for frame, query in parts]
    there = [frame for frame in filled if len(frame)] or filled[-1:]
    return pd.concat(there, ignore_index=True)[[*columns, named]]
