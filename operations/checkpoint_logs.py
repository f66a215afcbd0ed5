"""The epochs and operators of a checkpoint as frames, read from its logs without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.errors import QueryError
from streamstate.operations.checkup.state_tables import table_readings
from streamstate.snapshots.checkpoint.decoding.operator_metadata import sources_in_metadata
from streamstate.snapshots.checkpoint.epoch_reads import epoch_reads, in_a_line
from streamstate.snapshots.checkpoint.source_offsets import read_topics
from streamstate.snapshots.checkpoint.source_progress import by_source, recorded_by_source
from streamstate.snapshots.spark.kafka_lag import kafka_lags, running_query

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.snapshots.calls.checks import BuildQuery
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
_SHOWN = 60
"""Rows that are printed, as pandas prints them."""
_OPERATORS = ["operator", "name", "table", "holds", "reads", "because"]


class EpochFrame(pd.DataFrame):
    """Epochs of a checkpoint, printed with all that each read. Results computed from the frame are ordinary frames."""

    def __repr__(self) -> str:
        shown = self._shown()
        return super().__repr__() if shown is None else shown.to_string(index=False, max_rows=_SHOWN)

    def _repr_html_(self) -> str:
        if (shown := self._shown()) is None:
            return self.to_html(max_rows=_SHOWN)
        with pd.option_context("display.max_colwidth", None):
            return shown.to_html(max_rows=_SHOWN)

    def _shown(self) -> pd.DataFrame | None:
        """Return the columns that people read; None if the frame has been changed into one of another form."""
        if [*self.columns] != [*_EPOCHS] or not self.index.is_unique:
            return None
        unknown = [name for name in ("records", "lag") if self[name].isna().all()]
        return self.drop(columns=["offsets", *unknown]).assign(sources=self["sources"].map(in_a_line))


def epoch_frame(
    checkpoint: CheckpointFiles, running: StreamingQuery | None = None, build_query: BuildQuery | None = None
) -> EpochFrame:
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
    newest = max(committed, default=-1)
    if build_query is not None and newest not in behind and (plan := checkpoint.readable_plan(newest)) is not None:
        lag = _lag_now(plan, build_query)
        behind |= {} if lag is None else {newest: lag}
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
    return EpochFrame(frame.astype(_EPOCHS))


def _lag_now(plan: PlannedEpoch, build_query: BuildQuery) -> int | None:
    """Ask Kafka how many records an epoch has left unread; None if the query reads no topic.

    Raises:
        QueryError: Kafka does not answer.
    """
    from streamstate.snapshots.spark.kafka_broker import SilentBrokerError, no_answer, reads_kafka, unread
    from streamstate.snapshots.store.query_plans.describe import streaming_frame
    from streamstate.snapshots.store.query_plans.plan_inputs import sources_of

    frame: Any = streaming_frame(build_query)
    offsets = {str(source): offset for source, offset in by_source(plan.sources).items()}
    sources = {source.name: source.leaf for source in sources_of(frame._jdf.queryExecution().analyzed())}
    found = []
    for name, leaf in sources.items():
        read, offset = read_topics(offsets.get(name)), offsets.get(name)
        if reads_kafka(leaf) and (read is not None or offset is None):
            try:
                found.append(unread(frame.sparkSession._jvm, leaf, read or {}))
            except SilentBrokerError as error:
                raise QueryError(no_answer(leaf, error)) from error
    return sum(found) if found else None


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
