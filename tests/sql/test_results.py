"""A result runs when it is read, and later changes of the store do not affect it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import START, State, copy_of, write

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    NaiveTimestampError,
    StoreError,
    UnknownEpochError,
)
from streamstate.reports import Store
from streamstate.state_inspect.epoch_names import FromLive, moment, relative_epoch

STATES: list[State | None] = [{"a": 1}, {"a": 2, "b": 5}, {"b": 6, "c": 7}]


@pytest.fixture
def small(tmp_path: Path) -> Store:
    """A store with the query ``q``, with three epochs."""
    copy_of(tmp_path / "store", STATES)
    return ss.open_store(tmp_path / "store")


def test_results_are_lazy(small: Store) -> None:
    """An invalid value is an error when the rows are read, and an invalid statement immediately."""
    result = small.sql("SELECT CAST(key AS INT) FROM q")
    assert result.columns == ['CAST("key" AS INTEGER)']
    with pytest.raises(InvalidSQLError, match="Could not convert"):
        result.to_arrow()
    with pytest.raises(InvalidSQLError, match=r"No function matches|cast"):
        small.sql("SELECT key + 1.5::DATE FROM q")


@pytest.mark.parametrize("relation", ["q", "q.history", "q.changes", "q VERSION AS OF 'live'"])
def test_a_later_capture_does_not_change_a_result(small: Store, tmp_path: Path, relation: str) -> None:
    """Epochs are fixed when the result is created, even if it is read later."""
    expected = small.sql(f"FROM {relation} ORDER BY ALL").to_arrow()
    result = small.sql(f"FROM {relation} ORDER BY ALL")
    write(tmp_path / "store", [*STATES, {"z": 1}, {"a": 8}], keyframe_every=4)
    assert len(small.sql("FROM q")) == 1  # the index has moved on
    assert result.to_arrow().equals(expected)
    assert list(result.epochs.values()) == [[2]]


@pytest.mark.parametrize("relation", ["q VERSION AS OF 0", "q.history VERSION AS OF 1", "q.changes VERSION AS OF 1"])
def test_retention_does_not_change_a_result(small: Store, tmp_path: Path, relation: str) -> None:
    """A result has the same rows if its epochs are dropped before it is read."""
    expected = ss.open_store(tmp_path / "store").sql(f"FROM {relation} ORDER BY ALL").to_arrow()
    result = small.sql(f"FROM {relation} ORDER BY ALL")
    ss.open_store(tmp_path / "store")["q"].retain(last=1)
    assert small["q"].captured() == [2]
    assert len(small.sql("FROM q")) == 2
    assert result.to_arrow().equals(expected)


def test_all_relations_of_a_statement_have_the_same_newest_epoch(small: Store) -> None:
    """This includes relations at an epoch relative to the newest."""
    result = small.sql("SELECT 1 FROM q AS a, q AS b, q VERSION AS OF 'live - 2' AS c")
    assert result.epochs == {"q": [0, 2]}


def test_the_display_has_the_first_rows_and_the_number_of_rows(tmp_path: Path) -> None:
    """The first twenty rows are shown in the statement's order, with the number of hidden rows."""
    write(tmp_path, [{f"k{number:03}": number for number in range(50)}])
    result = ss.open_store(tmp_path).sql("SELECT key, value FROM q ORDER BY value DESC")
    text = repr(result)
    assert "k049" in text
    assert "k030" in text
    assert "k029" not in text
    assert "50 rows, 30 of them not shown" in text
    assert "50 rows, 30 of them not shown" in result._repr_html_()
    assert result._rows is None, "the rows were not loaded"
    assert result.rows.num_rows == 50


def test_html_is_escaped(small: Store) -> None:
    """Values are shown as text."""
    assert "<b>" not in small.sql("SELECT '<b>' AS x")._repr_html_()


def test_nondeterministic_rows_are_computed_once(small: Store) -> None:
    """Samples and random values are the same each time the result is read."""
    for sql in ("SELECT random() AS r FROM q", "SELECT * FROM q.changes USING SAMPLE 50%", "SELECT uuid() AS u"):
        result = small.sql(sql)
        repr(result)
        assert len(result) == result.to_arrow().num_rows == len(result.to_pandas())
        assert result.to_arrow().equals(result.to_arrow())


def test_the_schema_is_known_before_the_rows(small: Store) -> None:
    """The columns and types of a result equal those of its rows."""
    result = small.sql("SELECT key, value AS v, sum(value) OVER () AS s, value / 2 AS half FROM q")
    expected = pa.schema([("key", pa.string()), ("v", pa.int64()), ("s", pa.int64()), ("half", pa.float64())])
    assert result.columns == expected.names
    assert result.schema.types == expected.types
    assert result.to_arrow().schema.types == expected.types


def test_columns_with_equal_names_are_kept(small: Store) -> None:
    """Both keep their name, in all conversions."""
    result = small.sql("SELECT n.value, o.value FROM q n JOIN q VERSION AS OF 1 AS o USING (key)")
    assert result.columns == result.to_arrow().column_names == list(result.to_pandas()) == ["value", "value"]
    assert "6" in repr(result)


def test_deleted_files_are_a_store_error(small: Store, tmp_path: Path) -> None:
    """The changelog cannot be read. The state can, because the index is in memory."""
    changes, state = small.sql("FROM q.changes"), small.sql("FROM q")
    shutil.rmtree(tmp_path / "store" / "q" / "op0")
    assert len(state) == 2
    with pytest.raises(StoreError, match="could not be read"):
        changes.to_arrow()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (12, 12),
        ("12", 12),
        ("live", FromLive(0)),
        ("live - 10", FromLive(10)),
        ("Live-3", FromLive(3)),
        ("2026-01-01T00:00:00+00:00", START),
        (START, START),
    ],
)
def test_moments(value: object, expected: object) -> None:
    """An epoch is given by its number, its distance from the newest epoch, or a timestamp with a time zone."""
    assert moment(value) == expected


@pytest.mark.parametrize("value", ["noon", "live + 1", "live - x", "", None, 1.5, True, b"12", "2026-13-01T00:00Z"])
def test_an_invalid_moment_is_refused(value: object) -> None:
    """The error has an example or the format."""
    with pytest.raises(InvalidArgumentError, match=r"live - 10|ISO 8601"):
        moment(value)


def test_a_naive_timestamp_is_refused() -> None:
    """A timestamp requires a time zone."""
    with pytest.raises(NaiveTimestampError):
        moment("2026-01-01T00:00:00")


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_relative_epochs_are_computed_from_epoch_numbers(newest: int, back: int) -> None:
    """Spaces are optional, and the epoch need not be captured."""
    assert relative_epoch(f"live - {back}", newest) == relative_epoch(f"live-{back}", newest) == newest - back
    assert relative_epoch("live", newest) == newest
    assert relative_epoch(str(back), newest) == back


def test_a_relative_epoch_must_be_captured(tmp_path: Path) -> None:
    """The error for an epoch in a gap or before the first names the nearest ones."""
    write(tmp_path, [{"a": 1}, None, {"a": 3}, {"a": 4}])
    store = ss.open_store(tmp_path)
    assert store.sql("SELECT value FROM q", at="live - 1").to_pandas()["value"].tolist() == [3]
    for at in ("live - 2", "live - 9"):
        with pytest.raises(UnknownEpochError, match="nearest captured"):
            store.sql("FROM q", at=at)


def test_positional_and_named_parameters(small: Store) -> None:
    """Values, epochs and timestamps can be parameters. Quotes in values have no effect."""
    positional = small.sql(
        "SELECT ?::INT + value AS x FROM q VERSION AS OF ? WHERE key = ?", params=[10, "live - 1", "b"]
    )
    assert positional.to_arrow()["x"].to_pylist() == [15]
    named = "SELECT value FROM q TIMESTAMP AS OF $t WHERE key = $key OR key = $other"
    found = small.sql(named, params={"t": START + timedelta(minutes=1), "key": "b", "other": "' OR true --"})
    assert found.to_arrow()["value"].to_pylist() == [5]
    assert small.sql("SELECT $1 || $1 AS x", params=["?"]).to_arrow()["x"].to_pylist() == ["??"]
    assert small.sql("SELECT '?' AS q, ? AS x -- ?\n", params=[None]).to_arrow().to_pylist() == [{"q": "?", "x": None}]
    assert len(small.sql("FROM q LIMIT $n", params={"n": 1})) == 1


@pytest.mark.parametrize(
    ("sql", "params", "message"),
    [
        ("SELECT ?", None, "need values: \\$1"),
        ("SELECT ?, ?", [1], "need values: \\$2"),
        ("SELECT $a", {"b": 1}, "need values: \\$a"),
        ("SELECT $a", {"a": 1, "b": 1}, "no parameters \\$b"),
        ("SELECT 1", [1], "no parameters \\$1"),
        ("SELECT ?", "x", "expected a list"),
        ("SELECT ?", 1, "expected a list"),
        ("FROM q VERSION AS OF ?", ["soon"], "expected an integer"),
        ("FROM q VERSION AS OF ?", [True], "expected an integer"),
        ("FROM q TIMESTAMP AS OF ?", [5], "Invalid timestamp"),
        ("FROM q TIMESTAMP AS OF ?", [datetime(2026, 1, 1)], "time zone"),  # noqa: DTZ001 (the point of the test)
        ("FROM ?", ["q"], "relation|parse"),
    ],
)
def test_invalid_parameters_are_refused(small: Store, sql: str, params: object, message: str) -> None:
    """Missing, unused and invalid parameters are errors."""
    with pytest.raises((InvalidArgumentError, LookupError), match=message):
        small.sql(sql, params=params)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ('SELECT "q"."key" FROM "Q" WHERE "q"."value" > 6', [("c",)]),
        ("SELECT n.key FROM q AS n LEFT JOIN q VERSION AS OF 1 AS o USING (key) WHERE o.value IS NULL", [("c",)]),
        ("SELECT a, b FROM q PIVOT (sum(value) FOR key IN ('a', 'b'))", [(None, 6)]),
        ("SELECT b FROM q VERSION AS OF 1 AS o PIVOT (sum(value) FOR key IN ('b'))", [(5,)]),
        ("PIVOT q VERSION AS OF 0 ON key IN ('a') USING sum(value)", [(1,)]),
        ("UNPIVOT (SELECT value AS v FROM q WHERE key = 'c') ON v INTO NAME n VALUE x", [("v", 7)]),
        ("SELECT key FROM q TABLESAMPLE 100% ORDER BY key", [("b",), ("c",)]),
        ("SELECT key FROM q USING SAMPLE 100% ORDER BY key", [("b",), ("c",)]),
        ("SELECT key, w FROM q, LATERAL (SELECT value + 1 AS w) AS l ORDER BY key", [("b", 7), ("c", 8)]),
        ("SELECT k FROM q AS t(k, v) WHERE v = 7", [("c",)]),
        ("SELECT key FROM q QUALIFY rank() OVER w = 1 WINDOW w AS (ORDER BY value)", [("b",)]),
        ("SELECT key FROM q WINDOW w AS (ORDER BY value) QUALIFY rank() OVER w = 1", [("b",)]),
        ("SELECT key FROM q SEMI JOIN q VERSION AS OF 1 AS o USING (key)", [("b",)]),
        ("SELECT count(*) FROM q POSITIONAL JOIN q VERSION AS OF 0 AS o", [(2,)]),
        ("SELECT value FROM q AT (VERSION => 0)", [(1,)]),
        ("SELECT value FROM q AT (TIMESTAMP => '2026-01-01T00:00:30Z')", [(1,)]),
        ("WITH q AS (SELECT * FROM q VERSION AS OF 0) SELECT value FROM q", [(1,)]),
        ("WITH a AS (FROM q), b AS (FROM a WHERE value > 6) SELECT key FROM b", [("c",)]),
        ("SELECT (SELECT max(value) FROM q VERSION AS OF 1 AS o WHERE o.key = n.key) FROM q n ORDER BY 1",
         [(5,), (None,)]),
        ("(SELECT key FROM q ORDER BY key LIMIT 1) UNION ALL (SELECT key FROM q VERSION AS OF 0)", [("b",), ("a",)]),
        ("SELECT key FROM q UNION BY NAME SELECT key FROM q VERSION AS OF 0 ORDER BY key", [("a",), ("b",), ("c",)]),
        ("WITH RECURSIVE t(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM t WHERE i < 1) SELECT i FROM t", [(0,), (1,)]),
        ("WITH RECURSIVE q AS (SELECT * FROM q VERSION AS OF 0) SELECT q.value FROM q", [(1,)]),
        ("WITH x(a, b) AS (FROM q), y AS MATERIALIZED (SELECT max(x.b) AS m FROM x) SELECT x.a FROM x, y WHERE b = m",
         [("c",)]),
        ("WITH x AS (FROM q) SELECT (WITH x AS (SELECT 7 AS s) SELECT s FROM x) + max(x.value) FROM x", [(14,)]),
        ("SELECT count(*) FROM (q AS a JOIN q AS b ON true)", [(4,)]),
        ("SELECT DISTINCT ON (value > 0) key FROM q ORDER BY value > 0, value DESC", [("c",)]),
        ("SELECT * EXCLUDE (value) FROM q ORDER BY ALL", [("b",), ("c",)]),
        ("SELECT COLUMNS('k.*') FROM q ORDER BY 1", [("b",), ("c",)]),
    ],
)  # fmt: skip
def test_every_part_of_a_statement_is_kept(small: Store, sql: str, expected: list[tuple[object, ...]]) -> None:
    """Time travel does not change aliases, joins, pivots, samples, laterals, windows or quoted names."""
    found = small.sql(sql).to_arrow()
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected


def test_relations_without_epochs_refuse_time_travel(small: Store) -> None:
    """CTEs, table functions and frames have no epochs."""
    for sql in (
        "WITH x AS (FROM q) FROM x VERSION AS OF 1",
        "FROM range(3) VERSION AS OF 1",
        "FROM mine VERSION AS OF 1",
    ):
        with pytest.raises(InvalidSQLError, match=r"no epochs|parse"):
            small.sql(sql, frames={"mine": pa.table({"a": [1]})})


def test_at_can_be_text_or_a_datetime(small: Store) -> None:
    """Both have the same result."""
    for at in (START, "2026-01-01T00:00:00+00:00", datetime(2026, 1, 1, 1, tzinfo=UTC) - timedelta(hours=1)):
        assert small.sql("SELECT value FROM q", at=at).to_arrow()["value"].to_pylist() == [1]
