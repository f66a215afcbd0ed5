"""Every function of DuckDB and Spark is either allowed or refused in statements; unknown functions are refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from synthetic import write

import streamstate as ss
from streamstate.errors import InvalidSQLError, StreamStateError
from streamstate.reports import Store
from streamstate.state_inspect.sql.allowed_functions import DUCKDB_FUNCTIONS, SPARK_FUNCTIONS

REFUSED_IN_SPARK = {
    "calls arbitrary Java methods": "java_method reflect try_reflect",
    "may read files named in its arguments": "from_avro schema_of_avro to_avro from_protobuf to_protobuf from_xml "
    "schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short "
    "xpath_string",
    "reveals files, settings, logs or the user": "collations current_catalog current_database current_path "
    "current_schema current_user input_file_block_length input_file_block_start input_file_name python_worker_logs "
    "session_user spark_partition_id sql_keywords user version",
    "needs a metric view": "measure",
}
REFUSED_IN_DUCKDB = {
    "reveals settings, the catalogue, the session or its statements": r"pg_(?!typeof$|size_pretty$).*"
    r"|has_\w+_privilege|inet_\w+|current_(setting|query|query_id|schemas?|database|catalog|connection_id|transaction_id|user|role)|user"
    r"|session_user|getvariable|txid_current|in_search_path|stats|get_block_size|map_(type_id_)?to_pg_oid|format_pg_type|format_type"
    r"|\w*_description|version|index_key|vector_type",
    "waits": "pg_sleep|sleep_ms",
    "has a side effect": "nextval|currval|setval|setseed|write_log",
    "runs or shows statements": r"json_(de)?serialize_\w+|parse_duckdb_log_message",
    "is internal to DuckDB": r"__\w+|json_copy_\w+|(icu_)?collate_\w+|remap_struct|\w+_byte_comparable|create_sort_key"
    r"|icu_sort_key|variant_(bytes_to_variant|comparator|normalize|to_parquet_variant)|array_to_string_comma_default"
    r"|decimal_(average|division)|can_cast_implicitly|constant_or_null",
    "reads bytes as the state of an aggregate": "combine|combine_aggr|finalize|to_aggregate_state",
}


def test_every_function_of_spark_is_allowed_or_refused(spark: SparkSession) -> None:
    """Add the functions of a new version of Spark to the allowed functions, or to the refused ones in this file."""
    refused = {name for names in REFUSED_IN_SPARK.values() for name in names.split()}
    known = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect() if re.search(r"\w", row[0])}
    assert refused & SPARK_FUNCTIONS == set()
    assert known - SPARK_FUNCTIONS - refused == set()
    assert SPARK_FUNCTIONS - known == set()
    assert refused - known == set()


def test_every_function_of_duckdb_is_allowed_or_refused() -> None:
    """Add the functions of a new version as for Spark. Operators, whose names have no letters, are allowed."""
    rows = "SELECT function_name FROM duckdb_functions() WHERE NOT contains(function_type, 'table')"
    rows += " AND function_type <> 'pragma'"
    known = {str(name) for (name,) in duckdb.connect().execute(rows).fetchall() if re.search(r"\w", name)}
    refused = {name for name in known if any(re.fullmatch(pattern, name) for pattern in REFUSED_IN_DUCKDB.values())}
    known = {name.casefold() for name in known}
    assert refused & DUCKDB_FUNCTIONS == set()
    assert known - DUCKDB_FUNCTIONS - refused - {"is distinct from", "is not distinct from"} == set()
    assert DUCKDB_FUNCTIONS - known == {"unnest", "unlist"}  # handled by DuckDB's parser


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with the query ``q``."""
    folder = tmp_path_factory.mktemp("store")
    write(folder, [{"a": 1}, {"a": 2, "b": 5}])
    return ss.open_store(folder)


@pytest.mark.parametrize("value", ["${env:STREAMSTATE_SECRET}", "${system:user.home}", "${spark.app.name}"])
@pytest.mark.parametrize("statement", ["SELECT '{}' AS x", 'SELECT 1 AS "{}"', "SELECT value AS x FROM q -- {}"])
def test_variable_substitution_is_refused(
    store: Store, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, value: str, statement: str
) -> None:
    """Before parsing, Spark replaces ``${…}`` by environment variables, Java properties and its settings."""
    monkeypatch.setenv("STREAMSTATE_SECRET", "x")
    if "--" in statement:
        assert len(store.sql(statement.format(value), engine="spark", spark=spark)) == 2  # comments do not reach Spark
        return
    with pytest.raises(InvalidSQLError, match=r"(?s)cannot contain \$\{.*params"):
        store.sql(statement.format(value), engine="spark", spark=spark)


def test_parameters_are_not_substituted(store: Store, spark: SparkSession) -> None:
    """A parameter with ``${`` is passed unchanged, and the session's own setting is kept."""
    name = next(name for name in ("HOME", "PATH") if name in os.environ)
    for setting in ("true", "false"):
        spark.conf.set("spark.sql.variable.substitute", setting)
        try:
            result = store.sql("SELECT ? AS x", params=[f"${{env:{name}}}"], engine="spark", spark=spark)
            assert result.to_arrow().to_pylist() == [{"x": f"${{env:{name}}}"}]
            assert spark.conf.get("spark.sql.variable.substitute") == setting
        finally:
            spark.conf.unset("spark.sql.variable.substitute")


@pytest.mark.parametrize(
    "value",
    [
        "input_file_name()",
        "current_user()",
        "current_user",
        "session_user",
        "user",
        "current_catalog",
        "current_database()",
        "version()",
        "try_reflect('java.lang.System', 'getProperty', 'user.home')",
        "REFLECT('java.lang.System', 'getProperty', 'user.home')",
        "system.builtin.reflect('java.lang.System', 'getProperty', 'user.home')",
        "list_transform([1], x -> java_method('java.lang.System', 'getProperty', 'user.home'))",
        "from_xml('<a/>', 'a INT', map {'rowValidationXSDPath': '/etc/passwd'})",
        "from_avro('x', 'file:///etc/passwd')",
        "xpath_string('<a/>', 'a')",
        "my_function(1)",
    ],
)
def test_spark_calls_only_allowed_functions(store: Store, spark: SparkSession, value: str) -> None:
    """Functions are checked in Spark's own parse tree. Functions that the user registered are refused."""
    spark.udf.register("my_function", lambda _: Path.home().name)
    try:
        with pytest.raises(StreamStateError):
            store.sql(f"SELECT {value} AS x FROM q", engine="spark", spark=spark).to_arrow()
    finally:
        spark.sql("DROP TEMPORARY FUNCTION my_function")


def test_a_column_can_have_the_name_of_a_refused_value(spark: SparkSession, store: Store) -> None:
    """``user`` is the column, if the relation has one."""
    frames = {"clicks": spark.createDataFrame([("ada",)], "user STRING")}
    found = store.sql("SELECT user FROM clicks WHERE user = 'ada'", engine="spark", spark=spark, frames=frames)
    assert found.to_arrow().to_pylist() == [{"user": "ada"}]


@pytest.mark.parametrize(
    "value",
    [
        "version()",
        "pg_sleep(1)",
        "finalize(''::BLOB)",
        "to_aggregate_state('sum', ['BIGINT'], ''::BLOB)",
        "a_function_of_a_later_version(key)",
    ],
)
def test_duckdb_calls_only_allowed_functions(store: Store, value: str) -> None:
    """Other functions are refused before DuckDB runs. The message suggests similar names."""
    with pytest.raises(InvalidSQLError, match="depend on their arguments alone"):
        store.sql(f"SELECT {value} FROM q")
    with pytest.raises(InvalidSQLError, match="Did you mean upper"):
        store.sql("SELECT uper(key) FROM q")
