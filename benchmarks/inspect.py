"""Reading a store against reading with Spark."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, alternate
from benchmarks.size import Size
from benchmarks.workload import Workload, whole_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reading(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """A point lookup and a past epoch's top rows, against Spark's state reader."""
    load = Workload(spark, folder, size.keys, size.changes)
    for _ in range(size.epochs):
        load.change()
    load.run()
    ss.capture(load.checkpoint, folder / "store", "load", spark=spark)
    history = ss.open_store(folder / "store")["load"]
    past, newest = size.epochs // 2, size.epochs
    history.at(past).table().count()

    def in_index(epoch: int) -> object:
        return history.at(epoch).table().lookup(key="key-77")

    def in_spark(epoch: int) -> object:
        return whole_state(spark, load.checkpoint, epoch).where("key.key = 'key-77'").collect()

    for name, epoch in (("live", newest), ("past", past)):
        ours, other = alternate(partial(in_index, epoch), partial(in_spark, epoch), 5)
        yield Measurement(f"look up one key, {name}", "lookup", ours, "Spark's reader, filtered", other, 5, str(size))

    def top() -> object:
        return history.at(past).table().page(limit=100, order_by="max", descending=True)

    def top_in_spark() -> object:
        return whole_state(spark, load.checkpoint, past).orderBy("value.max", ascending=False).limit(100).collect()

    ours, other = alternate(top, top_in_spark, 5)
    yield Measurement("top 100 at a past epoch", "page", ours, "Spark's reader, sorted", other, 5, str(size))
