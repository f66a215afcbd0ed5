"""What Spark's progress events add to the checkpoint: an epoch's run and its input rows.

They exist only for a query of this process, and only for its last hundred epochs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class BatchProgress:
    """One epoch's progress event."""

    run_id: str
    input_rows: int


def progress_of(spark: SparkSession, query_id: str, epochs: Collection[int]) -> dict[int, BatchProgress]:
    """The progress events of some epochs, as far as there are any."""
    for query in spark.streams.active:
        if str(query.id) == query_id:
            return _recent(query, epochs)
    return {}


def _recent(query: Any, epochs: Collection[int]) -> dict[int, BatchProgress]:
    found: dict[int, BatchProgress] = {}
    # Through the JVM's own objects: pyspark parses all hundred events where the newest few are wanted.
    for event in reversed(list(query._jsq.recentProgress())):
        epoch = int(event.batchId())
        if epoch < min(epochs):
            break
        # A query that waits for data reports the coming epoch's number and no input.
        if epoch in epochs and event.durationMs().containsKey("addBatch"):
            found[epoch] = BatchProgress(str(event.runId()), int(event.numInputRows()))
    return found
