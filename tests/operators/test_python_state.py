"""applyInPandasWithState and transformWithState: variables, TTL, timers, initial state and schema evolution."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from oracle import captured_rows, spark_rows
from pyspark.sql import SparkSession
from sampling import sampled

import streamstate as ss
from operators.processors import PANDAS_STATE, TRANSFORM, InRows, evolving, transformed
from operators.running import AVRO, CHANGELOG_OFF, Query, Run, checked
from streamstate.errors import UnknownColumnError

pytestmark = pytest.mark.slow

FEW = (range(2), range(2, 3))


@pytest.mark.parametrize("name", sampled(PANDAS_STATE, 1))
def test_apply_in_pandas_with_state(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Queries with and without a timeout equal Spark's reader."""
    checked(spark, PANDAS_STATE[name], tmp_path, starts=FEW)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled(TRANSFORM, 1))
def test_transform_with_state(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Variables with and without TTL, timers and initial state equal Spark's reader."""
    checked(spark, TRANSFORM[name], tmp_path, starts=FEW)


@pytest.mark.exhaustive
def test_transform_with_state_without_changelog(spark: SparkSession, tmp_path: Path) -> None:
    """Without a change feed, lists, maps and variables with TTL equal Spark's reader, too."""
    checked(spark, TRANSFORM["rows, processing time, TTL and timers"], tmp_path, CHANGELOG_OFF, starts=FEW)


@pytest.mark.exhaustive
def test_expired_rows_are_captured_until_spark_removes_them(spark: SparkSession, tmp_path: Path) -> None:
    """Rows whose TTL has passed are in the state until the next epoch."""
    query = transformed(InRows(timers=False), "processingTime")
    run = checked(spark, query, tmp_path, starts=(range(2),))
    for name in ("op0_short", "op0_list_ttl"):
        expired = run.history.at(0).table(name)
        assert "ttlExpirationMs" in expired.value_columns
        assert "only0" in set(expired.to_pandas()["k"])
        assert "only0" not in set(run.history.at(1).table(name).to_pandas()["k"])
    assert "only0" in set(run.history.at(1).table("op0_kept").to_pandas()["k"])


def evolved(spark: SparkSession, folder: Path, before: Query, after: Query) -> Run:
    """Run a query and restart it with another state schema; capture both runs."""
    run = Run(spark, folder)
    for query, epochs in ((before, range(2)), (after, range(2, 4))):
        run.start(query, AVRO, epochs=epochs)
        run.capture()
    return run


def test_fields_and_variables_added_at_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """They exist from the first epoch after the restart. The error for an earlier epoch names that epoch."""
    run = evolved(spark, tmp_path, evolving("n int"), evolving("n int, extra string", added=True))
    history = run.history
    assert history.captured() == [0, 1, 2, 3]
    assert history.at(0).tables() == ["op0_total"]
    assert sorted(history.live().tables()) == ["op0_added", "op0_total"]
    assert history.live().table("op0_total").value_columns == ["n", "extra"]
    before = history.at(1).table("op0_total")
    assert before.value_columns == before.schema.names[1:] == ["n"]
    with pytest.raises(UnknownColumnError, match="from epoch 2 on"):
        before.page(order_by="extra")
    store = ss.open_store(run.store)
    with pytest.raises(UnknownColumnError, match="extra"):
        store.sql("SELECT extra FROM q.op0_total VERSION AS OF 1")
    assert store.sql("SELECT extra FROM q.op0_total VERSION AS OF 2").columns == ["extra"]
    for epoch in history.captured():
        for name in history.at(epoch).tables():
            actual = captured_rows(history.at(epoch).table(name))
            expected = spark_rows(spark, run.checkpoint, name, epoch)
            assert actual == Counter({_padded(row, actual): count for row, count in expected.items()})


def _padded(row: str, like: Counter[str]) -> str:
    """A row of Spark's reader, with nulls for columns that were added in a later epoch."""
    values = json.loads(row)
    return json.dumps(values + [None] * (len(json.loads(next(iter(like)))) - len(values)))


@pytest.mark.exhaustive
def test_a_number_widened_at_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """Values from before and after the restart equal Spark's reader."""
    run = evolved(spark, tmp_path, evolving("n int"), evolving("n long"))
    assert run.check() == 4
