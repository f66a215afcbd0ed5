"""applyInPandasWithState and transformWithState: variables, TTL, timers, initial state, schemas that change."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import captured_rows, spark_rows
from pyspark.sql import SparkSession

from operators.processors import PANDAS_STATE, TRANSFORM, InRows, evolving, transformed
from operators.running import AVRO, CHANGELOG_OFF, Run, checked

FEW = (range(2), range(2, 3))


@pytest.mark.parametrize("name", PANDAS_STATE)
def test_apply_in_pandas_with_state(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Without a timeout, and with one in processing or event time."""
    checked(spark, PANDAS_STATE[name], tmp_path, starts=FEW)


@pytest.mark.parametrize("name", TRANSFORM)
def test_transform_with_state(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Value, list and map variables, those whose TTL has passed and those whose has not, timers, initial state."""
    checked(spark, TRANSFORM[name], tmp_path, starts=FEW)


def test_transform_with_state_without_changelog(spark: SparkSession, tmp_path: Path) -> None:
    """Whole states compared give what the change feed gives, lists and maps and TTL included."""
    checked(spark, TRANSFORM["rows, processing time, TTL and timers"], tmp_path, CHANGELOG_OFF, starts=FEW)


def test_a_ttl_that_passed_stays_until_spark_removes_it(spark: SparkSession, tmp_path: Path) -> None:
    """The state holds an expired row until the operator's next epoch; capture shows what the state holds."""
    query = transformed(InRows(timers=False), "processingTime")
    run = checked(spark, query, tmp_path, starts=(range(2),))
    for name in ("op0_short", "op0_list_ttl"):
        expired = run.history.at(0).table(name)
        assert "ttlExpirationMs" in expired.value_columns
        assert "only0" in set(expired.to_pandas()["k"])
        assert "only0" not in set(run.history.at(1).table(name).to_pandas()["k"])
    assert "only0" in set(run.history.at(1).table("op0_kept").to_pandas()["k"])


def test_a_schema_that_grew_at_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """A new field is null before, a number is as wide as its widest, a new variable begins with its first epoch."""
    run = Run(spark, tmp_path)
    run.start(evolving(later=False), AVRO, epochs=range(2))
    run.capture()
    run.start(evolving(later=True), AVRO, epochs=range(2, 4))
    run.capture()
    history = run.history
    assert history.at(0).tables() == ["op0_total"]
    assert sorted(history.live().tables()) == ["op0_added", "op0_total"]
    assert run.history.live().table("op0_total").value_columns == ["n", "extra"]
    for epoch in history.captured():
        snapshot = history.at(epoch)
        for name in snapshot.tables():
            found = captured_rows(snapshot.table(name))
            assert found == spark_rows(spark, run.checkpoint, name, epoch), f"{name} at epoch {epoch}"
