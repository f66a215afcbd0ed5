"""``%shared`` lists, declares, sets and shows variables; ``%%stream --shared`` binds a query to them."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pytest
from conftest import Source, letters
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidNameError,
    InvalidSQLError,
    QueryError,
    UnknownVariableError,
    VariableConflictError,
)

STORE = Path("streamstate-data/store")


@pytest.fixture(scope="module")
def store_with_limit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the variable ``limit``."""
    folder = tmp_path_factory.mktemp("limited") / "store"
    ss.shared(folder, "limit", "double", init=60.0)
    return folder


@pytest.fixture
def limited(bare_shell: Shell, store_with_limit: Path) -> Shell:
    """A shell whose store has the variable ``limit``."""
    shutil.copytree(store_with_limit, STORE)
    return bare_shell


def test_a_line_declares_a_variable(bare_shell: Shell) -> None:
    """With --type; the line says what was declared, and -o keeps the variable."""
    assert bare_shell.run("%shared limit --type double --init 60 -o limit") is None
    assert bare_shell.printed.splitlines()[-1] == "limit is declared: double, 60.0."
    assert bare_shell.names["limit"].get() == 60.0
    made = ss.shared(STORE, "limit").declaration
    assert (made.type.text, made.merge, made.access, made.consistency) == ("double", "last", "read-mostly", "epoch")
    bare_shell.run(
        "%shared alerts --type list<string> --merge append(100) --access write-mostly --consistency bounded(3)"
    )
    made = ss.shared(STORE, "alerts").declaration
    assert (made.merge, made.access, made.consistency) == ("append(100)", "write-mostly", "bounded(3)")


def test_without_a_name_all_are_listed(limited: Shell) -> None:
    """With their values; before there are any, the table says how to declare one."""
    limited.run("%shared limit 45")
    limited.run("%shared seen --type counter")
    table = limited.run("%shared")
    assert [(row["name"], row["type"], row["value"], row["version"]) for row in table] == [
        ("limit", "double", "45.0", 1),
        ("seen", "bigint", "0", 0),
    ]
    assert "Shared variables" in table._repr_html_()
    empty = limited.run("%shared --store other")
    assert "There are no shared variables yet. Declare one: %shared limit --type double --init 60" in repr(empty)


def test_a_value_sets_it(limited: Shell) -> None:
    """The line says the version, and from when on it holds. The name alone returns the value."""
    assert limited.run("%shared limit 45") is None
    assert limited.printed.splitlines()[-1] == "limit is 45.0 from the next epoch that begins (version 1)."
    assert limited.run("%shared limit") == 45.0
    assert limited.run("x = 30\n%shared limit {x}") is None
    assert ss.shared(STORE, "limit").get() == 30.0


@pytest.mark.parametrize(
    ("type_", "written", "value"),
    [
        ("string", "UA", "UA"),
        ("string", "45", "45"),
        ("string", "'two words'", "two words"),
        ("string", "'\"quoted\"'", "quoted"),
        ("string", "null", None),
        ("boolean", "true", True),
        ("bigint", "45", 45),
        ("double", "-1500.5", -1500.5),
        ("date", "2024-01-31", dt.date(2024, 1, 31)),
        ("timestamp", "2024-01-31T12:00:00+01:00", dt.datetime(2024, 1, 31, 11, tzinfo=dt.UTC)),
        ("list<bigint>", "'[1, 2]'", [1, 2]),
        ("set<string>", '\'["a", "b"]\'', frozenset("ab")),
        ("map<string,double>", "'{\"HA\": 3}'", {"HA": 3.0}),
        ("struct<n:bigint,s:string>", '\'{"n": 3, "s": "x"}\'', {"n": 3, "s": "x"}),
    ],
)
def test_values_are_json_or_text(bare_shell: Shell, type_: str, written: str, value: object) -> None:
    """A value that is no JSON is a string, and a value that is set as text is that text."""
    bare_shell.run(f"%shared x --type {type_} --init {written}")
    assert bare_shell.run("%shared x") == value
    bare_shell.run(f"%shared x {written}")
    assert bare_shell.run("%shared x") == value
    assert ss.shared(STORE, "x").version == 1


def test_the_history_is_a_table(limited: Shell) -> None:
    """-o keeps it, as a pandas frame."""
    limited.run("%shared limit 45")
    shown = limited.run("%shared limit --history -o versions")
    assert shown[["version", "value", "kind"]].values.tolist() == [[0, 60.0, "init"], [1, 45.0, "set"]]
    assert limited.names["versions"] is shown


def test_sql_reads_the_versions(limited: Shell) -> None:
    """As state, with time travel."""
    limited.run("%shared limit 45")
    limited.run("%shared limit --history")
    rows = limited.run("%%statesql\nSELECT a.value AS before, b.value AS after\nFROM shared.limit VERSION AS OF 0 a,\n"
                       "shared.limit b")  # fmt: skip
    assert rows.to_numpy().tolist() == [[60.0, 45.0]]


@pytest.mark.parametrize(
    ("line", "error", "expected"),
    [
        ("%shared limt", UnknownVariableError, "limit"),
        ("%shared limt 45", UnknownVariableError, "limit"),
        ("%shared ../x --type double", InvalidNameError, "1 to 63 letters"),
        ("%shared limit sixty", InvalidArgumentError, "limit is a double"),
        ("%shared limit --merge sum", InvalidArgumentError, "--merge declares a variable: it needs --type"),
        ("%shared limit --type float --init 60", VariableConflictError, "type: 'double' there, 'float' here"),
        ("%shared x --type doubel", InvalidArgumentError, "Expected a type such as double"),
        ("%shared x --type double --merge mean", InvalidArgumentError, "Merges: last, sum"),
        ("%shared x --type double --access rw", InvalidArgumentError, "read-mostly, write-mostly"),
        ("%shared x --type double --consistency soon", InvalidArgumentError, "Expected epoch"),
        ("%shared limit --slider 0", InvalidArgumentError, "--slider"),
        ("%shared limit --slider 0 x", InvalidArgumentError, "expected a number, not 'x'"),
        ("%shared limit 1 2", InvalidArgumentError, "2"),
        ("%shared --histry", InvalidArgumentError, "--history"),
    ],
)
def test_mistakes_are_explained(limited: Shell, line: str, error: type[Exception], expected: str) -> None:
    """In a few lines that name what would be right; nothing is declared or set."""
    message = limited.fails(line, error)
    assert expected in message
    assert len(message.splitlines()) <= 4
    assert ss.open_store(STORE).variables() == ["limit"] if (STORE / "_queries").exists() else True
    assert ss.shared(STORE, "limit").version == 0


def test_another_notebooks_value_is_not_replaced(limited: Shell) -> None:
    """A variable that is kept was read at a version; a line on its own reads it anew."""
    limited.run("%shared limit --type double --init 60 -o limit")
    ss.shared(STORE, "limit").set(10)
    assert "Nothing was set" in limited.fails("limit.set(45)", VariableConflictError)
    limited.run("%shared limit 45")
    assert ss.shared(STORE, "limit").get() == 45.0


def test_help_has_examples(limited: Shell) -> None:
    """So do ? and --help."""
    limited.run("%shared --help")
    for part in ("%shared limit --type double --init 60", "--consistency", "--history", "VALUE"):
        assert part in limited.printed


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%sha|", ["%shared"]),
        ("%shared li|", ["limit"]),
        ("%shared limit --hi|", ["--history"]),
        ("%shared limit --co|", ["--consistency"]),
        ("%shared x --merge s|", ["sum"]),
        ("%shared x --type dou|", ["double"]),
        ("%shared x --access |", ["read-mostly", "write-mostly"]),
        ("%shared x --consistency b|", ["bounded(10)"]),
        ("%%stream q --sha|\nframe", ["--shared"]),
        ("%%stream q --shared li|\nframe", ["limit"]),
        ("%%statesql\nFROM shared.li|", ["shared.limit", "shared.limit.history", "shared.limit.changes"]),
    ],
)
def test_words_are_completed(limited: Shell, cell: str, expected: list[str]) -> None:
    """Names, options and their values."""
    found = limited.completions(cell)
    assert [word for word in found if word in expected] == expected
    assert len(found) <= len(expected) + 1


@pytest.fixture
def letters_in(source: Source, shell: Shell) -> Source:
    """A source with two epochs of input, in the notebook as ``stream`` and as the view ``letters``."""
    for epoch in range(2):
        source.add(letters(epoch))
    shell.names.update(stream=source.stream(), F=F)
    shell.run('stream.createOrReplaceTempView("letters")')
    shell.run("%shared limit --type double --init 20 -o limit")
    return source


def test_a_cell_is_bound_to_variables(letters_in: Source, shell: Shell) -> None:
    """Its functions read the version of the epoch, which the store records; the next run has the next version."""
    shell.run("%shared seen --type counter --access write-mostly -o seen")
    cell = (
        "@F.udf('boolean')\ndef above(v):\n    seen.add(1)\n    return v >= limit.get()\n"
        "stream.where(above('v')).groupBy('k').count()"
    )
    handle = shell.run(f"%%stream above --shared limit,seen --trigger available-now\n{cell}")
    handle.wait(timeout=300)
    handle.stop()
    history = ss.open_store(handle.store)["above"]
    assert set(history.bindings()[["variable", "version"]].itertuples(index=False, name=None)) == {("limit", 0)}
    rows = [row for epoch in range(2) for row in letters(epoch)["v"]]
    assert history.live().table().to_pandas()["count"].sum() == sum(v >= 20 for v in rows)
    assert shell.run("%shared seen") == len(rows)


@pytest.mark.slow
def test_sql_uses_a_variable_as_a_value(letters_in: Source, shell: Shell) -> None:
    """``shared('limit')`` is the value of the epoch, wherever an expression may stand."""
    sql = (
        "SELECT k, count(*) AS n, max(v - shared('limit')) AS over FROM letters\n"
        "WHERE v >= shared('limit') OR k = 'shared(''limit'')' GROUP BY k"
    )
    handle = shell.run(f"%%stream above --sql --shared limit --trigger available-now\n{sql}")
    handle.wait(timeout=300)
    handle.stop()
    found = ss.open_store(handle.store)["above"].live().table().to_pandas()
    rows = [row for epoch in range(2) for row in letters(epoch)["v"] if row >= 20]
    assert found["count"].sum() == len(rows)
    assert found["max"].max() == max(rows) - 20


@pytest.mark.parametrize(
    ("line", "body", "error", "expected"),
    [
        ("--shared limt", "stream.groupBy('k').count()", UnknownVariableError, "limit"),
        ("--shared limit,limt", "stream.groupBy('k').count()", UnknownVariableError, "limt"),
        ("--sql --shared limit", "SELECT k, max(shared('limt')) FROM letters GROUP BY k", InvalidSQLError,
         "shared('limt') is not bound to this query, whose variables are: limit"),
        ("--sql", "SELECT k, max(shared('limit')) FROM letters GROUP BY k", (InvalidSQLError, QueryError), "shared"),
        ("--sql --shared limit", "SELECT k, max(shared(limit, 1)) FROM letters GROUP BY k", InvalidSQLError, "shared("),
    ],
)  # fmt: skip
def test_unknown_variables_start_nothing(
    letters_in: Source,
    shell: Shell,
    line: str,
    body: str,
    error: type[Exception],
    expected: str,
) -> None:
    """Neither in --shared nor in SQL."""
    assert expected in shell.fails(f"%%stream q {line}\n{body}", error)
    assert not shell.notebook.running
