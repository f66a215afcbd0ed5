"""A captured epoch as the source of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.errors import EpochGoneError, UntrustedStoreError
from streamstate.operations.new_checkpoint.log_texts import milliseconds, offset_text
from streamstate.snapshots.checkpoint.logs import is_source_name
from streamstate.snapshots.checkpoint.source_progress import recorded_by_source
from streamstate.state_inspect.sql.spark_relations import read_in_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.snapshots.checkpoint.source_progress import SourceFacts
    from streamstate.snapshots.store.entries import Entries, Entry
    from streamstate.state_inspect import Snapshot


@dataclass(frozen=True)
class CapturedEpoch:
    """An epoch of a store, of which a checkpoint is made."""

    snapshot: Snapshot

    def __str__(self) -> str:
        return f"epoch {self.snapshot.epoch} of {self.snapshot.query}"

    @property
    def _entry(self) -> Entry:
        return self.snapshot.history.recorded.entry(self.snapshot.epoch)

    @property
    def _entries(self) -> Entries:
        return self.snapshot.history.recorded.entries()

    @property
    def offsets(self) -> dict[str, str | None] | list[str | None]:
        """The end offset of each source: by name, or in the query's order.

        Raises:
            EpochGoneError: the store does not know them.
            UntrustedStoreError: Spark would not accept a source's name.
        """
        found = self.snapshot.offsets
        if found is None:
            raise EpochGoneError(
                f"The store does not know what {self} had read: Spark had purged it before the epoch was captured.\n"
                "Restore a later epoch."
            )
        if not isinstance(found, Mapping):
            return [offset_text(offset) for offset in found]
        for name in found:
            if not is_source_name(name):
                raise UntrustedStoreError.name(self.snapshot.history.recorded.layout.root, "source", name)
        return {name: offset_text(offset) for name, offset in found.items()}

    @property
    def sources(self) -> dict[str | int, SourceFacts]:
        """The facts on each source beside its offset."""
        return recorded_by_source(self._entry.sources)

    @property
    def watermark(self) -> int:
        """The watermark in force during it, in milliseconds since 1970; 0: there was none."""
        return milliseconds(self.snapshot.watermark)

    @property
    def began_at(self) -> int:
        """Its processing time, in milliseconds since 1970; 0: unknown."""
        return milliseconds(self._entry.began_at)

    @property
    def next_watermark(self) -> int:
        """The watermark of the next epoch at its start, in milliseconds since 1970; 0 without one.

        Raises:
            EpochGoneError: the store does not know it.
        """
        if (known := self._entry.next_watermark) is not None:
            return milliseconds(known)
        number = self.snapshot.epoch + 1
        following = next((entry for entry in self._entries if entry.epoch == number and entry.captured), None)
        if following is not None:
            return milliseconds(following.watermark)
        if self.snapshot.watermark is None:
            return 0
        raise EpochGoneError(
            f"Nothing says which watermark followed {self}: Spark had purged its commit before it was captured, and"
            f" epoch {number} was not captured.\nRestore another epoch."
        )

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns of each state table, as the changelog says without any row of it being read."""
        recorded, epoch = self.snapshot.history.recorded, self.snapshot.epoch
        return {name: recorded.changelog(name).columns_at(epoch) for name in self.snapshot.tables()}

    def rows(self, table: str, session: SparkSession) -> DataFrame:
        """Return the rows of a state table, read by Spark."""
        return read_in_spark(self.snapshot.history.recorded, self.snapshot, table, None).in_spark(session)
