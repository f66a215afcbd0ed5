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
    if newest is None or int(newest.batchId()) <= epoch or not _ran(newest):
        return []
    if int(newest.batchId()) == epoch + 1:
        return [json.loads(newest.json())]
    later = [report for report in query._jsq.recentProgress() if int(report.batchId()) > epoch and _ran(report)]
    return [json.loads(report.json()) for report in later]


def _ran(report: Any) -> bool:
    return bool(report.durationMs().containsKey("addBatch"))
