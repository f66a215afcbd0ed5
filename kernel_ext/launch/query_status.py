"""The status of a query at one moment, as data, as one line, and as a table of several queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from streamstate.snapshots.calls.html import Html, tag
from streamstate.widgets.number_text import amount
from streamstate.widgets.tables.summary_table import SummaryTable, TableCell, state_cell

NO_QUERIES = "No queries yet: start one with %%stream NAME."

_COLUMNS = ["name", "state", "epoch", "behind", "freshness", "rows/s", "rows", "last error"]
_ERROR_LENGTH = 80


@dataclass(frozen=True)
class QueryStatus:
    """A query at one moment."""

    name: str
    state: str
    """'running', 'restarting' (it failed and will be started again), 'finished' (it reached its end), 'stopped',
    'failed', or 'followed' (it runs elsewhere)."""
    epoch: int | None
    """The newest captured epoch."""
    behind: int
    """Committed epochs that are not captured yet."""
    freshness: float | None
    """Seconds between the commit of the newest captured epoch and its capture."""
    rate: float | None
    """Input rows per second in the newest epoch; None if unknown."""
    rows: int | None
    """Rows of state after the newest epoch that Spark reported."""
    capture: str
    """'waiting', 'running', 'stopped' or 'failed'."""
    error: str | None
    """The query's error, else the capture's."""
    restart: str | None = None
    """For a query that will be started again: which attempt it is, and when."""
    lag: int | None = None
    """Records of Kafka that the newest epoch left unread; None if the query reads no topic, or runs elsewhere."""
    policy: str | None = None
    """Its load policy and if that holds; None if it has none, or runs elsewhere."""
    stall: str | None = None
    """For a supervised query that is busy and commits no epochs: since when, and why, as of the last look."""


def status_line(status: QueryStatus) -> str:
    """Return a status in one line, which changes only when there is news."""
    epoch = "no epoch captured yet" if status.epoch is None else f"captured up to epoch {status.epoch}"
    behind = f", {status.behind} behind" if status.behind else ""
    rows = f", {status.rows:,} rows of state" if status.rows is not None else ""
    lag = f", {amount(status.lag, 'record')} of Kafka unread" if status.lag else ""
    policy = f", {status.policy}" if status.policy else ""
    restart = f" ({status.restart}: {status.error})" if status.restart else f" ({status.stall})" if status.stall else ""
    error = f", last error: {status.error}" if status.error and not status.restart else ""
    return f"{status.name} is {status.state}{restart}: {epoch}{behind}{lag}{rows}{policy}{error}"


def full_line(status: QueryStatus) -> str:
    """Return a status in one line, with the state of its capture."""
    return f"{status_line(status)} (capture {status.capture})"


def line_html(name: str, line: str) -> Html:
    """Return a line that begins with a query's name as HTML, without a sign: a saved notebook keeps it."""
    return tag("p", tag("b", name), line.removeprefix(name))


def status_table(statuses: Iterable[QueryStatus]) -> SummaryTable:
    """Return the status of several queries, one per row."""
    rows = [_row(status) for status in statuses]
    return SummaryTable(_COLUMNS, rows, empty=NO_QUERIES, caption=caption())


def caption() -> str:
    """Return the caption of a table of queries, with the time, because a saved notebook keeps the table."""
    from streamstate.state_inspect.cell_text import timestamp  # loads the engines that read state

    return f"Streaming queries at {timestamp(datetime.now(UTC).replace(microsecond=0))}"


def _row(status: QueryStatus) -> list[Any]:
    freshness = None if status.freshness is None else TableCell(f"{status.freshness:.1f} s", number=True)
    rate = TableCell(status.rate, None if status.rate is None else _rate(status.rate))
    return [
        status.name,
        state_cell(status.state, status.restart or (status.stall or "").partition(":")[0] or None),
        status.epoch,
        status.behind,
        freshness,
        rate,
        status.rows,
        _error_cell(status.error or status.stall),
    ]


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:,.1f}"


def _error_cell(error: str | None) -> TableCell:
    """Return the first line of an error, shortened; the full text is the tooltip and the value."""
    if error is None:
        return TableCell(None)
    line = error.strip().splitlines()[0] if error.strip() else error
    short = line if len(line) <= _ERROR_LENGTH else f"{line[: _ERROR_LENGTH - 1].rstrip()}…"
    return TableCell(error, short, title=error)
