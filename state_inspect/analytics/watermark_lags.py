"""Lags of a query's watermark: behind its commits or, in historic data, behind the newest event."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from streamstate.errors import StoreError
from streamstate.snapshots.store.epoch_progress import begun

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.state_inspect.captured_query import CapturedQuery

_HISTORIC = timedelta(days=7)
"""A watermark this far behind its commit is that of historic data: how far says nothing about the query."""


class WatermarkLags:
    """The watermark lags of a query's epochs, all measured in the same way.

    The newest event of an epoch follows from the watermark that it leaves and the query's delay: it is known where the
    query's plan is, and has one watermark.
    """

    def __init__(self, query: CapturedQuery) -> None:
        try:
            self._plans = [(known.since, known.plan.event_times) for known in query.plans.recorded()]
        except StoreError:
            self._plans = []
        newest = query.entries().newest
        lag = None if newest is None else behind_commit(newest)
        self.historic = lag is not None and lag > _HISTORIC
        """True if the newest epoch read historic data."""
        self.basis: object = self.historic, self._plans
        """A value that stays equal as long as past epochs have the same lags."""

    def newest_event(self, entry: Entry) -> datetime | None:
        """Return the time of the newest event up to an epoch; None if it is not known."""
        watermarks = next((times for since, times in reversed(self._plans) if since <= entry.epoch), ())
        reached = begun(entry.next_watermark)
        if reached is None or len(watermarks) != 1:
            return None
        return reached + timedelta(milliseconds=watermarks[0].delay)

    def behind_event(self, entry: Entry) -> timedelta | None:
        """Return how far an epoch's watermark is behind the newest event; None if either is not known."""
        watermark, event = begun(entry.watermark), self.newest_event(entry)
        return None if watermark is None or event is None else event - watermark

    def of(self, entry: Entry) -> timedelta | None:
        """Return the lag of an epoch: behind the newest event in historic data, otherwise behind the commit."""
        return self.behind_event(entry) if self.historic else behind_commit(entry)

    @property
    def reference(self) -> str:
        """The moment that the watermark is behind, in words."""
        return "the newest event" if self.historic else "the commit"


def behind_commit(entry: Entry) -> timedelta | None:
    """Return how far an epoch's watermark is behind its commit; None if either is not known."""
    watermark = begun(entry.watermark)
    return None if watermark is None or entry.committed_at is None else entry.committed_at - watermark
