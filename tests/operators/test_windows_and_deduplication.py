"""Windows, deduplication, limits, and queries with several stateful operators."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sampling import sampled

from operators.queries import OTHERS, WINDOWS
from operators.running import checked

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", sampled(WINDOWS, 1))
def test_windows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Tumbling, sliding and session windows equal Spark's reader. Expired windows are removed."""
    history = checked(spark, WINDOWS[name], tmp_path).history
    removed = [history.diff(a, b).counts["removed"] for a, b in pairwise(history.captured())]
    assert sum(removed) > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled(OTHERS, 1))
def test_other_operators(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Global aggregations, deduplication, limits and queries with several operators equal Spark's reader."""
    checked(spark, OTHERS[name], tmp_path, starts=(range(2), range(2, 3)))


def test_an_operator_without_a_key_has_one_row(spark: SparkSession, tmp_path: Path) -> None:
    """Its key column is ``_key`` with the value 0."""
    table = checked(spark, OTHERS["limit"], tmp_path, starts=(range(2),)).history.live().table()
    assert table.key_columns == ["_key"]
    assert table.to_arrow().to_pylist() == [{"_key": 0, "value": 22}]
    assert table.lookup(_key=0) == {"_key": 0, "value": 22}
