"""Bytes of a store, against its change rows in one file and against a full copy of every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.harness import Measurement, Size
from benchmarks.replayed import Stepped
from benchmarks.workload import Workload, finished, whole_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Full copies made; the rest of the epochs are taken to be as large.
_COPIES = 5
# A capture that follows looks every five seconds whether files are to be merged.
_TIDIED = 10


def storage(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure stores that grew epoch by epoch; logs and keyframes count.

    The second is tidied as a capture does that follows a query: keyframes where they are due, small files merged.
    """
    load = finished(spark, folder, size.keys, size.changes, size.epochs - 1)
    setting = f"{size}, {size.epochs} epochs"
    once = "change rows, one Parquet file"
    ours, changes = _captured(spark, load, folder / "plain", size.epochs, 0)
    yield Measurement("bytes on disk", "store", ours, once, changes, 1, setting, unit="B", wanted=1 / 2.5)
    ours, changes = _captured(spark, load, folder / "tidied", size.epochs, _TIDIED)
    how = f"store, tidied every {_TIDIED} epochs"
    yield Measurement("bytes on disk", how, ours, once, changes, 1, setting, unit="B", wanted=1 / 2.5)
    epochs = range(size.epochs - 1, 0, -max(1, size.epochs // _COPIES))
    for epoch in epochs:
        whole_state(spark, load.checkpoint, epoch).write.parquet(str(folder / "copies" / str(epoch)))
    full = _bytes(folder / "copies") / len(epochs) * size.epochs
    yield Measurement("bytes on disk", how, ours, "a full copy an epoch, Parquet", full, 1, setting, unit="B")


def _captured(spark: SparkSession, load: Workload, store: Path, epochs: int, tidied: int) -> tuple[float, float]:
    """Return the bytes of a store that grew epoch by epoch, and of its changes written once."""
    stepped = Stepped(spark, load.checkpoint, store)
    for epoch in range(epochs):
        stepped.step()
        if tidied and epoch % tidied == 0:
            stepped.capturer.tidy()
    return _bytes(store), _written_once(store / "load" / "op0", store.with_suffix(".parquet"))


def _written_once(log: Path, file: Path) -> float:
    """Return the bytes of the change rows as one Parquet file with PyArrow's defaults."""
    table = DeltaTable(str(log))
    rows = pa.table(table.scan()).cast(pa.schema(table.schema().to_arrow()))
    pq.write_table(rows.filter(pc.not_equal(rows["_change"], "keyframe")), file)
    return file.stat().st_size


def _bytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
