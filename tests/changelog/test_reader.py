"""Decoded changelogs equal Spark's change feed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, KEYS, OTHERS, VALUES, WINDOWS, aggregated, grouped, in_format
from operators.running import FORMAT_1, HDFS, Run, rows
from pyspark.sql import SparkSession
from recorded.queries import query, recorded
from recorded.unpacked import VERSIONS, unpacked

from changelog.feeds import compare_all, compare_runs

Recordings = Callable[[str], Path]
USUAL = {
    ("3.4", "HDFS", "left-outer-join"),
    ("3.5", "RocksDB-with-changelog", "session-window"),
    ("4.2", "RocksDB-format-2", "aggregation"),
}


def cases() -> Iterator[object]:
    """The recorded checkpoints that have changelogs."""
    for version in VERSIONS:
        for name, provider in recorded(version):
            if provider != "RocksDB":
                marks = () if (version, provider, name) in USUAL else pytest.mark.exhaustive
                yield pytest.param(version, provider, name, marks=marks, id=f"{version}-{provider}-{name}")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    """Returns the folder with the checkpoints of a Spark version."""
    return cache(lambda version: unpacked(version, tmp_path_factory.mktemp("recorded")))


@pytest.mark.parametrize(("version", "provider", "name"), [*cases()])
def test_recorded_checkpoints_equal_the_feed(
    spark: SparkSession, recordings: Recordings, version: str, provider: str, name: str
) -> None:
    """Every table at every epoch that any version of Spark wrote."""
    compared = compare_all(spark, recordings(version) / provider / name)
    assert compared >= 4 * len(query(name).tables)


QUERIES = {
    **{f"key: {name}": grouped(*keys) for name, keys in KEYS.items()},
    **{f"value: {name}": aggregated(*values) for name, values in VALUES.items() if name != "variants"},
    **WINDOWS,
    **OTHERS,
    **{f"join: {how}": join for how, join in JOINS.items()},
    "join in format 3": replace(JOINS["left_outer"], conf=in_format(3)),
    "join in format 4": replace(JOINS["left_outer"], conf=in_format(4)),
    **PANDAS_STATE,
    **TRANSFORM,
}
_STORE = "spark.sql.streaming.stateStore"
_CHECKSUMS = {f"{_STORE}.rowChecksum.enabled": "true"}
SETTINGS = {
    "format 2": {},
    "format 1, zstd": {**FORMAT_1, f"{_STORE}.compression.codec": "zstd"},
    "format 2, snappy, checksums": {**_CHECKSUMS, f"{_STORE}.compression.codec": "snappy"},
    "HDFS": HDFS,
    "HDFS, zstd, checksums": {**HDFS, **_CHECKSUMS, f"{_STORE}.compression.codec": "zstd"},
}
SLOW = (
    *("join in format 4", "tumbling window", "join in format 3"),
    *("session window", "dropDuplicates with a watermark"),
)
"""For each setting, the query that the slow tests run with it."""
ROCKSDB_ONLY = {*TRANSFORM, "join in format 3", "join in format 4"}


_FEW, _MANY = (range(2), range(2, 4)), (range(20), range(20, 40))


def written() -> Iterator[object]:
    """One query with each setting in the slow tests, and all combinations, over more epochs, in the exhaustive tests.

    Those compare a state table at an epoch more than 10,000 times, as their ``comparisons`` add up to in the report
    that ``--junit-xml`` writes.
    """
    first = dict(zip(SETTINGS, SLOW, strict=True))
    for name in QUERIES:
        settings = [setting for setting in SETTINGS if not (setting.startswith("HDFS") and name in ROCKSDB_ONLY)]
        for setting in settings:
            runs, mark = (_FEW, pytest.mark.slow) if first[setting] == name else (_MANY, pytest.mark.exhaustive)
            yield pytest.param(name, setting, runs, marks=mark, id=f"{setting}-{name}")


@pytest.mark.parametrize(("name", "setting", "runs"), [*written()])
def test_queries_equal_the_feed(
    spark: SparkSession,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    name: str,
    setting: str,
    runs: tuple[range, ...],
) -> None:
    """Every operator, every type and every setting, in two runs of the query."""
    running = Run(spark, tmp_path)
    for epochs in runs:
        running.start_with(QUERIES[name], [rows(epoch, count=4) for epoch in epochs], SETTINGS[setting])
    compared = (compare_all if runs == _FEW else compare_runs)(spark, running.checkpoint)
    record_property("comparisons", compared)
    assert compared >= runs[-1].stop
