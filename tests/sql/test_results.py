"""A result runs when it is looked at, and stays what it was."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import START, State, write

import streamstate as ss
from streamstate.snapshots.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    NaiveTimestampError,
    StoreError,
    UnknownEpochError,
)
from streamstate.state_inspect.moments import FromLive, moment, relative_epoch

STATES: list[State | None] = [{"a": 1}, {"a": 2, "b": 5}, {"b": 6, "c": 7}]


@pytest.fixture
def small(tmp_path: Path) -> ss.Store:
    """A store with one query ``q`` of three epochs."""
    write(tmp_path / "store", STATES)
    return ss.open_store(tmp_path / "store")


def test_nothing_runs_before_it_is_looked_at(small: ss.Store) -> None:
    """What fails on a value fails when the values are read; what cannot be meant fails at once."""
    result = small.sql("SELECT CAST(key AS INT) FROM q")
    assert result.columns == ['CAST("key" AS INTEGER)']
    with pytest.raises(InvalidSQLError, match="Could not convert"):
        result.to_arrow()
    with pytest.raises(InvalidSQLError, match=r"No function matches|cast"):
        small.sql("SELECT key + 1.5::DATE FROM q")


@pytest.mark.parametrize("relation", ["q", "q.history", "q.changes", "q VERSION AS OF 'live'"])
def test_a_later_capture_does_not_change_it(small: ss.Store, tmp_path: Path, relation: str) -> None:
    """Epochs are settled when the statement is given, however late it runs."""
    expected = small.sql(f"FROM {relation} ORDER BY ALL").to_arrow()
    late = small.sql(f"FROM {relation} ORDER BY ALL")
    write(tmp_path / "store", [*STATES, {"z": 1}, {"a": 8}], keyframe_every=4)
    assert len(small.sql("FROM q")) == 1  # the index has moved on
    assert late.to_arrow().equals(expected)
    assert list(late.epochs.values()) == [[2]]


@pytest.mark.parametrize("relation", ["q VERSION AS OF 0", "q.history VERSION AS OF 1", "q.changes VERSION AS OF 1"])
def test_retention_does_not_change_it(small: ss.Store, tmp_path: Path, relation: str) -> None:
    """A result whose epochs are dropped before it runs gives the rows that it would have given."""
    expected = ss.open_store(tmp_path / "store").sql(f"FROM {relation} ORDER BY ALL").to_arrow()
    late = small.sql(f"FROM {relation} ORDER BY ALL")
    ss.keep(tmp_path / "store", "q", last=1)
    assert small["q"].captured() == [2]
    assert len(small.sql("FROM q")) == 2
    assert late.to_arrow().equals(expected)


def test_all_relations_of_a_statement_see_the_same_newest_epoch(small: ss.Store) -> None:
    """Named twice, with an epoch counted back from the newest beside it."""
    result = small.sql("SELECT 1 FROM q AS a, q AS b, q VERSION AS OF 'live - 2' AS c")
    assert result.epochs == {"q": [0, 2]}


def test_shown_it_has_its_first_rows_and_their_number(tmp_path: Path) -> None:
    """Twenty of them, in the statement's order, and what is left out."""
    write(tmp_path, [{f"k{number:03}": number for number in range(50)}])
    result = ss.open_store(tmp_path).sql("SELECT key, value FROM q ORDER BY value DESC")
    shown = repr(result)
    assert "k049" in shown
    assert "k030" in shown
    assert "k029" not in shown
    assert "50 rows, 30 of them not shown" in shown
    assert "50 rows, 30 of them not shown" in result._repr_html_()
    assert result._rows is None, "nothing was read whole"
    assert result.rows.num_rows == 50


def test_html_escapes(small: ss.Store) -> None:
    """A value cannot become part of the page."""
    assert "<b>" not in small.sql("SELECT '<b>' AS x")._repr_html_()


def test_rows_that_differ_each_time_are_drawn_once(small: ss.Store) -> None:
    """A sample, or a random number, is the same however often the result is looked at."""
    for sql in ("SELECT random() AS r FROM q", "SELECT * FROM q.changes USING SAMPLE 50%", "SELECT uuid() AS u"):
        result = small.sql(sql)
        repr(result)
        assert len(result) == result.to_arrow().num_rows == len(result.to_pandas())
        assert result.to_arrow().equals(result.to_arrow())


def test_columns_and_types_are_known_beforehand(small: ss.Store) -> None:
    """Without running it; those of the rows are the same."""
    result = small.sql("SELECT key, value AS v, sum(value) OVER () AS s, value / 2 AS half FROM q")
    expected = pa.schema([("key", pa.string()), ("v", pa.int64()), ("s", pa.int64()), ("half", pa.float64())])
    assert result.columns == expected.names
    assert result.schema.types == expected.types
    assert result.to_arrow().schema.types == expected.types


def test_two_columns_of_one_name(small: ss.Store) -> None:
    """Each keeps its name and its values, shown and converted."""
    result = small.sql("SELECT n.value, o.value FROM q n JOIN q VERSION AS OF 1 AS o USING (key)")
    assert result.columns == result.to_arrow().column_names == list(result.to_pandas()) == ["value", "value"]
    assert "6" in repr(result)


def test_a_store_that_goes_is_an_error_that_says_so(small: ss.Store, tmp_path: Path) -> None:
    """The index answers on from memory; the change log's files are gone."""
    changes, state = small.sql("FROM q.changes"), small.sql("FROM q")
    shutil.rmtree(tmp_path / "store" / "q" / "op0")
    assert len(state) == 2
    with pytest.raises(StoreError, match="could not be read"):
        changes.to_arrow()


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_moments(given: object, expected: object) -> None:
    """An epoch is named by its number, its distance from the newest, or a moment with its zone."""
    assert moment(given) == expected


@pytest.mark.parametrize("given", ["noon", "live + 1", "live - x", "", None, 1.5, True, b"12", "2026-13-01T00:00Z"])
def test_what_is_no_moment(given: object) -> None:
    """The error says what would be right."""
    with pytest.raises(InvalidArgumentError, match=r"live - 10|ISO 8601"):
        moment(given)


def test_a_naive_moment_is_refused() -> None:
    """As everywhere."""
    with pytest.raises(NaiveTimestampError):
        moment("2026-01-01T00:00:00")


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_counting_back_is_arithmetic_on_epoch_numbers(newest: int, back: int) -> None:
    """Whatever the spaces; whether the epoch was captured is another question."""
    assert relative_epoch(f"live - {back}", newest) == relative_epoch(f"live-{back}", newest) == newest - back
    assert relative_epoch("live", newest) == newest
    assert relative_epoch(str(back), newest) == back


def test_the_epoch_counted_back_has_to_be_captured(tmp_path: Path) -> None:
    """In a gap, or before the first, the error names the nearest."""
    write(tmp_path, [{"a": 1}, None, {"a": 3}, {"a": 4}])
    store = ss.open_store(tmp_path)
    assert store.sql("SELECT value FROM q", at="live - 1").to_pandas()["value"].tolist() == [3]
    for at in ("live - 2", "live - 9"):
        with pytest.raises(UnknownEpochError, match="nearest captured"):
            store.sql("FROM q", at=at)


def test_parameters_by_place_and_by_name(small: ss.Store) -> None:
    """Values, epochs and moments; quotes in them are of no consequence."""
    by_place = small.sql(
        "SELECT ?::INT + value AS x FROM q VERSION AS OF ? WHERE key = ?", params=[10, "live - 1", "b"]
    )
    assert by_place.to_arrow()["x"].to_pylist() == [15]
    named = "SELECT value FROM q TIMESTAMP AS OF $t WHERE key = $key OR key = $other"
    found = small.sql(named, params={"t": START + timedelta(minutes=1), "key": "b", "other": "' OR true --"})
    assert found.to_arrow()["value"].to_pylist() == [5]
    assert small.sql("SELECT $1 || $1 AS x", params=["?"]).to_arrow()["x"].to_pylist() == ["??"]
    assert small.sql("SELECT '?' AS q, ? AS x -- ?\n", params=[None]).to_arrow().to_pylist() == [{"q": "?", "x": None}]
    assert len(small.sql("FROM q LIMIT $n", params={"n": 1})) == 1


@pytest.mark.parametrize(
    ("sql", "params", "says"),
    [
        ("SELECT ?", None, "need values: \\$1"),
        ("SELECT ?, ?", [1], "need values: \\$2"),
        ("SELECT $a", {"b": 1}, "need values: \\$a"),
        ("SELECT $a", {"a": 1, "b": 1}, "no parameters \\$b"),
        ("SELECT 1", [1], "no parameters \\$1"),
        ("SELECT ?", "x", "give a list"),
        ("SELECT ?", 1, "give a list"),
        ("FROM q VERSION AS OF ?", ["soon"], "whole number"),
        ("FROM q VERSION AS OF ?", [True], "whole number"),
        ("FROM q TIMESTAMP AS OF ?", [5], "no timestamp"),
        ("FROM q TIMESTAMP AS OF ?", [datetime(2026, 1, 1)], "time zone"),  # noqa: DTZ001 (the point of the test)
        ("FROM ?", ["q"], "relation|parse"),
    ],
)
def test_parameters_that_do_not_fit(small: ss.Store, sql: str, params: object, says: str) -> None:
    """Missing, left over, or of the wrong kind: named."""
    with pytest.raises((InvalidArgumentError, LookupError), match=says):
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
def test_every_part_of_a_statement_is_kept(small: ss.Store, sql: str, expected: list[tuple[object, ...]]) -> None:
    """Aliases, joins, pivots, samples, laterals, windows, quoted names: time travel changes none of them."""
    found = small.sql(sql).to_arrow()
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected


def test_what_has_no_epochs_cannot_be_travelled_in(small: ss.Store) -> None:
    """Neither what WITH defines, nor a table function, nor the user's own data."""
    for sql in (
        "WITH x AS (FROM q) FROM x VERSION AS OF 1",
        "FROM range(3) VERSION AS OF 1",
        "FROM mine VERSION AS OF 1",
    ):
        with pytest.raises(InvalidSQLError, match=r"no epochs|parse"):
            small.sql(sql, frames={"mine": pa.table({"a": [1]})})


def test_a_moment_as_at(small: ss.Store) -> None:
    """Text and datetimes alike."""
    for at in (START, "2026-01-01T00:00:00+00:00", datetime(2026, 1, 1, 1, tzinfo=UTC) - timedelta(hours=1)):
        assert small.sql("SELECT value FROM q", at=at).to_arrow()["value"].to_pylist() == [1]
