"""How a query's state grows and how far it is behind, from the manifest alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from streamstate.snapshots.manifest import Entry

_MOMENT, _SPAN, _WHOLE = "datetime64[us, UTC]", "timedelta64[us]", "Int64"


def growth(entries: Sequence[Entry], table: str | None) -> pd.DataFrame:
    """One row per captured epoch and state table; see :meth:`History.growth`."""
    rows: list[dict[str, Any]] = []
    before: dict[str, int] = {}
    gap = False
    for entry in entries:
        gap |= not entry.captured
        for name, facts in entry.tables.items():
            if table is not None and name != table:
                continue
            told = {"epoch": entry.epoch, "table": name, "committed_at": entry.committed_at, "rows": facts.rows}
            known = before.get(name, None if gap or entry.epoch else 0)
            rows.append(told | {"delta": None if known is None else facts.rows - known, "changes": facts.changes})
            before[name] = facts.rows
    return _frame(
        rows,
        {
            "epoch": "int64",
            "table": "object",
            "committed_at": _MOMENT,
            "rows": "int64",
            "delta": _WHOLE,
            "changes": "int64",
        },
    )


def watermark_lag(entries: Sequence[Entry]) -> pd.DataFrame:
    """One row per captured epoch; see :meth:`History.watermark_lag`."""
    rows: list[dict[str, Any]] = []
    before: Entry | None = None
    for entry in entries:
        if entry.captured:
            rows.append(
                {
                    "epoch": entry.epoch,
                    "committed_at": entry.committed_at,
                    "watermark": entry.watermark,
                    "lag": _between(entry.watermark, entry.committed_at),
                    "input_rows": entry.input_rows,
                    "since_previous": _between(before.committed_at, entry.committed_at) if before else None,
                }
            )
        before = entry if entry.captured else None
    return _frame(
        rows,
        {
            "epoch": "int64",
            "committed_at": _MOMENT,
            "watermark": _MOMENT,
            "lag": _SPAN,
            "input_rows": _WHOLE,
            "since_previous": _SPAN,
        },
    )


def _between(start: Any, end: Any) -> Any:
    return None if start is None or end is None else end - start


def _frame(rows: Sequence[dict[str, Any]], kinds: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=kind) for name, kind in kinds.items()})
