"""The epochs and operators of a checkpoint as frames, read from its logs without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd

from streamstate.operations.checkup.state_tables import table_readings
from streamstate.snapshots.checkpoint.decoding.operator_metadata import sources_in_metadata
from streamstate.snapshots.checkpoint.epoch_reads import epoch_reads
from streamstate.snapshots.checkpoint.source_progress import by_source, recorded_by_source
from streamstate.snapshots.spark.kafka_lag import kafka_lags, running_query

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
    from streamstate.snapshots.checkpoint.logs import PlannedEpoch

_EPOCHS = {
    "epoch": "int64",
    "status": "object",
    "began_at": "datetime64[us, UTC]",
    "committed_at": "datetime64[us, UTC]",
    "watermark": "datetime64[us, UTC]",
    "partitions": "Int64",
    "offsets": "object",
    "sources": "object",
    "records": "Int64",
    "lag": "Int64",
}
_OPERATORS = ["operator", "name", "table", "holds", "reads", "because"]


def epoch_frame(checkpoint: CheckpointFiles, running: StreamingQuery | None = None) -> pd.DataFrame:
    """Return one row per epoch that the logs still hold, ascending; see :meth:`Checkpoint.epochs`.

    ``running`` is Spark's handle of the query, if it runs in this process.
    """
    query_id = checkpoint.query_id  # raises if there is no checkpoint
    committed = set(checkpoint.committed())
    planned: list[tuple[int, PlannedEpoch | None, str | None]] = []
    known: str | None = None
    for epoch in sorted({*checkpoint.begun(), *committed}):
        plan = checkpoint.readable_plan(epoch)
        known = known if plan is None else checkpoint.sources(plan, known)
        planned.append((epoch, plan, known))
    reads = epoch_reads(
        (epoch, by_source(plan.sources) if plan else {}, recorded_by_source(facts)) for epoch, plan, facts in planned
    )
    behind = kafka_lags(running or running_query(query_id))
    rows = [
        (
            epoch,
            "committed" if epoch in committed else "begun",
            None if plan is None else plan.began_at,
            checkpoint.committed_at(epoch),
            None if plan is None else plan.watermark,
            None if plan is None else plan.partitions,
            None if plan is None else json.dumps(plan.sources),
            read.words,
            read.records,
            behind.get(epoch),
        )
        for (epoch, plan, _), read in zip(planned, reads, strict=True)
    ]
    frame = pd.DataFrame(rows, columns=pd.Index(list(_EPOCHS)))
    return frame.astype(_EPOCHS)


def operator_frame(checkpoint: CheckpointFiles) -> pd.DataFrame:
    """Return one row per state table of the newest readable epoch; see :meth:`Checkpoint.operators`."""
    checkpoint.query_id  # noqa: B018 (raises if there is no checkpoint)
    epoch = checkpoint.newest_readable()
    if epoch is None or not checkpoint.has_state():
        return pd.DataFrame(columns=pd.Index(_OPERATORS))
    tables = zip(sources_in_metadata(checkpoint, epoch), table_readings(checkpoint, epoch), strict=True)
    rows = [
        (
            int(source.options["operatorId"]),
            source.operator,
            source.table,
            source.shape.value,
            table.reads,
            table.because,
        )
        for source, table in tables
    ]
    return pd.DataFrame(rows, columns=pd.Index(_OPERATORS))
