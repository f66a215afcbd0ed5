"""Keys and values are found in the bytes that Spark's encoders put around their rows."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from changelog.spark_rows import stored
from streamstate.snapshots.checkpoint.decoding.changelog_records import DELETE, MERGE, PADDING, PUT, Records
from streamstate.snapshots.checkpoint.decoding.encodings import CHANGES, changes_of
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.state_table_format import KeyEncoding, Part, TableFormat

LONG = {"type": "struct", "fields": [{"name": "n", "type": "long"}]}
PARTS = (Part("key", of_key=True), Part("value", of_key=False))
PLAIN = TableFormat(0, "", 0, "RocksDB", LONG, LONG, PARTS)
LIST = replace(PLAIN, several=True)
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"

Change = tuple[int, bytes, bytes | None]


def row(number: int) -> bytes:
    """A row of RocksDB with one long."""
    return b"\0" + struct.pack("<qq", 0, number)


def records(changes: Sequence[Change]) -> Records:
    """Records in a buffer, with bytes between them that belong to none."""
    content, places = b"", []
    for _, key, value in changes:
        places.append((len(content) + 1, len(key), len(content) + 2 + len(key), -1 if value is None else len(value)))
        content += b"\xff" + key + b"\xff" + (value or b"")
    key_at, key_size, value_at, value_size = np.array(places, np.int64).reshape(-1, 4).T
    buffer = np.frombuffer(content + bytes(PADDING), np.uint8)
    kinds = np.array([kind for kind, _, _ in changes], np.uint8)
    return Records(kinds, key_at, key_size, value_at, value_size, buffer, 2, None, "a file")


def decoded(changes: Sequence[Change], table: TableFormat) -> list[tuple[str, Any, Any]]:
    """Return the change, the key and the value of each record."""
    found = changes_of(records(changes), table)
    values = [value and value["n"] for value in found.value.to_pylist()]
    return [
        (CHANGES[kind], key["n"], value)
        for kind, key, value in zip(found.kind, found.key.to_pylist(), values, strict=True)
    ]


def test_only_the_records_of_the_column_family_count() -> None:
    """Its number stands in front of each key, little-endian."""
    changes = [(PUT, struct.pack("<h", family) + row(key), row(key * 2)) for key, family in enumerate((1, 0, 258, 1))]
    table = replace(PLAIN, family="b", family_id=1)
    assert decoded(changes, table) == [("update", 0, 0), ("update", 3, 6)]
    assert decoded(changes, replace(table, family_id=258)) == [("update", 2, 4)]
    assert decoded(changes, replace(table, family_id=7)) == []
    with pytest.raises(UnsupportedChangelogError, match="number of the column family b is not known"):
        decoded(changes, replace(table, family_id=None))
    with pytest.raises(DamagedChangelogError, match="too short"):
        decoded([(PUT, b"\1", row(1))], table)


def test_another_row_encoding_is_not_decoded() -> None:
    """Spark numbers its encodings."""
    for changes in ([(PUT, row(1), b"\1" + row(1)[1:])], [(PUT, b"\2" + row(1)[1:], row(1))]):
        with pytest.raises(UnsupportedChangelogError, match="A row has the encoding"):
            decoded(changes, PLAIN)


def test_old_hdfs_values_may_be_four_bytes_too_long() -> None:
    """Rows in HDFS's files have no version."""
    changes = [(PUT, row(1)[1:], row(2)[1:] + bytes(4)), (DELETE, row(3)[1:], None)]
    assert decoded(changes, replace(PLAIN, provider="HDFS")) == [("update", 1, 2), ("delete", 3, None)]


Lists = st.lists(
    st.tuples(
        st.sampled_from((PUT, MERGE, DELETE)), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9)
    ),
    max_size=80,
)


def sequence(numbers: list[int], *, delimited: bool) -> bytes:
    """A list's value."""
    return (b"," * delimited).join(struct.pack("<i", len(row(number))) + row(number) for number in numbers)


@given(Lists, st.booleans())
def test_each_element_of_a_list_is_a_change(lists: list[tuple[int, list[int]]], delimited: bool) -> None:
    """A put replaces the list with its first element, and all others are appended; a deleted list has no element."""
    changes: list[Change] = []
    expected: list[tuple[str, int, int | None]] = []
    for key, (kind, numbers) in enumerate(lists):
        if kind == DELETE:
            changes.append((kind, row(key), None))
            expected.append(("delete", key, None))
            continue
        changes.append((kind, row(key), sequence(numbers, delimited=delimited)))
        first = "update" if kind == PUT else "append"
        expected += [("append" if at else first, key, number) for at, number in enumerate(numbers)]
    assert decoded(changes, replace(LIST, delimited=delimited)) == expected


@given(st.integers(1, 80), st.data())
def test_damaged_lists_are_errors(count: int, data: st.DataObject) -> None:
    """Every size is compared with what is left of the list."""
    values = [sequence([7, 8, 9], delimited=True) for _ in range(count)]
    at = data.draw(st.integers(0, count - 1))
    size = data.draw(st.integers(-(2**31), 16) | st.integers(66, 2**31 - 1))
    element = data.draw(st.integers(0, 2)) * (4 + 17 + 1)
    values[at] = values[at][:element] + struct.pack("<i", size) + values[at][element + 4 :]
    with pytest.raises((DamagedChangelogError, UnsupportedChangelogError)):
        decoded([(PUT, row(1), value) for value in values], LIST)


@pytest.mark.parametrize(
    "value", [b"", b"\1\0", sequence([1], delimited=True)[:-1], sequence([1], delimited=True) + b",x"]
)
@pytest.mark.parametrize("count", [1, 50])
def test_lists_that_end_too_early_are_errors(value: bytes, count: int) -> None:
    """An empty list is deleted, not put."""
    with pytest.raises(DamagedChangelogError, match="longer than its list"):
        decoded([(PUT, row(1), value)] * count, LIST)


NUMBERS = "n long, i int, h short, b byte, d double, f float"
EXTREMES = """
    SELECT * FROM VALUES
    (0L, 0, 0S, 0Y, 0.0D, 0.0F, 'a'), (-1L, -1, -1S, -1Y, -0.0D, -0.0F, NULL),
    (9223372036854775807L, 2147483647, 32767S, 127Y, double('NaN'), float('NaN'), ''),
    (-9223372036854775808L, -2147483648, -32768S, -128Y, double('-Infinity'), float('Infinity'), 'é'),
    (NULL, NULL, NULL, NULL, NULL, NULL, 'x'), (256L, -300, 258S, 5Y, -1.5e-310D, 1.5e-40F, 'long enough for a word')
    AS t(n, i, h, b, d, f, s)
"""


def encoded_keys(spark: SparkSession, frame: DataFrame, kind: str, *arguments: Any) -> list[bytes]:
    """A frame's rows as keys, by Spark's encoder."""
    java = getattr(spark.sparkContext._jvm, _PACKAGE)
    schema = frame._jdf.schema()
    spec = getattr(java, f"{kind}Spec")(schema, *arguments)
    encoder = getattr(java, kind)(java.UnsafeRowDataEncoder(spec, schema), schema, *arguments, False)
    return [bytes(encoder.encodeKey(line)) for line in frame._jdf.queryExecution().executedPlan().executeCollect()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["prefix", "range", "range of all", "time first", "time last"])
def test_keys_equal_those_that_spark_encodes(spark: SparkSession, kind: str) -> None:
    """Every number that a key can be ordered by, with nulls and the bits of floats."""
    frame = spark.sql(EXTREMES)
    java: Any = spark.sparkContext._jvm
    ordinals = java.PythonUtils.toSeq
    if kind == "prefix":
        encoding, prefix, keys = KeyEncoding.PREFIX, 3, encoded_keys(spark, frame, "PrefixKeyScanStateEncoder", 3)
    elif kind.startswith("range"):
        frame = frame if kind == "range" else frame.drop("s")
        encoding, prefix = KeyEncoding.RANGE, 6
        keys = encoded_keys(spark, frame, "RangeKeyScanStateEncoder", ordinals([*range(6)]))
    else:
        frame = frame.selectExpr("s", "d", "coalesce(n, -7) AS __event_time")
        where = "Prefix" if kind == "time first" else "Postfix"
        encoding, prefix = KeyEncoding.TIME_FIRST if where == "Prefix" else KeyEncoding.TIME_LAST, 0
        keys = encoded_keys(spark, frame, f"TimestampAs{where}KeyStateEncoder")
    table = replace(PLAIN, key=json.loads(frame.schema.json()), key_encoding=encoding, prefix=prefix)
    found = changes_of(records([(PUT, key, row(1)) for key in keys]), table).key
    for column, expected in zip(found.flatten(), stored(frame).columns, strict=True):
        assert bits(column) == bits(expected.combine_chunks())


def bits(column: pa.Array) -> list[Any]:
    """Values that are equal only if their bits are."""
    return [struct.pack("<d", value) if isinstance(value, float) else value for value in column.to_pylist()]
