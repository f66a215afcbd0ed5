"""Which queries the demo runs, and what it prints of each: its state now and before, a diff, a key's history, SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.tutorials import flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.state_inspect import History, Snapshot, Store

_ROWS = 4
_WIDTH = 100

DAYS_PER_FILE = 14
"""Two weeks per file, 27 files for the year: few enough epochs for a demo, and enough for a story."""

SHORT_FILES = 8
"""How many files the short demo streams: up to 22 April, after everything that the tours show."""


@dataclass(frozen=True)
class Tour:
    """A query of the demo, and the interesting places in its history."""

    name: str
    about: str
    query: Callable[..., DataFrame]
    """A function of :mod:`streamstate.tutorials.flights`."""
    table: str
    """The state table that is shown."""
    top: str
    """The column whose largest values are shown."""
    past: int
    """The past epoch that is shown."""
    between: tuple[int, int]
    """The epochs that are compared."""
    story: str
    """What happened between them."""
    key_table: str
    key: dict[str, Any]
    """The key whose history is shown, and its table."""
    sql: str
    """A statement; ``{past}`` is the past epoch."""
    columns: tuple[str, ...] = ()
    """The columns that are shown; empty: all."""
    mode: str = "update"
    files: int = 1
    """How many files each epoch reads."""
    ranked: tuple[str, str] | None = None
    """A column name, and the expression over the diff's columns that ranks changed keys."""


_STORM = datetime(2013, 2, 8, 17, tzinfo=UTC)

TOURS = (
    Tour(
        name="delays",
        about="departures and their delays per carrier and airport: a keyed aggregate",
        query=flights.delays,
        table="op0",
        top="count",
        past=2,
        between=(1, 2),
        story="29 January to 11 February, with the snow storm of the 8th",
        ranked=("cancelled", "count_new - count_old - (count_2_new - count_2_old)"),
        key_table="op0",
        key={"carrier": "EV", "origin": "EWR"},
        sql=(
            "SELECT origin, sum(count) AS departures, sum(count - count_2) AS cancelled,\n"
            "       round(sum(sum) / sum(count_2), 1) AS average_delay\n"
            "FROM delays VERSION AS OF {past} GROUP BY origin ORDER BY origin"
        ),
    ),
    Tour(
        name="delays_daily",
        about="the same per day: windows, closed by the watermark",
        query=flights.delays_daily,
        table="op0",
        top="max",
        past=4,
        between=(4, 5),
        story="the days from 26 February on have ended, those from 12 March on have begun",
        key_table="op0",
        key={
            "window": {"start": datetime(2013, 3, 8, 5, tzinfo=UTC), "end": datetime(2013, 3, 9, 5, tzinfo=UTC)},
            "carrier": "EV",
            "origin": "EWR",
        },
        sql=(
            "SELECT strftime(window.start, '%d %B') AS day, sum(count - count_2) AS cancelled,\n"
            "       round(sum(sum) / sum(count_2), 1) AS average_delay\n"
            "FROM delays_daily VERSION AS OF {past} GROUP BY day ORDER BY average_delay DESC LIMIT 3"
        ),
    ),
    Tour(
        name="weather",
        about="departures joined with the weather of their airport and hour: a join of two streams",
        query=flights.weather,
        mode="append",
        table="op0_left",
        columns=("scheduled", "origin", "index", "carrier", "flight", "tailnum", "dest", "dep_delay", "matched"),
        top="dep_delay",
        past=2,
        between=(2, 3),
        story="joined departures have left the state, those of the next two weeks have arrived",
        key_table="op0_right",
        key={"field0": _STORM, "field1": "EWR", "index": 0},
        sql=(
            "SELECT origin, count(*) AS hours, min(temp) AS coldest, max(wind_gust) AS strongest_gust,\n"
            "       min(visib) AS least_visibility\n"
            "FROM weather.op0_right VERSION AS OF {past} GROUP BY origin ORDER BY origin"
        ),
    ),
    Tour(
        name="rotations",
        about="what each aircraft has been doing: transformWithState with a value, a list, a map and a timer",
        query=flights.rotations,
        files=2,  # Python processes one aircraft at a time, which is slow
        table="op0_aircraft",
        columns=("tailnum", "last_airport", "accumulated_delay", "flights"),
        top="accumulated_delay",
        past=3,
        between=(2, 3),
        story="rotations that began, ended or continued from 26 March to 22 April",
        ranked=("gained", "accumulated_delay_new - accumulated_delay_old"),
        key_table="op0_aircraft",
        key={"tailnum": "N725MQ"},
        sql=(
            "SELECT airport, sum(visits) AS visits, count(*) AS aircraft\n"
            "FROM rotations.op0_visits VERSION AS OF {past} GROUP BY airport ORDER BY visits DESC LIMIT 3"
        ),
    ),
)


def look(store: Store, tour: Tour) -> Iterator[str]:
    """The tour of a query's history, as paragraphs."""
    history = store[tour.name]
    captured = history.captured()
    yield _facts(history, tour, captured)
    live = history.live()
    yield _top(live, tour, f"The newest state, epoch {live.epoch}")
    past = min(captured[:-1], key=lambda epoch: abs(epoch - tour.past), default=None)
    if past is None:
        return
    yield _top(history.at(past), tour, f"The same at epoch {past}")
    a, b = tour.between if set(tour.between) <= set(captured) else (past, live.epoch)
    story = tour.story if (a, b) == tour.between else "everything since then"
    yield from _diff(history, tour, a, b, story)
    yield _key_history(history, tour)
    statement = tour.sql.format(past=past)
    yield f"{statement}\n\n{_text(store.sql(statement).to_pandas())}"


def glance(store: Store, tour: Tour) -> Iterator[str]:
    """The state of a running query, now and one epoch ago, as paragraphs."""
    history = store[tour.name]
    yield f"A first look, while the queries run. {tour.name}: {tour.about}"
    for epoch, when in zip(reversed(history.captured()), ("now", "before"), strict=False):
        yield _top(history.at(epoch), tour, f"Its state {when}, at epoch {epoch}")


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
    kind = "changed" if diff.counts["changed"] else max(diff.counts, key=lambda kind: diff.counts[kind])
    rows: pd.DataFrame = getattr(diff, kind).copy()
    title = f"From epoch {a} to {b}, {story}:\n{counts}"
    if kind == "changed" and tour.ranked:
        name, expression = tour.ranked
        rows.insert(len(history.live().table(tour.table).key_columns), name, pd.Series(rows.eval(expression)))
        rows = rows.sort_values(name, ascending=False)
        title += f"; the rows with the most {name}"
    yield f"{title}\n{_text(_chosen(rows.head(_ROWS), tour))}"


def _key_history(history: History, tour: Tour) -> str:
    rows = history.key_history(tour.key_table, **tour.key).drop(columns="committed_at")
    key = ", ".join(f"{name} {_value(value)}" for name, value in tour.key.items())
    count = f"{len(rows)} changes" + (f", the last {_ROWS}" if len(rows) > _ROWS else "")
    title = f"The history of one key of {tour.key_table}, {key}: {count}"
    return f"{title}\n{_text(rows.tail(_ROWS))}" if len(rows) else title


def _chosen(rows: pd.DataFrame, tour: Tour) -> pd.DataFrame:
    """The columns that the tour shows; of those that a diff compares, both values."""
    ranked = [tour.ranked[0]] if tour.ranked else []
    chosen = {f"{name}{side}" for name in [*tour.columns, *ranked] for side in ("", "_old", "_new")}
    return rows[[name for name in rows.columns if name in chosen]] if tour.columns else rows


def _text(rows: pd.DataFrame) -> str:
    """The rows as aligned, indented text; columns that do not fit are listed below it."""
    shown = rows.map(_value)
    left_out: list[str] = []
    while len(text := shown.to_string(index=False)) and len(text.split("\n", 1)[0]) > _WIDTH:
        left_out.insert(0, str(shown.columns[-1]))
        shown = shown.iloc[:, :-1]
    lines = [f"    {line}" for line in text.splitlines()]
    return "\n".join([*lines, *([f"    (and {', '.join(left_out)})"] if left_out else [])])


def _value(value: Any) -> str:
    """A value as readable text; times in the local time zone."""
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
