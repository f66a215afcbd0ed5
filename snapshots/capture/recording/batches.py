"""Tasks on the executors: each writes its rows of a batch as one data file, or reads files again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamstate.snapshots.capture.executors.tasks import Batches, TableTask, reported
from streamstate.snapshots.checkpoint.state_tables import PARTITION, POSITION
from streamstate.snapshots.store.delta.data_files import DataFileWriter, fitted, verified
from streamstate.snapshots.store.delta.place import Place

BATCH = "_batch"
"""The column with the number of the recorded batch."""

MARKS = pa.schema([(BATCH, pa.int64()), (PARTITION, pa.int64()), (POSITION, pa.int64())])
"""The columns that a recording adds: the batch, Spark's partition of it, and the row's place in that."""


def write_batch(task: TableTask, batch: int, batches: Batches) -> Batches:
    """Write one partition of a batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()

    def written(writer: DataFileWriter) -> Batches:
        position = 0
        for rows in batches:
            count = rows.num_rows
            marks = {
                BATCH: pa.repeat(pa.scalar(batch, pa.int64()), count),
                PARTITION: pa.repeat(pa.scalar(partition, pa.int64()), count),
                POSITION: pa.array(np.arange(position, position + count)),
            }
            writer.write(pa.table([*marks.values(), *rows.columns], names=[*marks, *rows.schema.names]))
            position += count
        yield from ()

    return reported(task, written)


@dataclass(frozen=True)
class RecordedFiles:
    """Some files of a recording, and which batches of them to read."""

    place: Place
    files: tuple[tuple[str, int], ...]
    """Each file's path in the table and its size."""
    first: int
    last: int
    """Both are included."""

    def rows(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Return the rows in the columns of a schema."""
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        wanted = (pc.field(BATCH) >= self.first) & (pc.field(BATCH) <= self.last)
        for path, size in self.files:
            data = ds.dataset(verified(self.place, path, size), format="parquet")
            for rows in data.scanner(columns=schema.names, filter=wanted).to_batches():
                if rows.num_rows:
                    yield from fitted(pa.Table.from_batches([rows]), schema).combine_chunks().to_batches()
