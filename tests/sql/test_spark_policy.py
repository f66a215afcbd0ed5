"""SQL that a mapping or an edit gives to Spark reads the state, and does nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.errors import InvalidSQLError, StreamStateError
from streamstate.state_inspect.sql.spark_policy import check_query_for_spark

SECRET = "STREAMSTATE_SECRET"
HOSTILE = [
    "INSERT OVERWRITE LOCAL DIRECTORY '{folder}/written' USING csv SELECT * FROM op0",
    "INSERT OVERWRITE DIRECTORY '{folder}/written' USING parquet SELECT * FROM op0",
    "WITH x AS (SELECT 1) INSERT INTO mine SELECT * FROM x",
    "FROM op0 INSERT OVERWRITE LOCAL DIRECTORY '{folder}/written' SELECT *",
    "CREATE TABLE written USING parquet AS SELECT * FROM op0",
    "CREATE TEMPORARY FUNCTION f AS 'java.lang.Runtime'",
    "DROP TABLE mine",
    "SET spark.app.name = taken",
    "SET",
    "ADD JAR '{folder}/x.jar'",
    "RESET",
    "CACHE TABLE c AS SELECT * FROM op0",
    "EXPLAIN SELECT * FROM op0",
    "SHOW TABLES",
    "BEGIN DROP TABLE mine; END",
    "EXECUTE IMMEDIATE 'DROP TABLE mine'",
    "SELECT * FROM op0; DROP TABLE mine",
    "SELECT value AS k, 1L AS count FROM text.`/etc/hostname`",
    "SELECT value AS k, 1L AS count FROM text.`file:///etc/hostname`",
    "SELECT * FROM csv.`{folder}`",
    "SELECT k, count FROM op0 WHERE EXISTS (SELECT * FROM text.`/etc/hostname`)",
    "WITH x AS (SELECT * FROM text.`/etc/hostname`) SELECT value AS k, 1L AS count FROM x",
    "WITH op0 AS (SELECT * FROM text.`/etc/hostname`) SELECT value AS k, 1L AS count FROM op0",
    "SELECT * FROM mine",
    "SELECT * FROM spark_catalog.default.mine",
    "SELECT * FROM (WITH mine AS (SELECT 1 AS k) SELECT * FROM mine) x, mine",
    "SELECT * FROM IDENTIFIER('mine')",
    "SELECT '${{env:STREAMSTATE_SECRET}}' AS k, count FROM op0",
    "SELECT '${{spark.app.name}}' AS k, count FROM op0",
    "SELECT '${{system:user.home}}' AS k, count FROM op0",
    "SELECT reflect('java.lang.System', 'getProperty', 'user.home') AS k, count FROM op0",
    "SELECT java_method('java.lang.System', 'getProperty', 'user.home') AS k, count FROM op0",
    "SELECT try_reflect('java.lang.System', 'getProperty', 'user.home') AS k, count FROM op0",
    "SELECT system.builtin.reflect('java.lang.System', 'nanoTime') AS k, count FROM op0",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'nanoTime') AS k, count FROM op0",
    "SELECT k, sum(count) OVER w AS count FROM op0 WINDOW w AS (PARTITION BY reflect('java.lang.System', 'nanoTime'))",
    "SELECT k, count FROM op0 ORDER BY reflect('java.lang.System', 'nanoTime')",
    "SELECT k, count FROM op0, LATERAL (SELECT reflect('java.lang.System', 'nanoTime'))",
    "SELECT k, count FROM op0 LATERAL VIEW reflect('java.lang.System', 'nanoTime') t AS z",
    "SELECT TRANSFORM (k, count) USING 'tee {folder}/written' AS (k, count) FROM op0",
    "SELECT secret_function(k) AS k, count FROM op0",
    "SELECT current_user AS k, count FROM op0",
    "SELECT current_user() AS k, count FROM op0",
    "SELECT `current_user` AS `current_user`, count FROM op0",
    "SELECT input_file_name() AS k, count FROM op0",
    "SELECT version() AS k, count FROM op0",
    "SELECT * FROM sql_keywords()",
    "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd')) AS k, count FROM op0",
    "not sql at all",
    "",
]
HOSTILE_EDITS = [
    "UPDATE op0 SET count = length(reflect('java.lang.System', 'getProperty', 'user.home'))",
    "UPDATE op0 SET count = length('${env:STREAMSTATE_SECRET}')",
    "UPDATE op0 SET count = 1 WHERE k = '${spark.app.name}'",
    "UPDATE op0 SET count = length(java_method('java.lang.System', 'getProperty', 'user.home'))",
    "UPDATE op0 SET count = length(system.builtin.reflect('java.lang.System', 'getProperty', 'user.home'))",
    "UPDATE op0 SET count = length(current_user())",
    "UPDATE op0 SET count = length(current_user)",
    "UPDATE op0 SET count = (SELECT count(*) FROM text.`/etc/hostname`)",
    "UPDATE op0 SET count = IDENTIFIER('reflect')('java.lang.System', 'nanoTime')",
    "UPDATE op0 SET count = length(secret_function(k))",
    "DELETE FROM op0 WHERE reflect('java.lang.System', 'getProperty', 'user.home') = 'x'",
    "DELETE FROM op0 WHERE k IN (SELECT value FROM text.`/etc/hostname`)",
    "INSERT INTO op0 (k, count) VALUES (reflect('java.lang.System', 'getProperty', 'user.home'), 1)",
    "INSERT INTO op0 (k, count) VALUES ('${env:STREAMSTATE_SECRET}', 1)",
]


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session with a table and a function of the user's own."""
    folder = tmp_path_factory.mktemp("mine")
    spark.sql("DROP TABLE IF EXISTS mine")
    spark.sql(f"CREATE TABLE mine USING csv LOCATION '{folder}' AS SELECT 'secret' AS k, 1L AS count")
    spark.udf.register("secret_function", lambda text: text)
    yield spark
    spark.sql("DROP TABLE mine")
    spark.sql("DROP TEMPORARY FUNCTION secret_function")


TABLES = {"op0": ["k", "count"]}


@pytest.mark.parametrize("sql", HOSTILE)
def test_other_statements_are_refused(session: SparkSession, tmp_path: Path, sql: str) -> None:
    """Before Spark analyses them, by its own parse."""
    with pytest.raises((InvalidSQLError, Py4JError, PySparkException)):
        check_query_for_spark(session, sql.format(folder=tmp_path), TABLES, "")


SOME = [HOSTILE[at] for at in (0, 3, 17, 22, 25, 27, 30, 38)]
ALL = [pytest.param(sql, marks=[] if sql in SOME[::3] else [pytest.mark.slow]) for sql in HOSTILE if sql]


@pytest.mark.parametrize("sql", ALL)
def test_a_mapping_only_reads_the_old_state(
    session: SparkSession, counted: tuple[Path, Path], tmp_path: Path, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else a statement would do is a problem of the proposal, and is not done."""
    monkeypatch.setenv(SECRET, "s3cret")
    source = session.readStream.schema("k string, v long").parquet(str(counted[0].parent / "input"))
    written = sql.format(folder=tmp_path)
    [proposal] = ss.Checkpoint(counted[0]).propose_mapping(
        lambda: source.groupBy("k").count(), mapping={"op0": written}, mode="complete"
    )
    assert proposal.problem
    assert "s3cret" not in proposal.problem
    assert not (tmp_path / "written").exists()
    assert session.catalog.tableExists("mine")
    assert session.conf.get("spark.app.name") != "taken"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, count FROM op0",
        "WITH x AS (SELECT k, sum(count) AS count FROM op0 GROUP BY k) SELECT * FROM x",
        "SELECT upper(k) AS k, CAST(max(count) + 1 AS BIGINT) AS count FROM op0 WHERE k <> 'z' GROUP BY 1",
        "SELECT k, count FROM op0 UNION ALL SELECT 'new', 0L",
        "SELECT k, any_value(n) AS count FROM (SELECT k, sum(count) OVER (PARTITION BY k) AS n FROM op0) GROUP BY k",
        "SELECT k, count FROM op0 LATERAL VIEW explode(array(1)) AS one",
    ],
)
def test_ordinary_queries_are_allowed(session: SparkSession, sql: str) -> None:
    """Over the old tables, with functions of Spark's own."""
    check_query_for_spark(session, sql, TABLES, "")


@pytest.mark.parametrize(
    "edit",
    [pytest.param(edit, marks=[pytest.mark.slow] if at % 5 else []) for at, edit in enumerate(HOSTILE_EDITS)],
)
def test_an_edit_only_uses_the_row(
    session: SparkSession, counted: tuple[Path, Path], tmp_path: Path, edit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fork is not made."""
    monkeypatch.setenv(SECRET, "s3cret")
    with pytest.raises(StreamStateError):
        ss.Checkpoint(counted[0]).fork(tmp_path / "fork", edit=edit, spark=session)
    assert not (tmp_path / "fork").exists()
