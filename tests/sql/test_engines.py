"""A statement returns the same rows in DuckDB and in Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Source, run
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from synthetic import START, State, write

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    SessionError,
    StoreError,
    UnknownColumnError,
    UnknownEpochError,
    UnknownNameError,
)
from streamstate.reports import Result, Store

TOP = """
WITH top AS (SELECT k, rank() OVER (ORDER BY max DESC) AS place FROM counts)
SELECT place, k, _valid_from FROM top JOIN counts.history AS h USING (k)
WHERE place < 4 AND _valid_to IS NULL ORDER BY place
"""
NAMES = pd.DataFrame({"key": ["a", "d"], "n": [1, 2]})
STATES: list[State | None] = [
    {"a": 1, "b": 10},
    {"a": 2, "b": 10, "c": 5},
    {"b": 11, "c": 5},
    None,
    {"b": 12, "d": 7},
    {"a": 3, "b": 12, "d": 8},
    {"a": 3, "d": 9, "e": 1},
]


@pytest.fixture(scope="module")
def gapped(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with the query ``q``, which adds, changes and removes keys; epoch 3 is a gap."""
    folder = tmp_path_factory.mktemp("gapped [1]")
    write(folder, STATES, keyframe_every=5)
    return ss.open_store(folder)


def same_in_both(store: Store, spark: SparkSession, sql: str, **arguments: Any) -> pd.DataFrame:
    """Check that both engines return the same rows, columns and epochs; return the rows."""
    in_duckdb = store.sql(sql, **arguments)
    in_spark = store.sql(sql, engine="spark", spark=spark, **arguments)
    assert in_spark.columns == in_duckdb.columns
    assert in_spark.epochs == in_duckdb.epochs
    ordered = " ORDER BY " in sql.upper()
    assert _rows(in_spark, ordered=ordered) == _rows(in_duckdb, ordered=ordered)
    assert len(in_spark) == len(in_duckdb)
    return in_duckdb.to_pandas()


def _rows(result: Result, *, ordered: bool) -> list[tuple[Any, ...]]:
    rows = list(zip(*(column.to_pylist() for column in result.to_arrow().columns), strict=True))
    return rows if ordered else sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("sql", "arguments"),
    [
        ("SELECT * FROM q", {}),
        ("SELECT * FROM q", {"at": 2}),
        ("SELECT * FROM q", {"at": "live - 1"}),
        ("SELECT * FROM q", {"at": START + timedelta(minutes=1, seconds=5)}),
        ("SELECT * FROM Q.OP0 VERSION AS OF 4 AS x WHERE x.value > 7", {}),
        ("SELECT * FROM q FOR VERSION AS OF 'live - 2' ORDER BY value DESC", {}),
        ("SELECT * FROM q TIMESTAMP AS OF '2026-01-01T00:01:30+00:00'", {}),
        ("SELECT key, n.value - o.value AS moved FROM q n JOIN q VERSION AS OF 4 o USING (key)", {}),
        ("SELECT n.key, o.value, n.value FROM q n FULL JOIN q VERSION AS OF 0 AS o ON n.key = o.key ORDER BY 1, 2", {}),
        ("WITH old AS (SELECT * FROM q VERSION AS OF 1) SELECT count(*) AS n, sum(value) AS s FROM old", {}),
        ("SELECT key FROM q EXCEPT SELECT key FROM q VERSION AS OF 4", {}),
        ("SELECT key FROM q WHERE value > (SELECT avg(value) FROM q VERSION AS OF ?) AND key <> ?",
         {"params": [0, "x"]}),
        ("SELECT $e AS at, * FROM q VERSION AS OF $e WHERE value BETWEEN $low AND $high",
         {"params": {"e": 2, "low": 1, "high": 10}}),
        ("SELECT key, value FROM q QUALIFY row_number() OVER (ORDER BY value DESC) <= 2", {}),
        ("SELECT value > 5 AS big, count(*) AS n, max(key) AS k FROM q VERSION AS OF 1 GROUP BY ALL ORDER BY big", {}),
        ("SELECT value / 2 AS half, value // 2 AS whole, value % 2 AS odd FROM q ORDER BY value", {}),
        ("SELECT * FROM q.history", {}),
        ("SELECT * FROM q.op0.history VERSION AS OF 4", {}),
        ("SELECT key, count(*) AS versions FROM q.history WHERE _valid_to IS NOT NULL GROUP BY key", {}),
        ("SELECT * FROM q.changes", {}),
        ("SELECT _change, count(*) AS n FROM q.changes VERSION AS OF 5 GROUP BY _change ORDER BY _change", {}),
        ("SELECT o.key, o.value AS a, n.value AS b FROM q.changes o JOIN q n ON n.key = o.key AND n.value > o.value",
         {}),
        ("SELECT * FROM names JOIN q USING (key)", {"frames": {"names": NAMES}}),
        ("FROM q PIVOT (sum(value) FOR key IN ('a', 'd'))", {}),
    ],
)  # fmt: skip
def test_a_statement_has_the_same_result_in_both(
    gapped: Store, spark: SparkSession, sql: str, arguments: dict[str, Any]
) -> None:
    """Relations, time travel, parameters and the user's own data work in DuckDB and in Spark."""
    assert len(same_in_both(gapped, spark, sql, **arguments))


@pytest.mark.parametrize(
    ("sql", "arguments"),
    [
        ("SELECT * FROM counts", {}),
        ("SELECT * FROM counts", {"at": "live - 2"}),
        ("SELECT * FROM counts.history", {}),
        ("SELECT * FROM counts.op0.history VERSION AS OF 1", {}),
        ("SELECT * FROM counts.changes", {}),
        ("SELECT k, sum / count_2 AS mean FROM counts VERSION AS OF ? WHERE count > 2 ORDER BY mean", {"params": [3]}),
        ("SELECT n.k, n.max - o.max AS d FROM counts n JOIN counts VERSION AS OF 2 AS o USING (k) ORDER BY k", {}),
        ("SELECT k FROM counts EXCEPT SELECT k FROM counts VERSION AS OF 'live - 1'", {}),
        (TOP, {}),
    ],
)
def test_captured_state_has_the_same_result_in_both(
    store: Store, spark: SparkSession, sql: str, arguments: dict[str, Any]
) -> None:
    """State of a real query can be read at any epoch in both engines."""
    assert len(same_in_both(store, spark, sql, **arguments))


@pytest.fixture(scope="module")
def typed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with two queries: a join with two tables, and windows with values of many types."""
    folder = tmp_path_factory.mktemp("typed")
    source = Source(spark, folder / "input", "k string, t timestamp, v long")
    for epoch in range(3):
        hours = [epoch * 2 + number % 3 for number in range(12)]
        times = [pd.Timestamp("2026-01-01", tz="UTC") + pd.Timedelta(hours=hour) for hour in hours]
        source.add({"k": [f"k{number % 4}" for number in range(12)], "t": times, "v": list(range(epoch, epoch + 12))})
    stream = source.stream().withWatermark("t", "1 hour")
    joined = stream.alias("a").join(stream.alias("b"), F.expr("a.k = b.k AND a.t = b.t AND a.v < b.v"))
    windows = stream.groupBy(F.window("t", "2 hours"), "k").agg(
        F.sum(F.col("v").cast("decimal(12,2)")).alias("total"),
        F.avg("v").alias("mean"),
        F.max("t").alias("last"),
        F.collect_set("v").alias("all"),
        F.max(F.struct("v", "t")).alias("most"),
        F.max(F.col("v") > 5).alias("any"),
        F.max(F.to_date("t")).alias("day"),
    )
    for name, frame, mode in (("pairs", joined, "append"), ("windows", windows, "update")):
        run(frame, folder / name, mode)
        ss.Checkpoint(folder / name).capture(folder / "store", name, spark=spark)
    return ss.open_store(folder / "store")


@pytest.mark.slow  # three relations of three tables, at an epoch or at each, in both engines
@pytest.mark.parametrize("epochs", [slice(-1, None), pytest.param(slice(None), marks=pytest.mark.exhaustive)], ids=str)
def test_all_tables_and_types_have_the_same_result_in_both(typed: Store, spark: SparkSession, epochs: slice) -> None:
    """The state, history and changes of every table are equal, with timestamps, decimals, lists and structs."""
    seen = set()
    for query in typed.queries():
        for table in typed[query].tables():
            for relation in (table, f"{table}.history", f"{table}.changes"):
                for epoch in typed[query].captured()[epochs]:
                    found = same_in_both(typed, spark, f"SELECT * FROM {query}.{relation}", at=epoch)
                    seen |= {str(dtype) for dtype in found.dtypes}
    assert {"Int64", "float64"} < seen
    assert any(dtype.startswith("datetime64") for dtype in seen)


@pytest.mark.slow
def test_joins_between_operators_and_queries_have_the_same_result_in_both(typed: Store, spark: SparkSession) -> None:
    """A statement can join tables of two queries at different epochs."""
    keys = typed["windows"].live().table().key_columns
    window, k = (f'"{name}"' for name in keys)
    left = typed["pairs"].live().table("op0_left")
    side = f'"{left.key_columns[0]}"'
    sql = f"""
        SELECT w.{window} AS w, l.{side} AS k, count(*) AS n
        FROM pairs.op0_left VERSION AS OF 1 AS l
        JOIN pairs.op0_right AS r ON l.{side} = r.{side}
        JOIN windows VERSION AS OF 'live - 1' AS w ON w.{k} = l.{side}
        GROUP BY ALL"""
    assert len(same_in_both(typed, spark, sql))


def test_spark_rebuilds_every_epoch(gapped: Store, spark: SparkSession) -> None:
    """Every epoch has the state that was written, before and after the gap, at and between keyframes."""
    for epoch, state in enumerate(STATES):
        if state is not None:
            found = gapped.sql("SELECT * FROM q", at=epoch, engine="spark", spark=spark).to_arrow().to_pylist()
            assert {row["key"]: row["value"] for row in found} == state


def test_a_spark_result_is_a_lazy_frame(gapped: Store, spark: SparkSession) -> None:
    """``to_spark`` returns the DataFrame, other conversions collect its rows. No view is left in the session."""
    result = gapped.sql("SELECT key, value FROM q ORDER BY key", engine="spark")
    frame = result.to_spark()
    assert frame.where("value > 2").count() == 2
    assert result.to_pandas()["key"].tolist() == result.to_polars()["key"].to_list() == ["a", "d", "e"]
    assert result.schema.names == ["key", "value"]
    assert "3 rows" in repr(result)
    assert "3 rows" in result._repr_html_()
    assert [table.name for table in spark.catalog.listTables() if "streamstate" in table.name] == []


def test_a_later_capture_does_not_change_a_spark_result(spark: SparkSession, tmp_path: Path) -> None:
    """The files of a result are fixed when it is created."""
    write(tmp_path, STATES[:2])
    store = ss.open_store(tmp_path)
    relations = ("q", "q.history", "q.changes")
    results = [store.sql(f"FROM {relation}", engine="spark", spark=spark) for relation in relations]
    expected = [_rows(store.sql(f"FROM {relation}"), ordered=False) for relation in relations]
    write(tmp_path, STATES)
    assert len(store.sql("FROM q", engine="spark", spark=spark)) == 3
    assert [_rows(result, ordered=False) for result in results] == expected


def test_a_duckdb_result_converts_to_a_spark_dataframe(gapped: Store, spark: SparkSession) -> None:
    """Columns with equal names are kept. Types that Spark lacks become the nearest type that fits their values."""
    result = gapped.sql("SELECT key, value, value, hash(key) AS h, 1::UTINYINT AS small FROM q ORDER BY key")
    frame = result.to_spark(spark)
    assert frame.columns == ["key", "value", "value", "h", "small"]
    assert [row[1] for row in frame.collect()] == [3, 9, 1]
    assert [int(row[3]) for row in frame.collect()] == result.to_arrow()["h"].to_pylist()


@pytest.mark.slow
def test_spark_dataframes_and_files_are_frames(gapped: Store, spark: SparkSession, tmp_path: Path) -> None:
    """Both engines can join them with state."""
    names = spark.createDataFrame([("a", 1), ("z", 2)], "key STRING, n INT")
    names.coalesce(1).write.parquet(str(tmp_path / "names"))
    NAMES.to_csv(tmp_path / "names.csv", index=False)
    for frame in (names, tmp_path / "names", tmp_path / "names.csv"):
        sql = "SELECT key, n + value AS x FROM q JOIN names USING (key) WHERE key = 'a'"
        assert same_in_both(gapped, spark, sql, frames={"names": frame})["x"].tolist() == [4]


def test_files_in_sql_have_the_same_result_in_both(gapped: Store, spark: SparkSession, tmp_path: Path) -> None:
    """Both engines read files if the user allows them."""
    NAMES.to_csv(tmp_path / "names.csv", index=False)
    sql = f"SELECT q.key, n FROM q JOIN '{tmp_path / 'names.csv'}' AS names ON q.key = names.key"
    assert len(same_in_both(gapped, spark, sql, allow_files=True)) == 2


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("SELECT nope FROM q", UnknownColumnError, "Column names: key, value"),
        ("SELECT n.nope FROM q AS n", UnknownColumnError, "Column names: key, value"),
        ("SELECT * FROM nope", UnknownNameError, "Relation names: q"),
        ("SELECT * FROM q VERSION AS OF 3", UnknownEpochError, "nearest captured: 2 and 4"),
        ("SELECT nosuchfunction(key) FROM q", InvalidSQLError, "NOSUCHFUNCTION|nosuchfunction"),
        ("SELECT reflect('java.lang.System', 'exit', 1)", InvalidSQLError, "reflect"),
        ("SELECT java_method('java.lang.System', 'getProperty', 'user.home')", InvalidSQLError, "java_method"),
        ("SELECT * FROM parquet.`/etc`", InvalidSQLError, "parse"),
        ('SELECT * FROM parquet."/etc"', UnknownNameError, "Relation names: q"),
        ("DROP TABLE q", InvalidSQLError, "not allowed"),
        ("SELECT * FROM q POSITIONAL JOIN q AS o", InvalidSQLError, "PARSE_SYNTAX_ERROR"),
    ],
)
def test_errors_are_the_same_with_spark(
    gapped: Store, spark: SparkSession, sql: str, error: type[Exception], message: str
) -> None:
    """Unknown names and refused statements raise the same errors as in DuckDB. Spark's parse errors are passed on."""
    with pytest.raises(error, match=message):
        gapped.sql(sql, engine="spark", spark=spark)


def test_runtime_errors_are_invalid_sql_errors(gapped: Store, spark: SparkSession) -> None:
    """A failed cast is an example."""
    result = gapped.sql("SELECT CAST(key AS INT) AS x FROM q", engine="spark", spark=spark)
    with pytest.raises(InvalidSQLError, match="CAST_INVALID_INPUT"):
        result.to_arrow()


def test_an_object_store_without_spark_settings_is_an_error(spark: SparkSession) -> None:
    """The error names Spark's settings for object stores."""
    from streamstate.state_inspect.sql.spark_errors import spark_errors

    with pytest.raises(SessionError, match=r"spark\.hadoop\.fs\.s3a"), spark_errors():
        spark.read.parquet("s3a://bucket/store/q/op0/part.parquet")


def test_deleted_files_are_a_store_error(spark: SparkSession, tmp_path: Path) -> None:
    """The error is raised if files are deleted before a result is read."""
    write(tmp_path, STATES)
    result = ss.open_store(tmp_path).sql("FROM q", engine="spark", spark=spark)
    shutil.rmtree(tmp_path / "q" / "op0")
    with pytest.raises(StoreError, match="could not be read"):
        result.to_arrow()


def test_an_unknown_engine_is_refused(gapped: Store) -> None:
    """The error names the known ones."""
    with pytest.raises(InvalidArgumentError, match="'duckdb'"):
        gapped.sql("FROM q", engine="flink")  # type: ignore[arg-type]


def test_spark_requires_a_running_session(gapped: Store) -> None:
    """The error says that no session is running."""
    code = (
        "import streamstate as ss\n"
        f"store = ss.open_store({gapped.path!r})\n"
        "try: store.sql('FROM q', engine='spark')\n"
        "except ss.StreamStateError as error: print(type(error).__name__, error)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "SessionError No Spark session is running" in process.stdout
