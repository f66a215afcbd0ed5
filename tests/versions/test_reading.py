"""Captured state is read: with DuckDB, with Spark, and without a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import streamstate as ss
from versions.queries import Totals, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOTALS = "SELECT k, count, max, sum FROM totals VERSION AS OF 1"


@pytest.mark.versions("tables, differences, a key's history")
def test_differences_and_histories(totals: Totals) -> None:
    """What an epoch changed is the difference of two batches."""
    before, after = totals.expected(0), totals.expected(2)
    diff = totals.history.diff(0, 2)
    assert {k for k, *_ in after} - {k for k, *_ in before} == {*diff.added["k"]}
    told = totals.history.key_history(k="k1")
    assert told["max"].tolist() == [max(v for k, _, v, _ in totals.expected(epoch) if k == "k1") for epoch in range(3)]


@pytest.mark.versions("SQL with DuckDB")
def test_sql_with_duckdb(totals: Totals) -> None:
    """Time travel."""
    assert rows_of(ss.open_store(totals.store).sql(TOTALS).to_pandas()) == totals.expected(1)


@pytest.mark.versions('SQL with `engine="spark"`')
def test_sql_with_spark(totals: Totals, spark: SparkSession) -> None:
    """The same statement, and the result as Spark's DataFrame."""
    result = ss.open_store(totals.store).sql(TOTALS, engine="spark", spark=spark)
    assert {tuple(row) for row in result.to_spark().collect()} == totals.expected(1)
