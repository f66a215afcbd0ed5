"""Checks that an epoch's input from Kafka is read whole: with what the broker says, and by the number of rows.

A topic never gets records back. So where the range of an epoch has as many rows as the epoch read, or one for each
offset, they are the same rows, whatever retention and compaction have removed before the epoch ran.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamstate.errors import NotReplayableError
from streamstate.snapshots.spark.kafka_broker import loss_fails
from streamstate.snapshots.spark.plan_building import dataset_of
from streamstate.state_inspect.inputs.epoch_offsets import SourceRange
from streamstate.state_inspect.inputs.kafka_losses import EpochRecords, input_gone, records_now
from streamstate.state_inspect.inputs.known_input import KnownInput
from streamstate.state_inspect.inputs.source_batches import SourceReader


@dataclass
class WholeInput:
    """The check of one epoch.

    Args:
        epoch: the epoch and its query, for messages.
        known: what a store knows of its input.
        reader: reads the sources.
    """

    epoch: str
    known: KnownInput
    reader: SourceReader
    notes: list[str] = field(default_factory=list)
    """Once :meth:`batch` ran: what the epoch's offsets cover beside the rows that it read."""

    def batch(self, leaf: Any, source: SourceRange, *, streaming: bool) -> Any:
        """Return the plan of what Kafka's source delivered.

        Raises:
            NotReplayableError: some of it is gone, or may be.
        """
        kept = self._kept(leaf, source)
        gone = kept.gone()
        if (lacking := self._lacking(kept, gone, leaf, source)) is not None:
            raise self._compacted(kept, lacking)
        self._note(kept, gone, strict=loss_fails(leaf))
        return self.reader.batch(leaf, source, streaming=streaming, lossy=bool(gone))

    def doubt(self, leaf: Any, source: SourceRange) -> str | None:
        """Return, for a source that is to be read again by Spark, why it may lack records; None if it has them all.

        Raises:
            NotReplayableError: some of them are gone for certain, or Spark would fail at an offset that is gone.
        """
        kept = self._kept(leaf, source)
        if (gone := kept.gone()) and loss_fails(leaf):
            raise input_gone(self.epoch, gone)
        lacking = self._lacking(kept, gone, leaf, source)
        if lacking is None:
            return None
        if self.known.rows is not None:
            raise self._compacted(kept, lacking)
        return (
            f"{lacking:,} records of {kept.offsets:,} offsets are left: others may have been compacted away since, for"
            f" {', '.join(kept.compacted)} has cleanup.policy=compact"
        )

    def _kept(self, leaf: Any, source: SourceRange) -> EpochRecords:
        reader = self.reader
        jvm: Any = reader.spark._jvm
        return records_now(jvm, leaf, source, reader.files, reader.checkpoint, epoch=self.epoch, ids=self.known.topics)

    def _lacking(self, kept: EpochRecords, gone: list[str], leaf: Any, source: SourceRange) -> int | None:
        """Return how many records are left of those between the offsets; None if the epoch read no others.

        Raises:
            NotReplayableError: some that it read are gone for certain.
        """
        rows = self.known.rows
        if [*kept.replaced()] or (gone and rows is None):
            raise input_gone(self.epoch, gone)
        if not gone and not kept.compacted:
            return None
        found = self._count(self.reader.batch(leaf, source, lossy=bool(gone)))
        if gone and found != rows:
            raise input_gone(self.epoch, gone)
        return None if found in (rows, kept.offsets) else found

    def _count(self, plan: Any) -> int:
        spark = self.reader.spark
        return int(dataset_of(spark._jvm, spark._jsparkSession, plan).count())

    def _compacted(self, kept: EpochRecords, found: int) -> NotReplayableError:
        rows = f"it read {self.known.rows:,}" if self.known.rows is not None else f"its offsets cover {kept.offsets:,}"
        return NotReplayableError(
            f"Input that {self.epoch} read is gone, or may be: {found:,} records are left, and {rows}. The topic"
            f" {', '.join(kept.compacted)} is compacted: a record is removed once there is a newer one with its key.\n"
            "To keep the records of later epochs, record the query's input: record_input=True, %%stream --record-input"
            " or streamstate.record."
        )

    def _note(self, kept: EpochRecords, gone: list[str], *, strict: bool) -> None:
        rows = self.known.rows
        if gone and strict:
            self.notes.append(f"Gone, and never read: {'; '.join(gone)}. They were of transactions.")
        elif gone:
            self.notes.append(f"Lost before the epoch read them, and never in the state: {'; '.join(gone)}.")
        elif rows is not None and rows < kept.offsets:
            why = (
                "compacted, or of transactions"
                if kept.compacted
                else "of transactions: aborted, or marks of their ends"
            )
            self.notes.append(
                f"The epoch's offsets cover {kept.offsets:,} records, and it read {rows:,}. None were lost: the"
                f" others are {why}."
            )
