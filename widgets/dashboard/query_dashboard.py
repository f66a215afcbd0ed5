"""The query dashboard: how one query runs, and how its state is spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.snapshots.registry import required_query
from streamstate.widgets.dashboard.model import DashboardModel
from streamstate.widgets.dashboard.selection import Selection
from streamstate.widgets.dashboard.watcher import Watcher
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect import History

__all__ = ["QueryDashboard"]


class QueryDashboard(View[Selection]):
    """Shows how a query runs: its operators with rows, bytes and time, its rates, and where its state is heavy.

    With the query itself the operators are those of Spark's plan of the newest batch that has ended, and rates and
    durations are Spark's; a query that fails or stops meanwhile says so. Without it everything comes from the store,
    which needs no Spark: state operators, changes, watermark, gaps, and input where the capture knew it. The newest
    epoch is shown. Clicking a state table shows how that is spread over partitions, and which keys are written most.

    Args:
        history: the query in the store, ``store[name]``.
        query: the same query where it runs in this process: what ``%%stream`` returned, or Spark's
            ``StreamingQuery``. What is asked of Spark is asked in a thread of its own.
        table: the state table whose spread is shown first; the largest if left out.

    Raises:
        UnknownTableError: the query has no such table.
        InvalidArgumentError: ``query`` is neither of these, or is another query than the history's.

    Example:
        >>> QueryDashboard(store["delays"])  # doctest: +SKIP
        delays: epoch 41 · committed 2026-03-01 12:00:00 +00:00 · state 34 rows · changed 5 rows
    """

    def __init__(self, history: History, query: Any = None, *, table: str | None = None) -> None:
        asked, capture = _parts(query)
        if asked is not None:
            _check_same(history, asked)
        model = DashboardModel(history, Watcher(asked, capture, history.name))
        selection = Selection(table=table)
        model.check(selection)
        super().__init__(model, selection)


def _parts(query: Any) -> tuple[Any, Any]:
    """Spark's handle and the capture, from what a notebook has of a query."""
    if query is None:
        return None, None
    if hasattr(query, "capture") and hasattr(query, "query"):
        return query.query, query.capture
    if hasattr(query, "lastProgress") and hasattr(query, "isActive"):
        return query, None
    raise InvalidArgumentError(
        f"query={type(query).__name__} is no running query: give what %%stream returned, or a StreamingQuery.\n"
        "Leave it out to see what the store alone says."
    )


def _check_same(history: History, query: Any) -> None:
    """Spark's identifier of a query is that of its checkpoint, and the store has it."""
    captured = required_query(history.layout, history.name).query_id
    if (running := _identifier(query)) not in (None, captured):
        raise InvalidArgumentError(
            f"query={running!r} is another query than {history.name!r}, which is of query {captured!r}.\n"
            "Give the history that the query is captured as, or leave the query out to see what the store alone says."
        )


def _identifier(query: Any) -> str | None:
    """Spark's identifier of a query; None where its JVM is gone, which the dashboard says itself."""
    from py4j.protocol import Py4JError

    try:
        return str(query.id)
    except (Py4JError, OSError):
        return None
