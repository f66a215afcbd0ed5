"""What the demo prints of a captured query: its state now and before, a diff, a key's history, and SQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from streamstate.state_inspect import History, Snapshot, Store
    from streamstate.tutorials.tours import Tour

__all__ = ["look"]

_ROWS = 4
_WIDTH = 100


def look(store: Store, tour: Tour) -> Iterator[str]:
    """The tour through one query's history, as paragraphs."""
    history = store[tour.name]
    captured = history.captured()
    yield _facts(history, tour, captured)
    live = history.live()
    yield _top(live, tour, f"The newest state, epoch {live.epoch}")
    past = _nearest(captured[:-1], tour.past)
    if past is None:
        return
    yield _top(history.at(past), tour, f"The same at epoch {past}")
    a, b = tour.between if set(tour.between) <= set(captured) else (past, live.epoch)
    story = tour.story if (a, b) == tour.between else "all that came since"
    yield from _diff(history, tour, a, b, story)
    yield _key_history(history, tour)
    statement = tour.sql.format(past=past)
    yield f"{statement}\n\n{_text(store.sql(statement).to_pandas())}"


def _facts(history: History, tour: Tour, captured: list[int]) -> str:
    gaps = int((history.epochs()["status"] == "gap").sum())
    rows = ", ".join(f"{name} {count:,}" for name, count in history.live().rows().items())
    epochs = f"{len(captured)} epochs captured ({captured[0]} to {captured[-1]}), {gaps or 'no'} gaps"
    return f"{tour.name}: {tour.about}\n{epochs}; rows of state: {rows}"


def _top(snapshot: Snapshot, tour: Tour, title: str) -> str:
    table = snapshot.table(tour.table)
    rows = _chosen(table.page(limit=_ROWS, order_by=tour.top, descending=True), tour)
    if rows.empty:
        return f"{title}: {tour.table} is empty"
    return f"{title}: {tour.table}, {len(table):,} rows, the largest by {tour.top}\n{_text(rows)}"


def _diff(history: History, tour: Tour, a: int, b: int, story: str) -> Iterator[str]:
    diff = history.diff(a, b, tour.table)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in diff.counts.items())
    kind = max(diff.counts, key=lambda one: (one == "changed" and diff.counts[one] > 0, diff.counts[one]))
    rows: pd.DataFrame = getattr(diff, kind).copy()
    title = f"From epoch {a} to {b}, {story}:\n{counts}"
    if kind == "changed" and tour.ranked:
        name, expression = tour.ranked
        rows.insert(len(history.live().table(tour.table).key_columns), name, pd.Series(rows.eval(expression)))
        rows = rows.sort_values(name, ascending=False)
        title += f"; those with the most {name}"
    yield f"{title}\n{_text(_chosen(rows.head(_ROWS), tour))}"


def _key_history(history: History, tour: Tour) -> str:
    rows = history.key_history(tour.key_table, **tour.key).drop(columns="committed_at")
    key = ", ".join(f"{name} {_value(value)}" for name, value in tour.key.items())
    count = f"{len(rows)} changes" + (f", the last {_ROWS}" if len(rows) > _ROWS else "")
    title = f"The history of one key of {tour.key_table}, {key}: {count}"
    return f"{title}\n{_text(rows.tail(_ROWS))}" if len(rows) else title


def _nearest(epochs: list[int], wanted: int) -> int | None:
    return min(epochs, key=lambda epoch: abs(epoch - wanted), default=None)


def _chosen(rows: pd.DataFrame, tour: Tour) -> pd.DataFrame:
    """The columns that the tour shows; both values of those that a diff compares."""
    ranked = [tour.ranked[0]] if tour.ranked else []
    chosen = {f"{name}{side}" for name in [*tour.columns, *ranked] for side in ("", "_old", "_new")}
    return rows[[name for name in rows.columns if name in chosen]] if tour.columns else rows


def _text(rows: pd.DataFrame) -> str:
    """The rows as aligned text, indented; columns that do not fit are named below it."""
    shown = rows.map(_value)
    left_out: list[str] = []
    while len(text := shown.to_string(index=False)) and len(text.split("\n", 1)[0]) > _WIDTH:
        left_out.insert(0, str(shown.columns[-1]))
        shown = shown.iloc[:, :-1]
    lines = [f"    {line}" for line in text.splitlines()]
    return "\n".join([*lines, *([f"    (and {', '.join(left_out)})"] if left_out else [])])


def _value(value: Any) -> str:
    """A value as people read it; moments in the reader's own zone."""
    if isinstance(value, dict):
        return " to ".join(map(_value, value.values()))
    if pd.isna(value):
        return "-"
    if isinstance(value, pd.Timestamp):
        value = value.to_pydatetime()
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else str(value)
