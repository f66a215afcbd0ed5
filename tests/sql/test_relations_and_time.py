"""SQL over state: relations, time travel, and read-only access."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from synthetic import START, State, write

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    NaiveTimestampError,
    UnknownColumnError,
    UnknownEpochError,
    UnknownNameError,
)
from streamstate.reports import Store

STATES: list[State | None] = [{"a": 1}, {"a": 2, "b": 5}, {"b": 6, "c": 7}]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with the query ``q``, with three epochs."""
    folder = tmp_path_factory.mktemp("small")
    write(folder, STATES)
    return ss.open_store(folder)


def rows(store: Store, sql: str, at: int | datetime | None = None) -> list[tuple[object, ...]]:
    """The rows of a statement."""
    found = store.sql(sql, at=at).to_arrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM q ORDER BY key", [("b", 6), ("c", 7)]),
        ("SELECT key FROM q.op0 ORDER BY key", [("b",), ("c",)]),
        ("SELECT * FROM Q.OP0 VERSION AS OF 0", [("a", 1)]),
        ("SELECT * FROM q FOR VERSION AS OF 1 ORDER BY key", [("a", 2), ("b", 5)]),
        ("SELECT * FROM q TIMESTAMP AS OF '2026-01-01T00:00:30+00:00'", [("a", 1)]),
        ("SELECT * FROM q TIMESTAMP AS OF '2026-01-01T02:01:30+02:00' ORDER BY key", [("a", 2), ("b", 5)]),
        ("SELECT new.value - old.value FROM q AS new JOIN q VERSION AS OF 1 AS old USING (key)", [(1,)]),
        (
            "SELECT n.value, o.value FROM q n LEFT JOIN q VERSION AS OF 1 o ON n.key = o.key ORDER BY 1",
            [(6, 5), (7, None)],
        ),
        ("WITH x AS (SELECT * FROM q VERSION AS OF 0) SELECT count(*) FROM x", [(1,)]),
        ("WITH q AS (SELECT 1 AS one) SELECT one FROM q", [(1,)]),
        ("SELECT (SELECT max(value) FROM q VERSION AS OF 1) - (SELECT max(value) FROM q)", [(-2,)]),
        ("SELECT key FROM q EXCEPT SELECT key FROM q VERSION AS OF 1", [("c",)]),
        ("FROM q SELECT value WHERE key = 'c'", [(7,)]),
        ("SELECT e, (SELECT count(*) FROM q) FROM range(2) AS r(e)", [(0, 2), (1, 2)]),
        ("SELECT 1 << 2", [(4,)]),
    ],
)
def test_statements(small: Store, sql: str, expected: list[tuple[object, ...]]) -> None:
    """Queries are relations, and each can have its own epoch."""
    assert rows(small, sql) == expected


def test_at_is_the_default_epoch(small: Store) -> None:
    """``at`` is an epoch or a time, and applies to relations without an epoch in the SQL."""
    assert rows(small, "SELECT * FROM q", at=0) == [("a", 1)]
    assert rows(small, "SELECT * FROM q", at=START + timedelta(seconds=1)) == [("a", 1)]
    assert rows(small, "SELECT count(*) FROM q VERSION AS OF 2", at=0) == [(2,)]


def test_columns_with_equal_names_are_kept(small: Store) -> None:
    """Both columns of a join keep their values."""
    frame = small.sql("SELECT n.value, o.value FROM q n JOIN q VERSION AS OF 1 o USING (key)").to_pandas()
    assert frame.to_numpy().tolist() == [[6, 5]]


def test_sums_of_integers_are_integers(small: Store) -> None:
    """DuckDB's 128-bit sums become 64-bit integers if they fit."""
    assert small.sql("SELECT sum(value) AS s FROM q").to_arrow().schema.field("s").type == pa.int64()
    assert rows(small, "SELECT sum(value) FROM q") == [(13,)]


def test_results_convert_to_dataframes(small: Store) -> None:
    """A result converts to pandas and Polars, and its forms have the number of rows."""
    result = small.sql("SELECT * FROM q ORDER BY key")
    assert result.to_pandas()["value"].tolist() == result.to_polars()["value"].to_list() == [6, 7]
    assert (len(result), "2 rows" in repr(result), "2 rows" in result._repr_html_()) == (2, True, True)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE q",
        "INSERT INTO q VALUES ('z', 1)",
        "UPDATE q SET value = 0",
        "DELETE FROM q",
        "COPY q TO 'x.csv'",
        "ATTACH 'x.db'",
        "INSTALL httpfs",
        "PRAGMA version",
        "SET memory_limit = '1GB'",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM query('SELECT 1')",
        "SELECT content FROM (SELECT * FROM glob('/*'))",
        "SELECT 1; SELECT 2",
        "SELEC 1",
        "SELECT * FROM",
        "  ",
    ],
)
def test_statements_that_are_not_read_only_are_refused(small: Store, sql: str) -> None:
    """Statements that write or read files are errors, and the store can still be read."""
    with pytest.raises(InvalidSQLError):
        small.sql(sql)
    assert rows(small, "SELECT count(*) FROM q") == [(2,)]


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("SELECT * FROM nope", UnknownNameError, "Relation names: q"),
        ("SELECT * FROM '/etc/hostname'", UnknownNameError, "Relation names: q"),
        ("SELECT * FROM information_schema.tables", UnknownNameError, "Relation names: q"),
        ("SELECT * FROM q.op1", UnknownNameError, "op0"),
        ('SELECT * FROM "q/op0"', UnknownNameError, "Relation names: q"),
        ("SELECT nope FROM q", UnknownColumnError, "Column names: key, value"),
        ("SELECT * FROM q VERSION AS OF 9", UnknownEpochError, "nearest captured: 2"),
        ("SELECT * FROM q VERSION AS OF 'x'", InvalidArgumentError, "expected an integer"),
        ("SELECT * FROM q TIMESTAMP AS OF '2026-01-01'", NaiveTimestampError, "time zone"),
        ("SELECT * FROM q TIMESTAMP AS OF 'soon'", InvalidArgumentError, "ISO 8601"),
        ("SELECT * FROM q TIMESTAMP AS OF '2020-01-01T00:00:00Z'", UnknownEpochError, "first captured epoch, 0"),
    ],
)
def test_errors_name_the_valid_choices(small: Store, sql: str, error: type[Exception], message: str) -> None:
    """Unknown names list the known ones, invalid times and epochs the captured epochs or the format."""
    with pytest.raises(error, match=message):
        small.sql(sql)


def test_a_naive_datetime_is_refused(small: Store) -> None:
    """A Python datetime requires a time zone, in SQL and in ``History.at``."""
    with pytest.raises(NaiveTimestampError):
        small.sql("SELECT 1 FROM q", at=datetime(2026, 1, 1))  # noqa: DTZ001 (the point of the test)
    with pytest.raises(NaiveTimestampError):
        small["q"].at(timestamp=datetime(2026, 1, 1))  # noqa: DTZ001 (the point of the test)


def test_a_time_in_a_gap_is_an_error(tmp_path: Path) -> None:
    """The epoch at that time is unknown."""
    write(tmp_path, [{"a": 1}, None, {"a": 3}])
    history = ss.open_store(tmp_path)["q"]
    with pytest.raises(UnknownEpochError, match="there is a gap after epoch 0"):
        history.at(timestamp=START + timedelta(minutes=1))
    assert history.at(timestamp=datetime(2030, 1, 1, tzinfo=UTC)).epoch == 2
