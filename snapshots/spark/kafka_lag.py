"""How far queries that run in this process are behind Kafka, from Spark's reports on their epochs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.checkpoint.source_offsets import kafka_topics

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def running_query(query_id: str) -> StreamingQuery | None:
    """Return a query that runs in this process, by its id; None if it does not. Starts nothing."""
    if "pyspark.sql" not in sys.modules:
        return None
    from streamstate.snapshots.spark.session import running_session

    with contextlib.suppress(Exception):  # the session is ending
        session = running_session()
        active = [] if session is None else session.streams.active
        return next((query for query in active if str(query.id) == query_id), None)
    return None


def kafka_lags(query: StreamingQuery | None) -> dict[int, int]:
    """Return how many records of its topics the epochs that Spark has reported last had not read when they began."""
    reports: list[Any] = []
    with contextlib.suppress(Exception):  # the session has ended
        reports = [] if query is None else query.recentProgress
    found = ((int(report["batchId"]), kafka_lag(report)) for report in reports)
    return {epoch: lag for epoch, lag in found if lag is not None}


def kafka_lag(report: Mapping[str, Any] | None) -> int | None:
    """Return how many records of its topics an epoch left unread; None if it does not read Kafka.

    The numbers are those of the metrics ``…OffsetsBehindLatest``, which Spark gives as an average, for all partitions.
    """
    behind = [partitions_behind(source) for source in (report or {}).get("sources") or []]
    known = [lag for partitions in behind for lag in (partitions or {}).values()]
    return sum(known) if known else None


def partitions_behind(source: Mapping[str, Any]) -> dict[str, int] | None:
    """Return how many records an epoch left unread in each partition of a source; None if it is not Kafka's.

    Args:
        source: the source in Spark's report on the epoch.

    Example:
        >>> partitions_behind({"latestOffset": '{"flights":{"0":812}}', "endOffset": '{"flights":{"0":800}}'})
        {'flights/0': 12}
    """
    latest, end = kafka_topics(source.get("latestOffset")), kafka_topics(source.get("endOffset"))
    if latest is None or end is None:
        return None
    return {
        f"{topic}/{partition}": max(offset - end.get(topic, {}).get(partition, 0), 0)
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    }
