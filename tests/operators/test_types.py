"""Aggregations with keys and values of every type that Spark supports in state."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from sampling import sampled

from operators.queries import KEYS, VALUES, aggregated, grouped
from operators.running import Run, checked, with_settings
from streamstate.errors import UnsupportedStateError
from streamstate.snapshots.checkpoint.state_tables import Shape, flatten

pytestmark = pytest.mark.slow

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


def expressions(by_name: dict[str, list[str]], names: list[str]) -> list[str]:
    """The expressions with the given names."""
    return [expression for name in names for expression in by_name[name]]


@pytest.mark.parametrize("group", sampled([*KEY_GROUPS][::-1], 1))
def test_keys_of_every_type(spark: SparkSession, tmp_path: Path, group: str) -> None:
    """Keys of every type and with unusual names equal those of Spark's reader."""
    checked(spark, grouped(*expressions(KEYS, KEY_GROUPS[group])), tmp_path, starts=FEW)


@pytest.mark.parametrize("group", sampled([*VALUE_GROUPS][::-1], 1))
def test_values_of_every_type(spark: SparkSession, tmp_path: Path, group: str) -> None:
    """Values of every type and with unusual names equal those of Spark's reader, which alone reads variants."""
    by_spark = ["op0"] if "variants" in VALUE_GROUPS[group] else []
    checked(spark, aggregated(*expressions(VALUES, VALUE_GROUPS[group])), tmp_path, starts=FEW, by_spark=by_spark)


def test_timestamps_keep_their_kind(spark: SparkSession, tmp_path: Path) -> None:
    """Timestamps with a time zone are in UTC, and timestamps without a time zone have none."""
    run = checked(spark, grouped("t", "cast(t AS timestamp_ntz) AS local"), tmp_path, starts=(range(2),))
    schema = run.history.live().table().schema
    assert schema.field("t").type == pa.timestamp("us", tz="UTC")
    assert schema.field("local").type == pa.timestamp("us")


def test_spark_rejects_keys_of_case_insensitive_collations(spark: SparkSession, tmp_path: Path) -> None:
    """Capture does not need to support keys for which different texts are equal."""
    with pytest.raises(PySparkException, match="BINARY_INEQUALITY"):
        Run(spark, tmp_path).start(grouped("k COLLATE UTF8_LCASE AS c"), epochs=range(1))


def test_an_unsupported_type_is_rejected(spark: SparkSession) -> None:
    """The error names the type and suggests a cast."""
    value = T.StructType([T.StructField("point", T.GeometryType(4326))])
    key = T.StructType([T.StructField("k", T.StringType())])
    schema = T.StructType([T.StructField("key", key), T.StructField("value", value)])
    with pytest.raises(UnsupportedStateError, match=r"geometry.*\n.*cast it"):
        flatten(schema, Shape.KEYED)


def test_the_session_time_zone_does_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    """Sessions with different time zones capture the same rows."""
    settings = {"spark.sql.session.timeZone": "America/New_York"}
    run = checked(spark, grouped("t", "cast(t AS timestamp_ntz) AS local"), tmp_path, settings, starts=(range(2),))
    session = with_settings(spark, {"spark.sql.session.timeZone": "Asia/Kolkata"})
    other = Run(session, tmp_path / "other")
    other.checkpoint = run.checkpoint
    other.capture()
    assert other.history.live().table().to_arrow() == run.history.live().table().to_arrow()
