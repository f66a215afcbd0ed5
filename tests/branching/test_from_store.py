"""A query can begin with a snapshot of the store, where Spark takes an initial state."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import spark_rows
from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from synthetic import write

import streamstate as ss
from streamstate.snapshots.errors import (
    EpochGoneError,
    NotReplayableError,
    UnknownTableError,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Counts(StatefulProcessor):
    """Counts a key's rows, beginning with a count from outside."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """One variable."""
        self.n = handle.getValueState("n", "n long")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Take the count over."""
        self.n.update((initialState["count"],))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Count on."""
        held = self.n.get()
        count = (held[0] if held else 0) + len(list(rows))
        self.n.update((count,))
        yield Row(k=key[0], n=count)

    def close(self) -> None:
        """Nothing to close."""


def test_a_query_goes_on_from_a_snapshot(
    spark: SparkSession, counted: tuple[Path, Path], store: ss.Store, tmp_path: Path
) -> None:
    """With the snapshot's counts and the later input, the counts are those of the query that never stopped."""
    begun = store["counts"].at(2)
    later = tmp_path / "later"
    later.mkdir()
    for number in (3, 4):
        shutil.copy(counted[0].parent / f"input/{number:05}.parquet", later)
    old = ss.initial_state(begun, spark=spark).select("k", "count")
    stream = spark.readStream.schema("k string, v long").parquet(str(later)).groupBy("k")
    counts = stream.transformWithState(Counts(), "k string, n long", "update", "none", initialState=old.groupBy("k"))
    writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    found = {row[0]: row[1] for row in map(json.loads, spark_rows(spark, tmp_path / "c", "op0_n", 0))}
    live = store["counts"].live().table().to_pandas()
    assert found == dict(zip(live["k"], live["count"], strict=True))


def test_the_table_has_to_be_there(spark: SparkSession, store: ss.Store) -> None:
    """As everywhere."""
    with pytest.raises(UnknownTableError):
        ss.initial_state(store["counts"], "op1", spark=spark)


KAFKA = '{"flights": {"0": 23, "1": 17}}'
DELTA = '{"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 7, "index": -1, "isStartingVersion": false}'


@pytest.mark.parametrize(
    ("offsets", "options"),
    [
        (f"[{KAFKA}]", [{"startingOffsets": '{"flights":{"0":23,"1":17}}'}]),
        (f"[{DELTA}, {KAFKA}]", [{"startingVersion": "7"}, {"startingOffsets": '{"flights":{"0":23,"1":17}}'}]),
    ],
)
def test_where_a_source_begins(tmp_path: Path, offsets: str, options: list[dict[str, str]]) -> None:
    """The epoch's end offsets, in the form of the source's own options."""
    write(tmp_path / "store", [{"a": 1}], facts=[{"offsets": offsets}])
    assert ss.start_offsets(ss.open_store(tmp_path / "store")["q"]) == options


@pytest.mark.parametrize(
    ("offsets", "told"),
    [
        ('[{"logOffset": 4}]', "first 5 batches of files"),
        (f"[{DELTA.replace('-1', '3')}]", "within version 7"),
        ("[12]", "no option is known"),
        ('[{"shard": {"iteratorType": "AFTER"}}]', "no option is known"),
        (None, "does not know"),
    ],
)
def test_a_source_that_cannot_begin_there(tmp_path: Path, offsets: str | None, told: str) -> None:
    """The error says what to do instead."""
    write(tmp_path / "store", [{"a": 1}], facts=[{"offsets": offsets}])
    with pytest.raises(NotReplayableError, match=told):
        ss.start_offsets(ss.open_store(tmp_path / "store")["q"])


def test_a_gone_epoch_points_at_the_store(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Whoever captured it has it."""
    with pytest.raises(EpochGoneError, match=r"ss\.initial_state"):
        ss.fork(counted[0], tmp_path / "fork", at=77)
