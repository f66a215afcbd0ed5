"""The epochs and operators of a checkpoint as frames, read from its logs without Spark."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.operations.checkup.state_tables import table_readings
from streamstate.snapshots.checkpoint.bindings import is_binding
from streamstate.snapshots.checkpoint.decoding.operator_metadata import sources_in_metadata
from streamstate.snapshots.checkpoint.source_progress import FILES, by_source, source_batch

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
    offsets = by_source(planned.sources)
    return {source: position(offset, facts.get(source)) for source, offset in offsets.items() if not is_binding(offset)}


def position(offset: str | None, facts: dict[str, Any] | None = None) -> str:
    """Return a source's offset in words.

    Args:
        offset: the source's own JSON; None before its first rows.
        facts: what :func:`~streamstate.snapshots.checkpoint.source_progress.sources_after` found out about it.

    Example:
        >>> position('{"flights":{"0":812,"1":790}}')
        'flights: partition 0 at offset 812, partition 1 at offset 790'
    """
    if offset is None:
        return "nothing read yet"
    if facts is not None and facts.get("kind") == FILES:
        return f"{facts['files']:,} files"
    if (batch := source_batch(offset)) is not None:
        return f"files up to the source's batch {batch}"
    with contextlib.suppress(ValueError):
        return _of_json(json.loads(offset)) or offset
    return offset


def _of_json(value: Any) -> str | None:
    """An offset of Kafka, Delta, or a source that counts, in words; None for others."""
    if isinstance(value, dict) and value and all(isinstance(partitions, dict) for partitions in value.values()):
        return "; ".join(_topic(topic, partitions) for topic, partitions in value.items())
    if isinstance(value, dict) and "reservoirVersion" in value:
        return f"table version {value['reservoirVersion']}, file {value.get('index', -1)}"
    return f"offset {value}" if isinstance(value, int) else None


def _topic(topic: str, partitions: dict[str, Any]) -> str:
    numbers = sorted(partitions, key=lambda number: (len(number), number))
    parts = [f"partition {number} at offset {partitions[number]}" for number in numbers]
    return f"{topic}: {', '.join(parts) or 'no partitions'}"
