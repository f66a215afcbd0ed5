"""SQL over state can read relations only."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import write

import streamstate as ss
from streamstate.errors import InvalidArgumentError, InvalidSQLError, StreamStateError, UnknownNameError
from streamstate.reports import Store

EXAMPLES = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)

HOSTILE_RELATIONS = [
    "'/etc/hostname'",
    '"/etc/hostname"',
    "'{folder}/secret.csv'",
    "read_text('{folder}/secret.csv')",
    "read_csv('{folder}/secret.csv')",
    "read_csv_auto(['{folder}/secret.csv'])",
    "read_parquet('{folder}/*.parquet')",
    "READ_BLOB('{folder}/secret.csv')",
    "read_json('{folder}/secret.csv')",
    "sniff_csv('{folder}/secret.csv')",
    "glob('{folder}/*')",
    "parquet_metadata('{folder}/*')",
    "query('SELECT 1')",
    "query_table('q/op0')",
    "duckdb_settings()",
    "duckdb_tables()",
    "pragma_table_info('q/op0')",
    "which_secret('x', 's3')",
    "json_execute_serialized_sql('x')",
    "information_schema.tables",
    "pg_catalog.pg_class",
    "sqlite_master",
    "duckdb_columns",
    '"q/op0"',
    'main."q/op0"',
    'memory.main."q/op0"',
    '"q/op0#2"',
    "(SHOW TABLES)",
    "(DESCRIBE q)",
    "(SUMMARIZE q)",
    "seq_scan('q/op0')",
    "checkpoint()",
    "enable_logging()",
]
HOSTILE_VALUES = [
    "current_setting('home_directory')",
    "\"current_setting\"('home_directory')",
    "main.current_setting('x')",
    "'home_directory'.current_setting()",
    "getenv('HOME')",
    "getvariable('x')",
    "current_query()",
    "pg_catalog.pg_get_viewdef(1)",
    "pg_get_viewdef(1)",
    "has_table_privilege('q/op0', 'x')",
    "nextval('x')",
    "write_log('x')",
    "sleep_ms(1)",
    "txid_current()",
    "(SELECT content FROM read_text('{folder}/secret.csv'))",
    '(SELECT count(*) FROM "q/op0")',
    "_hash",
    "read_text('{folder}/secret.csv')",
    "json_serialize_sql('SELECT 1')",
    "reflect('java.lang.System', 'exit', 1)",
]
RELATION_TEMPLATES = [
    "SELECT * FROM {}",
    "FROM {} AS x",
    "FROM q, {}",
    "SELECT * FROM q JOIN {} ON true",
    "SELECT * FROM q, LATERAL {}",
    "SELECT * FROM q CROSS JOIN LATERAL (SELECT * FROM {}) AS l",
    "WITH x AS (SELECT * FROM {}) SELECT * FROM x",
    "WITH x AS MATERIALIZED (FROM {}) FROM q",
    "WITH RECURSIVE x AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM x, {} WHERE i < 2) FROM x",
    "SELECT key FROM q UNION ALL SELECT 'x' FROM {}",
    "SELECT key FROM q EXCEPT (SELECT 'x' FROM {})",
    "SELECT * FROM q WHERE EXISTS (SELECT 1 FROM {})",
    "SELECT * FROM q WHERE key IN (SELECT 'x' FROM {})",
    "SELECT (SELECT count(*) FROM {}) FROM q",
    "SELECT ARRAY(SELECT 1 FROM {})",
    "SELECT * FROM q ORDER BY (SELECT count(*) FROM {})",
    "SELECT * FROM q LIMIT (SELECT count(*) FROM {})",
    "SELECT * FROM q QUALIFY row_number() OVER (ORDER BY (SELECT count(*) FROM {})) = 1",
    "PIVOT (SELECT key, value FROM {}) ON key IN ('a') USING sum(value)",
    "SELECT * FROM {} TABLESAMPLE 10%",
    "SELECT * FROM q POSITIONAL JOIN {}",
    "SELECT * FROM q SEMI JOIN {} USING (key)",
    "SELECT * FROM (q JOIN {} ON true)",
    "SELECT [x + 1 FOR x IN (SELECT list(1) FROM {})]",
    "SELECT CASE WHEN false THEN (SELECT 1 FROM {}) END FROM q",
]
VALUE_TEMPLATES = [
    "SELECT {}",
    "SELECT {} FROM q",
    "SELECT key FROM q WHERE {} IS NOT NULL",
    "SELECT count(*) FILTER (WHERE {} IS NULL) FROM q",
    "SELECT sum(value) OVER (PARTITION BY {}) FROM q",
    "SELECT list_transform([1], x -> {}) FROM q",
    "SELECT * REPLACE ({} AS key) FROM q",
    "SELECT * FROM q ORDER BY {}",
    "SELECT max(value) FROM q GROUP BY {}",
    "SELECT max(value) FROM q GROUP BY ALL HAVING {} IS NULL",
    "SELECT * FROM q AS a JOIN q AS b ON {} IS NULL",
    "SELECT * FROM (VALUES ({})) AS t",
    "SELECT {{'a': {}}} FROM q",
    "SELECT coalesce(NULL, [{}][1]) FROM q",
    "WITH x AS (SELECT {} FROM q) FROM x",
    "SELECT * FROM unnest([{}])",
    "SELECT * FROM q, LATERAL (SELECT {}) AS l",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file that no statement may read."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "secret.csv").write_text("key,value\nsecret,1\n")
    return folder


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Store:
    """A store with the query ``q``, whose index is loaded."""
    write(folder / "store", [{"a": 1}, {"a": 2, "b": 5}])
    store = ss.open_store(folder / "store")
    assert len(store.sql("FROM q")) == 2
    return store


def refused(store: Store, sql: str, folder: Path) -> None:
    """Check that a statement raises a StreamStateError and creates no files."""
    before = sorted(folder.iterdir())
    with pytest.raises(StreamStateError):
        store.sql(sql.replace("{folder}", str(folder))).to_arrow()
    assert sorted(folder.iterdir()) == before


@EXAMPLES
@given(st.sampled_from(RELATION_TEMPLATES), st.sampled_from(HOSTILE_RELATIONS))
def test_only_relations_of_the_store_can_be_read(guarded: Store, folder: Path, template: str, hostile: str) -> None:
    """Files, system tables, table functions and tables of the index are refused at any place of a statement."""
    refused(guarded, template.replace("{}", hostile), folder)
    assert len(guarded.sql("FROM q")) == 2


@EXAMPLES
@given(st.sampled_from(VALUE_TEMPLATES), st.sampled_from(HOSTILE_VALUES))
def test_values_cannot_reveal_the_machine_or_the_database(
    guarded: Store, folder: Path, template: str, hostile: str
) -> None:
    """Settings, catalogues, sequences, logs and columns of the index are refused at any place of a statement."""
    refused(guarded, template.replace("{{", "{").replace("}}", "}").replace("{}", hostile), folder)
    assert len(guarded.sql("FROM q")) == 2


@pytest.mark.parametrize("template", [sql for sql in RELATION_TEMPLATES if "LATERAL {}" not in sql])
def test_the_statements_around_relations_are_valid(guarded: Store, template: str) -> None:
    """Each runs with a relation of the store, so it is the other relations that are refused."""
    guarded.sql(template.replace("{}", "q.history")).to_arrow()


@pytest.mark.parametrize("template", VALUE_TEMPLATES)
def test_the_statements_around_values_are_valid(guarded: Store, template: str) -> None:
    """Each runs with an allowed function, so it is the other values that are refused."""
    guarded.sql(template.replace("{{", "{").replace("}}", "}").replace("{}", "upper('x')")).to_arrow()


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT * FROM q) TO '{folder}/out.csv'",
        "COPY q FROM '{folder}/secret.csv'",
        "EXPORT DATABASE '{folder}/out'",
        "IMPORT DATABASE '{folder}'",
        "ATTACH '{folder}/out.db' AS o",
        "DETACH memory",
        "USE memory",
        "INSTALL httpfs",
        "LOAD httpfs",
        "FORCE INSTALL httpfs FROM 'http://localhost'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "PRAGMA enable_profiling",
        "CALL pragma_version()",
        "CREATE MACRO f() AS 1",
        "CREATE TEMP TABLE x AS FROM q",
        "CREATE OR REPLACE VIEW q AS SELECT 1",
        "CREATE SECRET s (TYPE s3)",
        "DROP TABLE \"q/op0\"",
        "ALTER TABLE q ADD COLUMN x INT",
        "TRUNCATE q",
        "DELETE FROM q",
        "UPDATE q SET value = 1",
        "INSERT INTO q VALUES ('x', 1)",
        "MERGE INTO q USING q AS o ON true WHEN MATCHED THEN DELETE",
        "WITH x AS (INSERT INTO q VALUES ('z', 1) RETURNING *) FROM x",
        "WITH x AS (DELETE FROM \"q/op0\" RETURNING *) FROM x",
        "SELECT * INTO x FROM q",
        "EXPLAIN ANALYZE SELECT 1",
        "EXECUTE x",
        "PREPARE x AS SELECT 1",
        "DEALLOCATE x",
        "BEGIN",
        "COMMIT",
        "CHECKPOINT",
        "VACUUM",
        "ANALYZE",
        "SHOW TABLES",
        "DESCRIBE q",
        "SUMMARIZE q",
        "SELECT 1; DROP TABLE \"q/op0\"",
        "SELECT 1 -- \n; DROP TABLE \"q/op0\"",
        "SELECT 1 /* */; ATTACH 'x'",
    ],
)  # fmt: skip
def test_other_statements_are_refused(guarded: Store, folder: Path, sql: str) -> None:
    """Only a single SELECT statement is allowed."""
    refused(guarded, sql, folder)
    assert len(guarded.sql("FROM q")) == 2


SHADOWING = [
    'WITH RECURSIVE "{}" AS (SELECT * FROM "{}") FROM "{}"',
    'WITH RECURSIVE x AS (FROM "{}"), "{}" AS (SELECT 1) FROM x',
    'WITH x AS (FROM "{}"), "{}" AS (SELECT 1) FROM x',
    'WITH RECURSIVE "{}" AS (FROM "{}" UNION ALL SELECT * FROM "{}" WHERE false) FROM "{}"',
    'WITH x AS (WITH "{}" AS (SELECT 1) SELECT 2) SELECT * FROM x, "{}"',
    'SELECT (WITH "{}" AS (SELECT 1 AS one) SELECT one FROM "{}") FROM "{}"',
    'SELECT * FROM (WITH "{}" AS (SELECT 1) FROM "{}") AS a, (FROM "{}") AS b',
]


@pytest.mark.parametrize("template", SHADOWING)
@pytest.mark.parametrize("hidden", ["q/op0", "Q/OP0", "duckdb_tables", "sqlite_master", "pragma_database_list"])
def test_a_cte_out_of_scope_does_not_allow_a_system_table(guarded: Store, template: str, hidden: str) -> None:
    """The name of a system table is refused outside the scope of a CTE with the same name."""
    with pytest.raises((InvalidSQLError, UnknownNameError)):
        guarded.sql(template.replace("{}", hidden)).to_arrow()


def test_ctes_can_have_any_name(guarded: Store) -> None:
    """In its scope, a CTE hides a system table with the same name."""
    sql = 'WITH "q/op0"(a) AS (SELECT 1), duckdb_tables AS (SELECT a + 1 AS b FROM "q/op0") SELECT "q/op0".a, b FROM'
    assert guarded.sql(f'{sql} "q/op0", duckdb_tables').to_arrow().to_pylist() == [{"a": 1, "b": 2}]


WORDS = [
    *[
        "SELECT",
        "FROM",
        "WHERE",
        "q",
        "q.op0",
        "q.history",
        "q.changes",
        "key",
        "value",
        "*",
        ",",
        "(",
        ")",
        "=",
        "+",
        "-",
        "1",
        "'a'",
        "NULL",
        "AS",
        "x",
        "JOIN",
        "ON",
        "USING",
    ],
    *[
        "LEFT",
        "UNION",
        "ALL",
        "WITH",
        "RECURSIVE",
        "VERSION",
        "OF",
        "TIMESTAMP",
        "FOR",
        "GROUP",
        "BY",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "QUALIFY",
        "OVER",
        "count",
    ],
    *[
        "PARTITION",
        "?",
        "$p",
        "LATERAL",
        "PIVOT",
        "UNPIVOT",
        "IN",
        "VALUES",
        "EXISTS",
        "NOT",
        "CASE",
        "WHEN",
        "THEN",
        "END",
        "::",
        "INT",
        "[",
        "]",
        "{",
        "}",
        ":",
        "->",
        ".",
        ";",
    ],
    *[
        "TABLESAMPLE",
        "%",
        "EXCLUDE",
        "REPLACE",
        "DISTINCT",
        "AT",
        "=>",
        "unnest",
        "range",
        "'x.csv'",
        '"q/op0"',
        "read_text",
        "INTERVAL",
        "CAST",
        "IS",
    ],
    *["COLLATE", "BETWEEN", "AND", "FILTER", "'live-1'"],
]


@EXAMPLES
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14), st.sampled_from([None, "SELECT *", "FROM q"]))
def test_any_text_runs_or_raises_a_streamstate_error(guarded: Store, words: list[str], prefix: str | None) -> None:
    """Random words raise no other error, and do not change the store."""
    with contextlib.suppress(StreamStateError):
        repr(guarded.sql(" ".join([*([prefix] if prefix else []), *words])))
    assert len(guarded.sql("FROM q")) == 2


def test_a_path_is_the_name_of_a_relation(guarded: Store, folder: Path) -> None:
    """The error lists the known relations."""
    with pytest.raises(UnknownNameError, match="Relation names: q"):
        guarded.sql(f"FROM '{folder}/secret.csv'")


def test_files_can_be_allowed(guarded: Store, folder: Path) -> None:
    """With ``allow_files``, files can be read by path or by a function, and joined with state."""
    path = folder / "secret.csv"
    for source in (
        f"'{path}'",
        f"read_csv('{path}')",
        f"read_csv('{path}', header = true)",
        f"read_csv('{folder}/s*.csv')",
    ):
        found = guarded.sql(f"SELECT s.key, q.key FROM {source} AS s JOIN q ON q.value = 2", allow_files=True)
        assert found.to_pandas().to_numpy().tolist() == [["secret", "a"]]
    found = guarded.sql("SELECT key FROM read_csv(?)", params=[str(path)], allow_files=True)
    assert found.to_pandas()["key"].tolist() == ["secret"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("FROM 'https://example.com/x.csv'", "not on this machine"),
        ("FROM read_parquet('s3://bucket/x.parquet')", "not on this machine"),
        ("FROM read_parquet(['a.parquet', 'http://localhost/x.parquet'])", "not on this machine"),
        ("FROM '{folder}/none.csv'", "cannot be read"),
        ("FROM read_csv((SELECT '{folder}/secret.csv'))", "no statements"),
        ("COPY (SELECT 1) TO '{folder}/out.csv'", "not allowed"),
        ("FROM sniff_csv('{folder}/secret.csv')", "not allowed"),
        ("FROM duckdb_settings()", "not allowed"),
        ("SELECT content FROM q, LATERAL read_text('{folder}/secret.csv')", "not allowed"),
        ("ATTACH '{folder}/x.db'", "not allowed"),
    ],
)
def test_allowing_files_allows_nothing_else(guarded: Store, folder: Path, sql: str, message: str) -> None:
    """URLs, writes, system tables and other functions are still refused."""
    before = sorted(folder.iterdir())
    with pytest.raises((InvalidSQLError, InvalidArgumentError), match=message):
        guarded.sql(sql.replace("{folder}", str(folder)), allow_files=True)
    assert sorted(folder.iterdir()) == before
