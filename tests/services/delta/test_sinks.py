"""Delta tables as sinks: written once for each epoch, by the query alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import streamstate as ss
from services.delta.conftest import Table
from services.delta.test_inputs import numbers
from streamstate.errors import ForkError
from streamstate.reports import Running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def content(path: Path) -> Counter[tuple[object, ...]]:
    """The rows of a table, as often as they are there."""
    return Counter(tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist())


def test_a_promoted_query_writes_each_epoch_once(table: Table, tmp_path: Path) -> None:
    """The sink knows the promoted query by its id: nothing is lost, and nothing is written twice."""
    out, cp = tmp_path / "out", tmp_path / "cp"

    def first_rows(where: str = "true") -> DataFrame:
        rows = table.spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(table.path)
        return rows.where(where).dropDuplicates(["v"])

    def run() -> Running:
        running = ss.start(
            first_rows(), "first", tmp_path / "store", checkpoint=cp, mode="append", sink=f"delta:{out}",
            trigger="available-now", partitions=2,
        )  # fmt: skip
        running.wait(timeout=300)
        return running

    table.append(0, 6, files=2)
    first = run()
    checkpoint, [unknown] = first.checkpoint, numbers(first.history, 1) & {1, 4}
    fork = checkpoint.fork(tmp_path / "fork", at=0)
    assert fork.step(lambda: first_rows("v NOT IN (1, 4)"), mode="append").epoch == 1
    table.append(0, 9, files=2)
    with pytest.raises(ForkError, match="may be the original's sink"):
        fork.step(first_rows, sink=f"delta:{out}", new_input=True)
    before = content(out)
    assert before == Counter((f"k{v % 3}", v) for v in range(6))

    promotion = fork.promote(over=checkpoint)
    run()
    expected = before + Counter({("k1", unknown): 1, ("k0", 6): 1, ("k1", 7): 1, ("k2", 8): 1})
    assert content(out) == expected
    assert promotion.epoch == 1


def test_merge_in_foreach_batch(table: Table, new_table: Callable[[str], Table], tmp_path: Path) -> None:
    """A function that merges runs with the query, and never in a fork."""
    target = new_table("target")
    target.append(0, 0)
    table.append(0, 6, files=2)

    def merge(rows: DataFrame, epoch: int) -> None:
        rows.createOrReplaceTempView("changes")
        rows.sparkSession.sql(
            f"MERGE INTO delta.`{target.path}` t USING changes s ON t.k = s.k"
            " WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
        )

    def build() -> DataFrame:
        return table.totals().selectExpr("k", "`sum(v)` AS v")

    running = ss.start(
        build(), "merged", tmp_path / "store", checkpoint=tmp_path / "cp", sink=merge, trigger="available-now",
        partitions=2,
    )  # fmt: skip
    running.wait(timeout=300)
    assert content(Path(target.path)) == Counter({("k0", 3): 1, ("k1", 5): 1, ("k2", 7): 1})
    version = DeltaTable(target.path).version()
    fork = running.checkpoint.fork(tmp_path / "fork", at=0)
    assert fork.step(build, epochs=5).epoch == 1
    assert running.checkpoint.replay(build, to=tmp_path / "replay", epochs="0..1").same
    assert numbers(running.history, 1) | numbers(running.history, 0) == {*range(6)}
    assert DeltaTable(target.path).version() == version
