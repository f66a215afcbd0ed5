"""Aggregations over hostile schemas: every type that Spark can keep in state is captured exactly."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from operators.queries import KEYS, VALUES, aggregated, grouped
from operators.running import Run, checked, with_settings
from streamstate.snapshots.errors import UnsupportedStateError
from streamstate.snapshots.operators import Shape, flatten

KEY_GROUPS = {
    "plain": [
        "several of all sorts",
        "a decimal",
        "a timestamp with a zone",
        "a timestamp without a zone",
        "a date",
        "a binary",
        "a float",
        "a char and a varchar",
    ],
    "nested": ["a struct with one name twice", "an array", "a map", "nested voids"],
    "intervals": ["a day-time interval", "a year-month interval", "nested intervals"],
    "names": ["names of ours", "a void beside others"],
    "void": ["nothing but a void"],
}
FEW = (range(2), range(2, 3))
VALUE_GROUPS = {
    "plain": ["the counts of two functions", "all plain types", "buffers of functions"],
    "nested": ["nested values", "voids", "variants", "names that SQL has to quote"],
    "mapped": ["intervals", "collated strings"],
}


def expressions(of: dict[str, list[str]], kinds: list[str]) -> list[str]:
    """The expressions of some kinds, one after the other."""
    return [one for kind in kinds for one in of[kind]]


@pytest.mark.parametrize("group", KEY_GROUPS)
def test_keys_of_every_type(spark: SparkSession, tmp_path: Path, group: str) -> None:
    """Keys are told apart as Spark tells them apart, whatever their types and names."""
    checked(spark, grouped(*expressions(KEYS, KEY_GROUPS[group])), tmp_path, starts=FEW)


@pytest.mark.parametrize("group", VALUE_GROUPS)
def test_values_of_every_type(spark: SparkSession, tmp_path: Path, group: str) -> None:
    """Values come out as Spark's reader gives them, in the documented types."""
    checked(spark, aggregated(*expressions(VALUES, VALUE_GROUPS[group])), tmp_path, starts=FEW)


def test_timestamps_keep_their_kind(spark: SparkSession, tmp_path: Path) -> None:
    """A timestamp with a zone stays one in UTC; one without stays without."""
    run = checked(spark, grouped("t", "cast(t AS timestamp_ntz) AS local"), tmp_path, starts=(range(2),))
    schema = run.history.live().table().schema
    assert schema.field("t").type == pa.timestamp("us", tz="UTC")
    assert schema.field("local").type == pa.timestamp("us")


def test_a_key_of_a_collation_that_folds_is_refused_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark keeps no key under which two texts are equal, so capture never meets one."""
    with pytest.raises(PySparkException, match="BINARY_INEQUALITY"):
        Run(spark, tmp_path).start(grouped("k COLLATE UTF8_LCASE AS c"), epochs=range(1))


def test_a_type_that_no_table_can_keep_is_named(spark: SparkSession) -> None:
    """The error names the type and what to do."""
    value = T.StructType([T.StructField("point", T.GeometryType(4326))])
    key = T.StructType([T.StructField("k", T.StringType())])
    schema = T.StructType([T.StructField("key", key), T.StructField("value", value)])
    with pytest.raises(UnsupportedStateError, match=r"geometry.*\n.*Cast it"):
        flatten(schema, Shape.KEYED)


def test_a_session_of_another_zone_captures_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """The zone that the query or the session prints times in changes nothing."""
    settings = {"spark.sql.session.timeZone": "America/New_York"}
    run = checked(spark, grouped("t", "cast(t AS timestamp_ntz) AS local"), tmp_path, settings, starts=(range(2),))
    other = with_settings(spark, {"spark.sql.session.timeZone": "Asia/Kolkata"})
    again = Run(other, tmp_path / "again")
    again.checkpoint = run.checkpoint
    again.capture()
    assert again.history.live().table().to_arrow() == run.history.live().table().to_arrow()
