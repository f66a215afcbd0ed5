"""Any condition is limited in time and memory."""

from __future__ import annotations

import duckdb
import pytest
from memory_peak import measured
from synthetic import write

import streamstate as ss
from streamstate.errors import InvalidSQLError, StreamStateError, TimeLimitError
from streamstate.reports import StateTable
from streamstate.state_inspect.sql.allowed_functions import CONDITION_FUNCTIONS
from streamstate.state_inspect.sql.condition_policy import checked_condition, steps
from streamstate.state_inspect.temporal_index.query_interrupts import time_limit

LIMIT, OVER = 0.5, 20.0
"""The time limit in the tests, and by how many seconds of processor time a condition may exceed it."""
MEGABYTES = 700.0
COLUMNS = ["key", "value"]

REFUSED = {
    "a pattern that repeats": r"regexp_full_match(key, '(((.?){10}){10}){9}')",
    "patterns that repeat": " OR ".join(["key ~ 'a{100}'"] * 4),
    "letters that repeat": r"key ~ '\pL{20}'",
    "a similar pattern": "key SIMILAR TO '(a{20}){20}'",
    "a pattern of the row": "regexp_matches(key, key)",
    "a pattern that is made": "key ~ ('a' || '{900}')",
    "a long list": f"len([{', '.join(['key'] * 300)}]) > 0",
    "lists of lists": f"len([[{', '.join(['key'] * 150)}], [{', '.join(['key'] * 150)}]]) > 0",
    "a wide struct": "{" + ", ".join(f"'a{at}': key" for at in range(300)) + "}.a1 = 'x'",
    "a large map": "cardinality(MAP {" + ", ".join(f"'{at}': key" for at in range(300)) + "}) = 0",
    "many splits": " OR ".join(["len(split(key, '')) > 9"] * 9),
    "formats": f"try_strptime(key, [{', '.join(['%Y'.join(chr(39) * 2)] * 300)}]) IS NULL",
}
SLOW = {
    "patterns": r"regexp_full_match(key, '((.?){10}){9}') OR regexp_full_match(key, '(((.?){5}){5}){7}')",
    "digests": " OR ".join(["sha256(" * 35 + f"left(key, {at})" + ")" * 35 + " = 'x'" for at in range(100, 112)]),
    "splits": "len(flatten([split(key, ''), split(key, ''), split(key, ''), split(key, '')])) = 1",
    "distinct letters": "len(list_distinct(split(key, ''))) = 9 AND list_sort(split(key, '')) = split(key, '')",
    "joined texts": f"length({' || '.join(['key'] * 7)}) = 1 AND md5({' || '.join(['key'] * 4)}) = 'x'",
    "a list": f"list_sort([{', '.join(['key'] * 150)}])[1] = 'x'",
}


@pytest.fixture(scope="module")
def long_rows(tmp_path_factory: pytest.TempPathFactory) -> StateTable:
    """A state of 2,048 rows, as many as DuckDB takes at once, of 5,000 characters."""
    path = tmp_path_factory.mktemp("long")
    write(path, [{f"{number:05}" + "a" * 4_995: number for number in range(2_048)}])
    return ss.open_store(path)["q"].live().table()


@pytest.mark.parametrize("name", REFUSED)
def test_conditions_that_make_too_much_are_refused(name: str) -> None:
    """The error says how much there is, and how much is allowed."""
    with pytest.raises(InvalidSQLError, match=r"at most \d+ are allowed|needs a constant pattern"):
        checked_condition(REFUSED[name], COLUMNS, "op0")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "splits" else [pytest.mark.slow]) for name in SLOW]
)
def test_a_slow_condition_ends_soon_after_its_limit(long_rows: StateTable, name: str) -> None:
    """Also within the rows that DuckDB takes at once, and in little memory."""
    with measured() as cost:
        try:
            with time_limit(LIMIT, "The condition"):
                long_rows.count(where=SLOW[name])
                long_rows.page(where=SLOW[name])
        except TimeLimitError:
            pass
    assert cost.seconds < LIMIT * 2 + OVER
    assert cost.megabytes < MEGABYTES


@pytest.mark.parametrize("condition", ["len(split(key, 'a')) > 4990", "md5(concat(key, md5(key))) < '8' OR value < 9"])
def test_in_parts_a_condition_has_the_same_rows(long_rows: StateTable, condition: str) -> None:
    """Counted, on each page, and with text that a column contains."""
    assert checked_condition(condition, COLUMNS, "op0").parts(10_000_000_000) == 200
    contains = {"key": "7A"}
    rows = long_rows.to_arrow()  # noqa: F841 (DuckDB reads it by its name)
    with duckdb.connect() as database:
        wanted = database.sql(f"SELECT key FROM rows WHERE {condition} ORDER BY key").fetchall()
        containing = [key for (key,) in wanted if "7a" in key]
    assert long_rows.count(where=condition) == len(wanted)
    assert long_rows.page(3, 5, where=condition)["key"].tolist() == [key for (key,) in wanted[3:8]]
    assert long_rows.count(where=condition, contains=contains) == len(containing)


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("abc", 3),
        ("^a*b+c?$", 5),
        ("a{10}", 10),
        ("(a{10}b){10}", 110),
        ("(a|b{3}){2,4}", 16),
        ("[a-z{9}]{5}", 5),
        (r"[]\]a]{3}", 3),
        ("[[:alpha:]{]{3}", 3),
        (r"\{3}", 3),
        (r"\d{4}-\d{2}", 7),
        (r"\p{Greek}{3}", 60),
        ("a{3}{3}", 9),
        (")a{2}(b", 4),
        ("(((a{9}){9}){9}){9}", 6561),
    ],
)
def test_steps_of_a_pattern(pattern: str, size: int) -> None:
    """Its characters and classes, as often as they are repeated."""
    assert steps(pattern) == size


@pytest.fixture(scope="module")
def few_long_rows(tmp_path_factory: pytest.TempPathFactory) -> StateTable:
    """A state of 100 rows of 20,000 characters."""
    path = tmp_path_factory.mktemp("few")
    write(path, [{f"{number:05}" + "ab c" * 5_000: 2**62 - number for number in range(100)}])
    return ss.open_store(path)["q"].live().table()


def calls() -> list[str]:
    """A call of each function that a condition may call, for each combination of types, with large arguments."""
    values = {
        "VARCHAR": "key",
        "BIGINT": "value",
        "INTEGER": "1000000000",
        "DOUBLE": "1e300",
        "DATE": "DATE '2024-01-01'",
        "TIMESTAMP": "TIMESTAMP '2024-01-01'",
        "TIMESTAMP WITH TIME ZONE": "now()",
        "INTERVAL": "INTERVAL '1000000 hours'",
        "BLOB": "key::BLOB",
        "BOOLEAN": "value > 1",
        "VARCHAR[]": "split(key, '')",
        "T[]": "split(key, '')",
        "ANY[]": "split(key, '')",
        "T": "key",
        "ANY": "key",
        "MAP(K, V)": "MAP {'a': key}",
        "STRUCT": "{'a': key}",
    }
    with duckdb.connect() as database:
        known = database.execute(
            "SELECT DISTINCT function_name, parameter_types FROM duckdb_functions() WHERE function_type = 'scalar'"
        ).fetchall()
    found = []
    for name, kinds in sorted(known, key=str):
        if name in CONDITION_FUNCTIONS and name[0].isalpha() and all(kind in values for kind in kinds):
            arguments = [values[kind] for kind in kinds]
            if name.startswith("regexp"):
                arguments[1:2] = ["'(a|b| |c){250}'"]
            found.append(f"{name}({', '.join(arguments)}) IS NULL")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_every_function_with_large_arguments(few_long_rows: StateTable, depth: int) -> None:
    """Each call ends within the limit, in bounded memory; so do calls in calls."""
    conditions = calls()
    assert len(conditions) > 150
    for condition in conditions:
        inner = condition.removesuffix(" IS NULL")
        tried = (
            [condition] if depth == 1 else [f"{outer}(({inner})::VARCHAR) IS NULL" for outer in ("md5", "len", "upper")]
        )
        for text in tried:
            with measured() as cost:
                try:
                    with time_limit(5, "The condition"):
                        few_long_rows.count(where=text)
                except StreamStateError:
                    pass
            assert cost.seconds < 5 + OVER, text
            assert cost.megabytes < MEGABYTES, text
