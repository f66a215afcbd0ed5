"""What the tests of availability share: waiting, input files, and the comparison with an undisturbed run."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import drilled
import pandas as pd
from input_files import in_turn
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from availability import primary
from streamstate.operations.drill.drilled_process import same_batches
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def write_file(folder: Path, number: int) -> None:
    """Add an input file, for one epoch."""
    keys = [*(f"k{key}" for key in range(20)), f"only{number}"]
    hidden = folder / f"_{number}"
    pd.DataFrame({"k": keys, "v": range(number, number + len(keys))}).to_parquet(hidden)
    in_turn(hidden, number)
    hidden.rename(folder / f"{number:05}.parquet")


def check_undisturbed(spark: SparkSession, folder: Path, files: int) -> None:
    """Check that every epoch has the input, state and results of a run that was never disturbed."""
    whole = folder / "undisturbed"
    (folder / "whole").mkdir()
    (folder / "whole" / "out").mkdir()
    frame = drilled.counts(folder / "input")
    writer = frame.writeStream.outputMode("update").option("checkpointLocation", str(whole))
    writer = writer.foreachBatch(partial(primary.write_rows, folder / "whole"))
    writer.trigger(availableNow=True).start().awaitTermination()
    left, right = CheckpointFiles(whole), CheckpointFiles(str(folder / "checkpoint"))
    last = files - 1
    assert left.committed() == right.committed() == [*range(last + 1)]
    assert same_batches(left, right, last)
    for epoch in range(last + 1):
        assert state_differences(spark, StateAt(left.path, epoch), StateAt(right.path, epoch)) == []
        (expected,) = (folder / "whole" / "out").glob(f"{epoch}-*.json")
        found = [*(folder / "out").glob(f"{epoch}-*.json")]
        assert found
        assert {file.read_text() for file in found} == {expected.read_text()}
    history = ss.open_store(folder / "store")["counts"]
    assert history.captured() == [*range(last + 1)]
    assert compare(spark, folder / "checkpoint", history) == last + 1
