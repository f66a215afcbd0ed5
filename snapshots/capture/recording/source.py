"""The streaming source that reads a recording: a data source for Spark that is written in Python.

Its offset is the number of the last batch that was read. So what an epoch read can be read again, as long as
retention has not dropped it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from streamstate.errors import NotReplayableError
from streamstate.snapshots.capture.recording.batches import BATCH, RecordedFiles
from streamstate.snapshots.spark.pyspark_classes import DataSource, DataSourceStreamReader, InputPartition
from streamstate.snapshots.store.delta.place import Place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "streamstate_recording"
"""The name of the source in Spark."""
PATH, OPTIONS, TASKS = "path", "storage_options", "tasks"
FED = "fed"
"""The option that tells a frame whose recorder starts with its query from one that only reads."""


class RecordedInput(DataSource):
    """Spark's ``spark.readStream.format("streamstate_recording")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the source in Spark."""
        return FORMAT

    def streamReader(self, schema: StructType) -> RecordedReader:  # noqa: N802 (Spark calls it by this name)
        """Return the reader of the recording."""
        known = json.loads(self.options.get(OPTIONS, "null"))
        return RecordedReader(Place(self.options[PATH], known), schema, int(self.options.get(TASKS, "1")))


class _Part(InputPartition):
    def __init__(self, value: RecordedFiles) -> None:
        super().__init__(value)
        self.value = value


class RecordedReader(DataSourceStreamReader):
    """A reader of a recording's batches. Spark asks for offsets in one process, and reads in others."""

    def __init__(self, place: Place, schema: StructType, tasks: int) -> None:
        self._place = place
        self._schema = schema
        self._tasks = max(1, tasks)
        self._handle: Any = None
        self._positions: dict[int, dict[str, Any]] = {}
        """The position of the source after the newest batch, by its number."""

    def _table(self) -> Any:
        # Here, because processes that only read rows do not need it.
        from streamstate.snapshots.store.delta.commits import Handle

        if self._handle is None:
            self._handle = Handle(self._place)
        return self._handle.newest()

    def _offset(self, table: Any, batch: int) -> dict[str, Any]:
        from streamstate.snapshots.capture.recording.source_position import position_after

        if batch not in self._positions:
            self._positions = {batch: position_after(self._place, batch) if batch >= 0 else {}}
        of = {"recording": self._place.uri, "id": str(table.metadata().id), "batch": batch}
        return of | self._positions[batch]

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset at which a new query begins: before the oldest batch that is kept."""
        from streamstate.snapshots.capture.recording.recording import kept

        table = self._table()
        return self._offset(table, kept(table).dropped)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:  # noqa: N802
        """Return the newest batch. Before Spark 4.2, ``start`` is not given."""
        from streamstate.snapshots.capture.recording.recording import kept

        table = self._table()
        if start is None:
            return self._offset(table, kept(table).newest)
        self._check(table, start)
        newest = kept(table).newest
        return start if newest <= int(start["batch"]) else self._offset(table, newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the files with the batches after one offset up to another, for at most the asked number of tasks."""
        from streamstate.snapshots.capture.recording.recording import kept
        from streamstate.snapshots.store.delta.reading import TableVersion

        first, last = int(start["batch"]) + 1, int(end["batch"])
        if first > last:
            return []
        table = self._table()
        for offset in (start, end):
            self._check(table, offset)
        if first <= (dropped := kept(table).dropped):
            raise NotReplayableError(
                f"The batches {first} to {min(dropped, last)} of {self._place} are gone: retention dropped them.\n"
                "Only input that no kept epoch needs is dropped."
            )
        found = [file for file in TableVersion(self._place, table).files(BATCH) if file.may_hold(first, last)]
        share = max(1, -(-len(found) // self._tasks))
        shares = [found[at : at + share] for at in range(0, len(found), share)]
        named = [tuple((file.path, file.size) for file in files) for files in shares]
        return [_Part(RecordedFiles(self._place, files, first, last)) for files in named]

    def _check(self, table: Any, offset: dict[str, Any]) -> None:
        if offset["id"] != str(table.metadata().id):
            raise NotReplayableError(
                f"{self._place} is not the recording that this query has read: it was made anew.\n"
                "Put the old one back, or start the query with a new checkpoint."
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of some files."""
        from streamstate.snapshots.spark.fetching import arrow_schema

        files: RecordedFiles = partition.value
        return files.rows(arrow_schema(self._schema))
