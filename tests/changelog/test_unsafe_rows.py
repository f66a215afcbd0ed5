"""Rows of Spark's state are decoded to exactly the columns that capture stores."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operators.queries import KEYS, VALUES
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelog.random_columns import LEAVES, columns
from changelog.spark_rows import PAD, Encoded, assert_decoded, cells, encoded, laid_out
from streamstate.snapshots.checkpoint.decoding.arrow_types import arrow_type, check_supported
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.unsafe_rows import decode_rows

EXAMPLES = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> DataFrame:
    """The columns that the queries of other tests read, with nulls and an empty string."""
    times = [dt.datetime(2024, 1, 1, hour, tzinfo=dt.UTC) for hour in range(5)]
    rows = [(None, 0), ("", 1), ("a", 2), ("Straße", 3), ("b", None)]
    data = [(key, value, time) for (key, value), time in zip(rows, times, strict=True)]
    return spark.createDataFrame(data, "k string, v bigint, t timestamp").coalesce(1)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Encoded:
    """Rows with every type, in structs, arrays and maps."""
    return encoded(spark.range(20).coalesce(1).selectExpr(*every_type()))


def every_type() -> list[str]:
    """Each type alone, in an array, in a struct and as a map's value."""
    values = [text.format(h=f"xxhash64(id, {at})") for at, text in enumerate(LEAVES.values())]
    some = [f"if(pmod(id, 5) = {at % 5}, null, {value}) AS c{at}" for at, value in enumerate(values)]
    arrays = [f"if(pmod(id, 3) = 0, array(), array({value}, null)) AS a{at}" for at, value in enumerate(values)]
    structs = [
        f"if(id < 2, null, named_struct('x', if(id = 5, null, {value}), 'y', nullif(id, 7))) AS s{at}"
        for at, value in enumerate(values)
    ]
    maps = [f"map(id, {value}, id + 1, null) AS m{at}" for at, value in enumerate(values)]
    return [*some, *arrays, *structs, *maps]


def test_every_type_is_decoded_alone_and_nested(spark: SparkSession) -> None:
    """More than 64 fields, so that nulls take several words."""
    assert_decoded(spark.range(20).coalesce(1).selectExpr(*every_type()))


def test_keys_of_other_tests_are_decoded(source: DataFrame) -> None:
    """Among them is a struct with one name three times."""
    assert_decoded(source.selectExpr(*(key for keys in KEYS.values() for key in keys)))


def test_aggregates_of_other_tests_are_decoded(source: DataFrame) -> None:
    """All but variants, which are JSON in the store."""
    values = [value for name, values in VALUES.items() if name != "variants" for value in values]
    frame = source.groupBy("t").agg(*map(F.expr, values)).orderBy("t")
    assert_decoded(frame)


def test_times_of_day_are_decoded_as_spark_prints_them(spark: SparkSession) -> None:
    """Their fraction has as many digits as it needs."""
    other = spark.newSession()
    other.conf.set("spark.sql.timeType.enabled", "true")
    times = "'00:00:00', '23:59:59.999999', '01:02:03.1', '12:00:10', '12:00:09.000001', null"
    frame = other.sql(f"SELECT explode(array({times})) AS text").coalesce(1)
    assert_decoded(frame.selectExpr("cast(text AS time)", "cast(text AS time(3))", "array(cast(text AS time(0)))"))


def test_rows_are_decoded_in_any_order(rows: Encoded) -> None:
    """Also rows that are asked for twice."""
    whole = rows.decoded().to_pylist()
    order = [7, 3, 3, 19, 0, 12, 1]
    assert cells(rows.decoded(order)) == cells(pa.array([whole[at] for at in order], rows.decoded().type))


def test_missing_rows_are_null_whatever_their_place(rows: Encoded) -> None:
    """So are their fields, which can stand alone."""
    missing = np.arange(len(rows.starts)) % 3 == 1
    starts, sizes = np.where(missing, -5, rows.starts), np.where(missing, 1 << 40, rows.sizes)
    found = decode_rows(rows.buffer, len(rows.buffer) - 16, starts, sizes, rows.struct, missing=missing)
    found.validate(full=True)
    expected = [None if gone else row for row, gone in zip(rows.decoded().to_pylist(), missing, strict=True)]
    assert cells(found) == cells(pa.array(expected, found.type))
    assert all(found.field(at)[1].as_py() is None for at in range(found.type.num_fields))
    none = decode_rows(PAD, 0, starts, sizes, rows.struct, missing=np.ones(len(starts), bool))
    assert none.null_count == len(starts)


def test_no_rows_have_the_types_of_some(rows: Encoded) -> None:
    """Types follow from the schema alone."""
    assert rows.decoded([]).type == rows.decoded().type == arrow_type(rows.struct)


def test_rows_without_fields_are_empty_structs() -> None:
    """Such is the key of a global aggregation."""
    found = laid_out([b"", b""], {"type": "struct", "fields": []}).decoded()
    assert found.to_pylist() == [{}, {}]


def test_a_type_that_is_not_decoded_is_named() -> None:
    """The caller decides from the schema, before it reads."""
    variant = {"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True}
    for kind, named in ((variant, "variant"), ({"type": "udt", "class": "X"}, "udt"), ("decimal(39,0)", "decimal")):
        with pytest.raises(UnsupportedChangelogError, match=rf"'price'.*{named}"):
            check_supported({"type": "struct", "fields": [{"name": "price", "type": kind}]})


def test_bytes_that_are_not_utf_8_are_kept(spark: SparkSession) -> None:
    """Spark makes a string of any bytes; so does capture."""
    found = encoded(spark.range(1).selectExpr("cast(X'ff41' AS string)")).decoded()
    assert found.field(0).buffers()[2].to_pybytes() == b"\xffA"


@pytest.mark.exhaustive
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(columns(), min_size=20, max_size=30))
def test_random_types_are_decoded(spark: SparkSession, expressions: list[str]) -> None:
    """Nested in each other, with nulls everywhere."""
    assert_decoded(_random_frame(spark, expressions))


@pytest.mark.exhaustive
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(columns(depth=4), min_size=10, max_size=30))
def test_many_random_types_are_decoded(spark: SparkSession, expressions: list[str]) -> None:
    """The same, wider and deeper."""
    assert_decoded(_random_frame(spark, expressions))


@EXAMPLES
@given(st.data())
def test_flipped_bits_never_do_more_than_change_values(rows: Encoded, data: st.DataObject) -> None:
    """Whatever stands in a row, it is decoded to something of its size, or refused."""
    buffer = rows.buffer.copy()
    words = (len(buffer) - len(PAD)) // 8 - 1
    for _ in range(data.draw(st.integers(1, 4))):
        at = 8 * data.draw(st.integers(0, words)) + int(rows.starts[0] % 8)
        change = data.draw(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 63).map(lambda bit: 1 << bit)))
        buffer[at : at + 8] ^= np.array([change], "<u8").view(np.uint8)
    buffer[-len(PAD) :] = 0
    _decoded_or_refused(Encoded(buffer, rows.starts, rows.sizes, rows.struct))


SMALL = ["long", "string", "decimal(38,2)", "decimal(5,2)", "interval", "void", "time(6)", "byte", "boolean"]
KINDS = st.recursive(
    st.sampled_from(SMALL),
    lambda kinds: st.one_of(
        st.builds(lambda kind: {"type": "array", "elementType": kind}, kinds),
        st.builds(lambda key, value: {"type": "map", "keyType": key, "valueType": value}, kinds, kinds),
        st.builds(lambda fields: _struct(*fields), st.lists(kinds, max_size=3)),
    ),
    max_leaves=6,
)
WORDS = st.one_of(
    st.integers(0, 40).map(lambda small: small.to_bytes(8, "little")),
    st.tuples(st.integers(0, 80), st.integers(0, 80)).map(lambda pair: (pair[0] << 32 | pair[1]).to_bytes(8, "little")),
    st.binary(min_size=8, max_size=8),
)


@EXAMPLES
@given(st.lists(KINDS, max_size=4), st.lists(st.lists(WORDS, max_size=20).map(b"".join), max_size=4))
def test_garbage_is_decoded_to_some_value_or_refused(kinds: list[object], rows: list[bytes]) -> None:
    """Words that look like sizes and places, and words that do not."""
    _decoded_or_refused(laid_out(rows, _struct(*kinds)))


@pytest.mark.parametrize(("start", "size"), [(-1, 16), (0, 17), (1, 16), (1 << 62, 1 << 62), (0, -8), (0, 8)])
def test_a_row_is_within_the_file_and_has_its_fields(start: int, size: int) -> None:
    """Here the file is a row of one long."""
    with pytest.raises(DamagedChangelogError):
        decode_rows(np.zeros(32, np.uint8), 16, np.array([start]), np.array([size]), _struct("long"))


def test_values_that_overlap_do_not_multiply() -> None:
    """Ten thousand elements that are each the whole row would take a thousand times the file."""
    count = 10_000
    header = 8 + (count + 63) // 64 * 8
    size = header + 8 * count
    element = (header + 8 * count) << 32 | 100_000
    array = np.zeros((size + 100_000) // 8, "<i8")
    array[0], array[header // 8 : size // 8] = count, element
    row = np.concatenate([np.array([0, 16 << 32 | array.nbytes], "<i8"), array]).tobytes()
    with pytest.raises(DamagedChangelogError, match="overlap"):
        laid_out([row], _struct({"type": "array", "elementType": "string"})).decoded()


def _decoded_or_refused(rows: Encoded) -> None:
    try:
        found = rows.decoded()
    except DamagedChangelogError:
        return
    found.validate()
    assert found.nbytes < 10_000 + 200 * len(rows.buffer)


def _struct(*kinds: object) -> dict[str, object]:
    return {"type": "struct", "fields": [{"name": "a", "type": kind} for kind in kinds]}


def _random_frame(spark: SparkSession, expressions: list[str]) -> DataFrame:
    named = [f"{expression} AS c{at}" for at, expression in enumerate(expressions)]
    return spark.range(40).coalesce(1).selectExpr(*named)
