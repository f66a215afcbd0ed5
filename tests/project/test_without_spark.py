"""Tests that do not ask for Spark have none."""

from __future__ import annotations

import pytest
from no_spark import without_spark
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.snapshots.spark.session import running_session


def test_a_test_that_starts_spark_unasked_fails() -> None:
    """The message says what to ask for."""
    assert running_session() is None
    with pytest.raises(pytest.fail.Exception, match="add the fixture `spark`"):
        ss.session()


def test_a_running_session_is_hidden(spark: SparkSession) -> None:
    """It is not restarted or reused, and comes back afterwards."""
    with without_spark():
        assert running_session() is None
        with pytest.raises(pytest.fail.Exception, match="add the fixture `spark`"):
            SparkSession.builder.getOrCreate()
    assert running_session() is spark
    assert spark.range(2).count() == 2
