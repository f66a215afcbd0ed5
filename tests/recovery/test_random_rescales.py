"""Rescaling keeps every key: chains of random rescales, a hundred in total, over operators, settings and formats."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, OTHERS, WINDOWS, aggregated, in_format
from operators.running import CHANGELOG_OFF, FORMAT_1, Query, Run
from pyspark.sql import SparkSession
from sampling import sampled

import streamstate as ss
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences

# Spark takes longer for operators with several stores.
CHAINS: dict[str, tuple[int, Query, dict[str, str]]] = {
    "aggregation": (16, aggregated("avg(v)", "collect_list(v)"), {}),
    "aggregation, format 1": (16, aggregated("sum(v)"), FORMAT_1),
    "aggregation, changelog off": (14, aggregated("sum(v)"), CHANGELOG_OFF),
    "aggregation, changelog off, format 1": (14, aggregated("sum(v)"), CHANGELOG_OFF | FORMAT_1),
    "session window": (12, WINDOWS["session window"], {}),
    "deduplication": (12, OTHERS["dropDuplicatesWithinWatermark"], FORMAT_1),
    "join, format 2": (4, JOINS["full_outer"], in_format(2)),
    "join, format 3": (4, JOINS["full_outer"], in_format(3)),
    "applyInPandasWithState": (4, PANDAS_STATE["event-time timeout"], {}),
    "transformWithState": (4, TRANSFORM["rows, event time and timers"], {}),
}
assert sum(number for number, _, _ in CHAINS.values()) == 100


@pytest.mark.exhaustive
@pytest.mark.slow  # 4 to 16 rescales each, a hundred in total
@pytest.mark.parametrize("name", sampled(CHAINS, 1))
def test_every_key_is_kept(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """A chain of rescales to 1 to 5 partitions keeps the state, row by row."""
    length, query, settings = CHAINS[name]
    run = Run(spark, tmp_path)
    run.start(query, settings, epochs=range(3))
    before = StateAt(str(run.checkpoint), CheckpointFiles(run.checkpoint).committed()[-1])
    rng, partitions = random.Random(name), 2
    for number in range(1, length + 1):
        target = rng.choice([count for count in range(1, 6) if count != partitions])
        report = ss.Checkpoint(run.checkpoint).rescale(target, spark=spark)
        assert report.partitions == (partitions, target)
        assert report.epoch == before.epoch + number
        partitions = target
    after = StateAt(str(run.checkpoint), before.epoch + length)
    assert state_differences(spark, before, after, exact=True) == []
    run.start(query, settings, epochs=range(3, 4))
    assert CheckpointFiles(run.checkpoint).partitions(after.epoch + 1) == partitions
