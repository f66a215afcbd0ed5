"""A condition can only read the columns of a row."""

from __future__ import annotations

import pytest
from synthetic import write

import streamstate as ss
from streamstate.errors import InvalidSQLError, StreamStateError
from streamstate.reports import StateTable
from streamstate.state_inspect.sql.condition_policy import predicate_sql

HOSTILE = [
    "sleep_ms(5000 + value*0) IS NULL",
    "list_sum(range(30000000)) > 0",
    "len(generate_series(1, 30000000)) > value",
    "length(repeat('x', 300000000)) > value",
    "length(lpad(key, 300000000, 'x')) > 0",
    "length(replace(replace('aaaaaaaa', 'a', key), 'a', key)) > 0",
    "length(format('{:300000000}', value)) > 0",
    "length(concat_ws(key, '', '', '')) > 0",
    "error(current_setting('secret_directory'))",
    "getenv('HOME') = key",
    "current_user = key",
    "version() = key",
    "nextval('s') > 0",
    "random() > 0.5",
    "levenshtein(key, key) > 0",
    "key.current_setting() = 'x'",
    "'home_directory'.current_setting() = key",
    "\"current_setting\"('home_directory') = key",
    "main.lower(key) = 'a'",
    "list_transform([1], x -> sleep_ms(1)) IS NULL",
    "len(list_filter([1, 2], lambda x: x > 1)) > 0",
    "[x FOR x IN [1, 2]] IS NULL",
    "list_reduce(['x'], (a, b) -> a || a) = key",
    "value = ANY([1, 2])",
    "value IN (SELECT 1)",
    "EXISTS (SELECT 1 FROM read_text('/etc/hostname'))",
    "COLUMNS(*) > 1",
    "* > 1",
    "$1 > 1",
    "#1 > 1",
    "count(*) > 1",
    "lower(DISTINCT key) = 'a'",
    "row_number() OVER () = 1",
    "value::INT[100000000] IS NULL",
    "value::nothing_known IS NULL",
    "key COLLATE de = 'a'",
    "json_extract(key, '$..*') IS NULL",
    "json_extract_string(key, key) IS NULL",
    "unnest([1, 2]) = 1",
    " || ".join(["key"] * 50) + " = 'a'",
    "value > 1), (value < 1",
    "value > 1) FROM (SELECT 1",
    "value > 1) AS x, (value",
    "1) UNION SELECT (2",
    "value = 1; SELECT 2",
    "_valid_from > 0",
    "",
]
ORDINARY = [
    "value > 6 AND key <> 'e' -- a comment",
    "value BETWEEN 5 AND 6 OR value IN (1, 2) OR NOT (value IS NULL)",
    "value IS DISTINCT FROM 3 AND coalesce(nullif(value, 2), 0) >= 0",
    "CASE WHEN value > 1 THEN key ELSE 'x' END = 'a'",
    "key LIKE 'a%' OR key ILIKE 'A_' OR key ~ '^a' OR key SIMILAR TO 'a|b' OR key LIKE 'a!%' ESCAPE '!'",
    "upper(substring(key, 1, 2)) || '-' || length(key) = 'A-1'",
    "(value % 2 = 0 AND value / 2 > 1) OR abs(-value) ** 2 > round(sqrt(value), 2)",
    "value::VARCHAR = '1' OR TRY_CAST(key AS INTEGER) = 1 OR value::DECIMAL(10, 2) > 1.5",
    "to_timestamp(value) > now() - INTERVAL '1 day' OR to_timestamp(value) < TIMESTAMP '2026-01-01 00:00:00'",
    "date_trunc('hour', to_timestamp(value)) < current_timestamp AND extract(year FROM to_timestamp(value)) = 1970",
    "current_date > DATE '2020-01-01' AND date_diff('day', DATE '2020-01-01', current_date) > 1",
    "list_contains([1, 2], value) OR value IN [1, 2] OR [value, 2][1] = 1 OR len([value]) = 1",
    "{'a': value}.a = 1 OR {'a': value}['a'] = 2 OR struct_extract({'a': value}, 'a') = 3",
    "MAP {'a': value}['a'] = 1 OR cardinality(MAP {'a': value}) = 1",
    "'{\"a\": 1}' ->> '$.a' = key",
    "greatest(value, 2) > 1 AND isfinite(value::DOUBLE) AND if(value > 1, true, false)",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> StateTable:
    """A state table with the columns ``key`` and ``value``."""
    path = tmp_path_factory.mktemp("conditions")
    write(path, [{"a": 1}, {"a": 2, "b": 5}])
    return ss.open_store(path)["q"].live().table()


@pytest.mark.parametrize("condition", HOSTILE)
def test_conditions_with_other_effects_are_refused(table: StateTable, condition: str) -> None:
    """Conditions that wait, create data or read anything but the row are refused before DuckDB runs."""
    with pytest.raises(StreamStateError):
        predicate_sql(condition, ["key", "value"], "op0")


@pytest.mark.parametrize("condition", ORDINARY)
def test_ordinary_conditions_run(table: StateTable, condition: str) -> None:
    """Comparisons, arithmetic, text, time, NULL, CASE, casts, lists, structs, maps and JSON are allowed."""
    assert 0 <= table.count(where=condition) <= 2


@pytest.mark.parametrize(
    "condition",
    [
        " OR ".join(["value > 1"] * 30_000),
        "(" * 1_900 + "value" + ")" * 1_900,
        "date(" * 300 + "value" + ")" * 300,
        "NOT " * 900 + "value > 1",
        "value" + "[1]" * 1_200,
        "value" + ".a()" * 900,
    ],
    ids=["long", "brackets", "calls", "not", "subscripts", "methods"],
)
def test_long_and_deep_conditions_are_refused_early(condition: str) -> None:
    """The length and the nesting are checked before the text is parsed."""
    with pytest.raises(InvalidSQLError, match=r"characters|nested|not allowed|does not parse"):
        predicate_sql(condition, ["key", "value"], "op0")


def test_a_condition_is_generated_from_the_checked_tree() -> None:
    """Its comments, quotes and parentheses cannot change the SQL around it."""
    assert predicate_sql("key = 'x' -- ' )", ["key"], "op0") == "(\"key\" = 'x')"
    both = predicate_sql("key = 'x') OR (key = 'y'", ["key"], "op0")
    assert both == "((\"key\" = 'x') OR (\"key\" = 'y'))"
