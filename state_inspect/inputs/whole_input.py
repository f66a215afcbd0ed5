"""Checks that an epoch's input from Kafka is read whole: with what the broker says, and by the number of rows.

A topic never gets records back. So where the range of an epoch has as many rows as the epoch read, or one for each
offset, they are the same rows, whatever retention and compaction have removed before the epoch ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamstate.errors import NotReplayableError
from streamstate.snapshots.spark.kafka_broker import loss_fails
from streamstate.state_inspect.inputs.epoch_offsets import SourceRange
from streamstate.state_inspect.inputs.kafka_losses import EpochRecords, input_gone, records_now
from streamstate.state_inspect.inputs.source_batches import SourceReader


@dataclass
class WholeInput:
    """The check of one epoch.

    Args:
        epoch: the epoch and its query, for messages.
        ids: the ids of Kafka's topics when it ran.
        rows: the rows that it read, if that is known and it has one source.
        reader: reads the sources.
        count: returns the number of rows of a plan.
    """

    epoch: str
    ids: Mapping[str, str]
    rows: int | None
    reader: SourceReader
    count: Callable[[Any], int]
    notes: list[str] = field(default_factory=list)
    """Once :meth:`batch` ran: what the epoch's offsets cover beside the rows that it read."""

    def batch(self, leaf: Any, source: SourceRange, *, streaming: bool) -> Any:
        """Return the plan of what Kafka's source delivered.

        Raises:
            NotReplayableError: some of it is gone, or may be.
        """
        reader = self.reader
        kept = records_now(
            reader.spark._jvm, leaf, source, reader.files, reader.checkpoint, epoch=self.epoch, ids=self.ids
        )
        gone = kept.gone()
        if [*kept.replaced()] or (gone and (self.rows is None or loss_fails(leaf))):
            raise input_gone(self.epoch, gone)
        if gone or kept.compacted:
            found = self.count(reader.batch(leaf, source, lossy=bool(gone)))
            if gone and found != self.rows:
                raise input_gone(self.epoch, gone)
            if found not in (self.rows, kept.offsets):
                raise self._compacted(kept, found)
        self._note(kept, gone)
        return reader.batch(leaf, source, streaming=streaming, lossy=bool(gone))

    def _compacted(self, kept: EpochRecords, found: int) -> NotReplayableError:
        rows = f"it read {self.rows:,}" if self.rows is not None else f"its offsets cover {kept.offsets:,}"
        return NotReplayableError(
            f"Input that {self.epoch} read is gone, or may be: {found:,} records are left, and {rows}. The topic"
            f" {', '.join(kept.compacted)} is compacted: a record is removed once there is a newer one with its key.\n"
            "To keep the records of later epochs, record the query's input: record_input=True, %%stream --record-input"
            " or streamstate.record."
        )

    def _note(self, kept: EpochRecords, gone: list[str]) -> None:
        if gone:
            self.notes.append(f"Lost before the epoch read them, and never in the state: {'; '.join(gone)}.")
        elif self.rows is not None and self.rows < kept.offsets:
            why = (
                "compacted, or of transactions"
                if kept.compacted
                else "of transactions: aborted, or marks of their ends"
            )
            self.notes.append(
                f"The epoch's offsets cover {kept.offsets:,} records, and it read {self.rows:,}. None were lost: the"
                f" others are {why}."
            )
