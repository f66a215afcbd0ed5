"""Decoded changelogs equal Spark's change feed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from recorded.queries import query, recorded
from recorded.unpacked import VERSIONS, unpacked

from changelog.feeds import compare_all

Recordings = Callable[[str], Path]
USUAL = {
    ("3.4", "HDFS", "left-outer-join"),
    ("3.5", "RocksDB-with-changelog", "session-window"),
    ("4.0", "RocksDB-with-changelog", "two-operators"),
    ("4.2", "RocksDB-format-2", "aggregation"),
}


def cases() -> Iterator[object]:
    """The recorded checkpoints that have changelogs."""
    for version in VERSIONS:
        for name, provider in recorded(version):
            if provider != "RocksDB":
                marks = () if (version, provider, name) in USUAL else pytest.mark.slow
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
