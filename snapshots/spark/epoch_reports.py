"""Spark's reports on the epochs of a run, as soon as it has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def reports_after(query: StreamingQuery, epoch: int) -> list[Mapping[str, Any]]:
    """Return the reports on a run's epochs after one, ascending; a fifth of a millisecond if there is none.

    Spark keeps the last hundred, also of triggers that found no data, which are left out.
    """
    newest: Any = query._jsq.lastProgress()
    if newest is None or int(newest.batchId()) <= epoch or (report := finished(newest)) is None:
        return []
    if int(newest.batchId()) == epoch + 1:
        return [report]
    later = [event for event in query._jsq.recentProgress() if int(event.batchId()) > epoch]
    return [report for report in map(finished, later) if report is not None]


def finished(event: Any) -> Mapping[str, Any] | None:
    """Return Spark's report on an epoch, parsed; None if its trigger found no data, and reports the coming epoch."""
    return json.loads(event.json()) if event.durationMs().containsKey("addBatch") else None
