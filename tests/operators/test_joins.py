"""Stream-stream joins of every type and state format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from oracle import captured_rows, join_side
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sampling import sampled

from operators.queries import ALL_JOINS, JOINS, in_format
from operators.running import HDFS, Run, checked

FORMATS = (2, 3, 4)


@pytest.mark.exhaustive  # ten tables at each epoch
@pytest.mark.parametrize("version", FORMATS)
def test_all_joins(spark: SparkSession, tmp_path: Path, version: int) -> None:
    """Inner, left, right and full outer and semi joins equal Spark's reader in every state format."""
    checked(spark, ALL_JOINS, tmp_path, in_format(version), starts=(range(1), range(1, 3)))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("version", sampled(FORMATS, 1))
def test_a_self_join(spark: SparkSession, tmp_path: Path, version: int) -> None:
    """Without key columns, the rows of each side equal those of the reader's ``joinSide`` option."""
    run = checked(spark, JOINS["self"], tmp_path, in_format(version), starts=(range(2), range(2, 3)))
    live = run.history.live()
    for name in ("op0_left", "op0_right"):
        table = live.table(name)
        inputs = Counter(text.split(", ", len(table.key_columns))[-1] for text in captured_rows(table).elements())
        rows = join_side(spark, run.checkpoint, name, live.epoch)
        assert Counter(text.rsplit(", ", 1)[0] + "]" for text in inputs.elements()) == Counter(
            text.removeprefix("[") for text in rows.elements()
        )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_join_in_hdfs_state(spark: SparkSession, tmp_path: Path) -> None:
    """The HDFS provider supports state format 2 only."""
    checked(spark, JOINS["full_outer"], tmp_path, HDFS, in_format(2))


def test_spark_rejects_outer_joins_of_format_1(spark: SparkSession, tmp_path: Path) -> None:
    """Capture does not need to support them."""
    with pytest.raises(PySparkException, match="state format version 1"):
        Run(spark, tmp_path).start(JOINS["left_outer"], in_format(1), epochs=range(1))
