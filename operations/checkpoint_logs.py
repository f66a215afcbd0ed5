"""The epochs and operators of a checkpoint as frames, read from its logs without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.operations.checkup.state_tables import table_readings
from streamstate.snapshots.checkpoint.bindings import is_binding
from streamstate.snapshots.checkpoint.decoding.operator_metadata import sources_in_metadata
from streamstate.snapshots.checkpoint.source_offsets import in_words
from streamstate.snapshots.checkpoint.source_progress import by_source

if TYPE_CHECKING:
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
}
_OPERATORS = ["operator", "name", "table", "holds", "reads", "because"]


def epoch_frame(checkpoint: CheckpointFiles) -> pd.DataFrame:
    """Return one row per epoch that the logs still hold, ascending; see :meth:`Checkpoint.epochs`."""
    checkpoint.query_id  # noqa: B018 (raises if there is no checkpoint)
    committed = set(checkpoint.committed())
    rows: list[tuple[Any, ...]] = []
    known: str | None = None
    for epoch in sorted({*checkpoint.begun(), *committed}):
        planned = checkpoint.readable_plan(epoch)
        known = known if planned is None else checkpoint.sources(planned, known)
        rows.append(
            (
                epoch,
                "committed" if epoch in committed else "begun",
                None if planned is None else planned.began_at,
                checkpoint.committed_at(epoch),
                None if planned is None else planned.watermark,
                None if planned is None else planned.partitions,
                None if planned is None else json.dumps(planned.sources),
                {} if planned is None else _in_words(planned, known),
            )
        )
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


def _in_words(planned: PlannedEpoch, known: str | None) -> dict[str | int, str]:
    """The position in each source, by its name or its place in the query; bindings of variables left out."""
    facts = {} if known is None else by_source(json.loads(known))
    return {
        source: in_words(offset, (facts.get(source) or {}).get("files"))
        for source, offset in by_source(planned.sources).items()
        if not is_binding(offset)
    }
