"""Invalid variables, values and stores are clear errors, and nothing is written."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Source, counts, letters, run
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from redis_process import RedisProcess
from synthetic import write

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidNameError,
    NewerStoreError,
    QueryError,
    StreamStateError,
    TransportError,
    UnknownNameError,
    UnknownQueryError,
    UnknownVariableError,
    UntrustedStoreError,
    VariableConflictError,
    VariableError,
)
from streamstate.reports import SharedVariable
from streamstate.snapshots.store.declared_variables import DeclaredVariable, declare
from streamstate.snapshots.store.layout import Layout
from streamstate.variables import declaring, version_bytes


def files(folder: Path) -> dict[str, bytes]:
    """The files below a folder, with their contents."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def limit(tmp_path: Path) -> SharedVariable:
    """A control variable in the store ``store``."""
    return ss.shared(tmp_path / "store", "limit", "double", init=60.0)


def refused(
    folder: Path, call: Callable[[], object], error: type[StreamStateError], match: str, *more: str
) -> StreamStateError:
    """Check that a call is refused with a message, and that it writes no file."""
    before = files(folder)
    with pytest.raises(error, match=match) as raised:
        call()
    for part in more:
        assert part in str(raised.value)
    assert files(folder) == before
    return raised.value


# Declarations.


@pytest.mark.parametrize(
    "name",
    ["", "../x", "a/b", "a.b", "a b", "a;DROP", "x'", "größe", "лимит", "_x", "1st", "a" * 64, "a\n", "\0", None, 7],
)
def test_a_name_that_is_no_folder_and_no_relation_is_refused(tmp_path: Path, name: Any) -> None:
    """The message shows it, and says which names there may be."""
    declaring = refused(
        tmp_path, lambda: ss.shared(tmp_path / "store", name, "double"), InvalidNameError, "1 to 63 letters, digits"
    )
    assert repr(name) in str(declaring)
    refused(tmp_path, lambda: ss.shared(tmp_path / "store", name), InvalidNameError, "starts with a letter")


@pytest.mark.parametrize(
    "given",
    [
        *("doubel", "", "double; DROP TABLE x", "array<", "struct<>", "struct<a: int, A: int>", "map<string>", "void"),
        *("interval day", "variant", "set<", "list<void>", "array<" * 600 + "int" + ">" * 600),
        *(5, object(), ["double"]),
    ],
    ids=lambda given: str(given)[:20],
)
def test_a_type_that_no_variable_has_is_refused(tmp_path: Path, given: Any) -> None:
    """The message names some that there are."""
    refused(
        tmp_path,
        lambda: ss.shared(tmp_path / "store", "x", given),
        InvalidArgumentError,
        r"Invalid type .*\nExpected a type such as double, bigint, string, struct<",
    )


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"merge": "mean"}, r"Invalid merge 'mean' of x.\nMerges: last, sum, .*union"),
        ({"merge": "append(0)", "type": "list<string>"}, "Invalid merge 'append"),
        ({"merge": 3}, "Invalid merge 3"),
        ({"merge": "sum", "type": "string"}, r"'sum' does not fit the type string.\nIt needs a type such as bigint"),
        ({"merge": "union", "type": "list<string>"}, "It needs a type such as set<string>"),
        ({"merge": "append", "type": "bigint"}, "It needs a type such as list<string>"),
        ({"merge": "average", "type": "bigint"}, "It needs a type such as double"),
        ({"merge": "max", "type": "struct<a: int>"}, "does not fit the type struct"),
        ({"access": "rw"}, "Invalid access 'rw' of x: expected read-mostly or write-mostly"),
        ({"consistency": "eventual"}, r"Invalid consistency 'eventual' of x.\nExpected epoch .*bounded\(k\).*latest"),
        ({"consistency": "bounded(0)"}, "Invalid consistency 'bounded"),
        ({"consistency": None}, "Invalid consistency None"),
        ({"init": "sixty"}, "Invalid value 'sixty' of type str: x is a double"),
        ({"init": True}, "Invalid value True of type bool: x is a double"),
        ({"transport": "ftp://host/x"}, "Expected a local folder, or a server: redis://"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_a_declaration_that_makes_no_sense_is_refused(tmp_path: Path, arguments: dict[str, Any], match: str) -> None:
    """Each part is checked before anything is written."""
    given = {"type": "double", **arguments}
    refused(tmp_path, lambda: ss.shared(tmp_path / "store", "x", **given), InvalidArgumentError, match)


def halfway(a: float, b: float) -> float:
    """The same both ways, but it depends on the order of three."""
    return (a + b) / 2


@pytest.mark.parametrize(
    ("merge", "match"),
    [
        (lambda a, b: a - b, r"not commutative: merge\(.*\) is .*, the other way round .*\n.*no particular order"),
        (halfway, r"not associative: for .*\n.*groups of any size"),
        (lambda a, b: a[0] + b, "The merge of x fails for"),
        (lambda a: a, "The merge of x fails for"),
        (lambda a, b: f"{a}{b}", "the merge of x must return a double"),
        (lambda _a, _b: None, "the merge of x must return a double"),
    ],
    ids=["minus", "halfway", "raises", "one argument", "text", "nothing"],
)
def test_a_merge_that_depends_on_the_order_is_refused(tmp_path: Path, merge: Callable[..., Any], match: str) -> None:
    """It is tried with values of the type; the message has those that show it."""
    refused(
        tmp_path,
        lambda: ss.shared(tmp_path / "store", "x", "double", merge=merge),
        InvalidArgumentError,
        match,
    )


def test_a_variable_is_declared_once(tmp_path: Path, limit: SharedVariable) -> None:
    """Another declaration is refused with the differences; the same one is the same variable."""
    store = tmp_path / "store"
    for arguments, difference in (
        ({"type": "float"}, "type: 'double' there, 'float' here"),
        ({"init": 50.0}, "init: 60.0 there, 50.0 here"),
        ({"merge": "sum"}, "merge: 'last' there, 'sum' here"),
        ({"access": "write-mostly"}, "access: 'read-mostly' there, 'write-mostly' here"),
        ({"consistency": "latest"}, "consistency: 'epoch' there, 'latest' here"),
        ({"merge": max}, "merge: 'last' there, 'custom:max' here"),
    ):
        given: dict[str, Any] = {"type": "double", "init": 60.0, **arguments}
        refused(
            tmp_path,
            partial(ss.shared, store, "limit", **given),
            VariableConflictError,
            r"limit was declared otherwise in .*store:\n",
            difference,
        )
    refused(
        tmp_path, lambda: ss.shared(store, "LIMIT", "double", init=60), VariableConflictError, "differs only in case"
    )
    assert ss.shared(store, "limit", "DOUBLE", init=60).get() == limit.get()


def test_two_functions_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge of one's own is known by its code; a process that was not given it cannot merge."""

    def larger(a: float, b: float) -> float:
        return max(a, b)

    ss.shared(tmp_path, "x", "double", merge=larger)

    def another(a: float, b: float) -> float:
        return max(b, a) + 0.0

    another.__name__ = "larger"
    with pytest.raises(VariableConflictError, match=r"digest: '.*' there, '.*' here"):
        ss.shared(tmp_path, "x", "double", merge=another)
    assert ss.shared(tmp_path, "x").set(1.0) == 1
    monkeypatch.setattr(declaring, "_functions", {})  # as in another process
    with pytest.raises(
        VariableError, match=r"merged by the function 'larger', which is not stored.\nDeclare the varia"
    ):
        ss.shared(tmp_path, "x").set(1.0)


def test_not_a_number_is_declared_twice(tmp_path: Path) -> None:
    """It is no difference to itself."""
    first = ss.shared(tmp_path, "x", "double", init=math.nan)
    assert math.isnan(ss.shared(tmp_path, "x", "double", init=math.nan).get())
    assert first.version == 0


def test_an_unknown_variable_is_refused(tmp_path: Path, limit: SharedVariable) -> None:
    """The message names those that there are."""
    store = tmp_path / "store"
    refused(tmp_path, lambda: ss.shared(store, "limt"), UnknownVariableError, "limit")
    refused(tmp_path, lambda: ss.shared(tmp_path / "new", "limit"), UnknownVariableError, "limit")
    write(store, [{"a": 1}])
    opened = ss.open_store(store)
    with pytest.raises(UnknownQueryError, match=r"shared\.limit"):
        _ = opened["shared.limt"]
    with pytest.raises(UnknownNameError, match=r"Did you mean 'shared\.limit'"):
        opened.sql("FROM shared.limt")
    assert opened.sql("SELECT value FROM shared.limit").to_pandas()["value"].tolist() == [limit.get()]


def test_a_first_value_that_is_too_large_is_not_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the variable is written."""
    monkeypatch.setattr(version_bytes, "MAX_BYTES", 10_000)
    refused(
        tmp_path,
        lambda: ss.shared(tmp_path / "store", "x", "string", init="x" * 20_000),
        InvalidArgumentError,
        r"The value of x takes 2\d,\d+ bytes; a version holds at most 10,000",
    )


# Values.


WRONG: dict[str, list[Any]] = {
    "double": ["45", "", True, [1.0], {"a": 1}, object(), b"1"],
    "bigint": [1.5, 2**63, -(2**63) - 1, "1", False, math.nan],
    "tinyint": [200, 2.0],
    "boolean": [1, "true"],
    "decimal(5, 2)": [Decimal("12345.6"), "1"],
    "string": [5, b"\xff", "\ud800", ["a"]],
    "binary": [5],
    "date": ["tomorrow"],
    "timestamp": ["now", dt.datetime(2026, 1, 1)],  # noqa: DTZ001 (its point)
    "timestamp_ntz": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
    "struct<n: bigint>": [{"m": 1}, {"n": "x"}, {"n": 1, "m": 2}, {"n": 1.5}, 5, "n"],
    "struct<a: struct<n: bigint>>": [{"a": {"m": 1}}],
    "list<struct<n: bigint>>": [[{"m": 1}], {"n": 1}],
    "list<string>": ["ab", [1], {"a": 1}],
    "list<bigint>": [["x"], [1.5]],
    "set<bigint>": [{"x"}, "12"],
    "map<string, double>": [{"a": "x"}, {None: 1.0}, {1: 1.0}, [("a", "b")], "a", [1]],
    "map<string, timestamp>": [{"a": dt.datetime(2026, 1, 1)}],  # noqa: DTZ001 (its point)
}
"""Values that are not of a type."""


@pytest.mark.parametrize("type_", WRONG)
def test_a_value_of_another_type_is_refused(tmp_path: Path, type_: str) -> None:
    """Nothing is rounded, cut, parsed or left out to make it fit."""
    variable = ss.shared(tmp_path, "x", type_)
    for value in WRONG[type_]:
        refused(tmp_path, partial(variable.set, value), InvalidArgumentError, r"Invalid value .*: x is a ")
    assert variable.version == 0


DEEP_TYPE = "struct<a: array<struct<b: map<string, array<struct<c: double, d: decimal(10, 3)>>>>>>"
RIGHT: dict[str, list[Any]] = {
    "double": [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 45, None],
    "bigint": [2**63 - 1, -(2**63), None],
    "string": ["", "x" * 100_000, "'; DROP TABLE x --", "\0\n\r\t", "𝒳ß\u202e", "null", None],
    "binary": [bytes(range(256)), b""],
    "date": [dt.date(1, 1, 1)],
    "timestamp": [
        dt.datetime(9999, 12, 31, tzinfo=dt.UTC),
        dt.datetime(1900, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5))),
    ],
    "timestamp_ntz": [dt.datetime(1900, 1, 1)],  # noqa: DTZ001 (without a zone)
    DEEP_TYPE: [{"a": [{"b": {"k": [{"c": math.inf, "d": Decimal("1.500")}], "none": None}}, None]}, None],
    "list<string>": [[], [None, ""], ["a", "a"], None],
    "set<string>": [frozenset(), {"b", "a"}],
    "map<string, double>": [{}, {"": None, "'": math.inf}, None],
}
"""Values of a type."""


def same(found: Any, expected: Any) -> bool:
    """Return whether two values are equal; NaN equals itself."""
    return bool(found == expected) or repr(found) == repr(float(expected))


@pytest.mark.parametrize("type_", RIGHT)
def test_any_value_of_the_type_comes_back(tmp_path: Path, type_: str) -> None:
    """In the notebook, for who opens the variable again, and in the store's table."""
    variable = ss.shared(tmp_path, "x", type_)
    store = None
    for given in RIGHT[type_]:
        variable.set(given)
        value = {} if given is None and type_.startswith("map") else given
        assert same(variable.get(), value)
        assert same(ss.shared(tmp_path, "x").get(), value)
        variable.record()
        store = store or ss.open_store(tmp_path)
        rows = store["shared.x"].live().table().to_arrow().to_pylist()
        if type_.startswith("map"):
            assert {row["key"]: row["value"] for row in rows} == value
        elif type_ != DEEP_TYPE:
            expected = sorted(value) if isinstance(value, (set, frozenset)) else value
            [found] = [sorted(row["value"]) if isinstance(value, (set, frozenset)) else row["value"] for row in rows]
            assert same(found, expected)


@pytest.mark.parametrize(
    ("type_", "merge", "arguments", "match"),
    [
        ("double", "average", (), "x takes 2 numbers"),
        ("double", "average", ("a",), "x takes numbers"),
        ("double", "average", (1.0, None), "x takes 2 numbers"),
        ("struct<n: bigint, mean: double, variance: double>", "moments", (1, 2), "x takes 1 numbers, not 2"),
        ("list<double>", "regression", (1.0,), r"call add\(\[x1, x2, …\], y\)"),
        ("list<double>", "regression", ("ab", 1.0), "x takes numbers"),
        ("double", "hll", (1, 2), r"call add\(x\)"),
        ("double", "last", (1, 2), "Expected one value for x, not 2"),
        ("double", "last", (), "Expected one value for x, not 0"),
    ],
)
def test_the_arguments_of_a_merge_are_checked(
    tmp_path: Path, type_: str, merge: str, arguments: tuple[Any, ...], match: str
) -> None:
    """The message says what it takes."""
    variable = ss.shared(tmp_path, "x", type_, merge=merge)
    refused(tmp_path, lambda: variable.set(*arguments), InvalidArgumentError, match)


def test_a_value_over_the_limit_is_refused(tmp_path: Path) -> None:
    """The message says how much it is, how much may be, and what to do instead."""
    variable = ss.shared(tmp_path, "x", "string", init="small")
    error = refused(
        tmp_path,
        lambda: variable.set("x" * 17 * 2**20),
        InvalidArgumentError,
        r"The value of x takes 17,\d+,\d+ bytes; a version holds at most 16,777,216.\nKeep less in it: ",
    )
    assert len(str(error)) < 300
    assert (variable.version, variable.get()) == (0, "small")


def test_who_sets_second_is_told(tmp_path: Path, limit: SharedVariable) -> None:
    """Of two who have read the same version, one sets; the other hears what it is now, and can set it then."""
    other = ss.shared(tmp_path / "store", "limit")
    assert (limit.get(), other.get()) == (60.0, 60.0)
    limit.set(45)
    refused(
        tmp_path,
        lambda: other.set(50),
        VariableConflictError,
        r"limit was set to 45.0 by another since you last read it.\nNothing was set. Look at limit.get\(\)",
    )
    other.get()
    assert other.set(50) == 2


# Places.


def test_a_notebook_adds_nothing(tmp_path: Path, limit: SharedVariable) -> None:
    """The message says what to do instead."""
    refused(tmp_path, lambda: limit.add(1), VariableError, r"limit.add\(\) is for operators.*\n.*limit.set\(x\)")


@pytest.mark.parametrize("place", ["the store's folder", "a folder", "a server"])
def test_a_transport_that_cannot_be_reached_is_no_default(tmp_path: Path, place: str) -> None:
    """Neither reading nor setting goes on without it, and a new variable is not declared."""
    server = RedisProcess() if place == "a server" else None
    address = None if place == "the store's folder" else str(tmp_path / "t")
    address = server.address if server is not None else address
    limit = ss.shared(tmp_path / "store", "limit", "double", init=60.0, transport=address)
    limit.record()
    if server is not None:
        server.kill()
    else:
        folder = Path(limit.transport)
        folder.rename(tmp_path / "elsewhere")
        folder.write_text("a file")
    for call in (
        limit.get,
        lambda: limit.set(45),
        lambda: limit.version,
        limit.history,
        lambda: limit.on_change(print),
        lambda: ss.shared(tmp_path / "store", "limit"),
        lambda: ss.shared(tmp_path / "store", "other", "double", transport=address),
    ):
        refused(tmp_path, call, TransportError, "cannot be reached: .*\nNothing was read or written")
    # What the store has recorded needs no transport.
    assert ss.open_store(tmp_path / "store").sql("FROM shared.limit").to_pandas()["value"].tolist() == [60.0]
    assert ss.open_store(tmp_path / "store").variables() == ["limit"]


def test_a_version_that_is_gone_is_an_error(tmp_path: Path, limit: SharedVariable) -> None:
    """A transport that was emptied while the variable is in use has no value, not an old or a first one."""
    limit.set(45)
    for path in Path(limit.transport).glob("log/limit-*/*"):
        path.unlink()
    for call in (limit.get, lambda: limit.set(50), lambda: limit.version):
        refused(tmp_path, call, VariableError, r"Version \d of limit is gone: .*\n.*Nothing was read in its place")


def test_a_damaged_version_is_an_error(tmp_path: Path, limit: SharedVariable) -> None:
    """The message names the version and its place."""
    limit.set(45)
    [newest] = Path(limit.transport).glob("log/limit-*/*1")
    for damage in (b"", b"x" * 100, newest.read_bytes()[:-40]):
        newest.write_bytes(damage)
        opened = lambda: ss.shared(tmp_path / "store", "limit").get()  # noqa: E731 (called once)
        refused(tmp_path, opened, VariableError, "Version 1 of limit in .* is damaged")


# Stores.


def test_a_store_from_before_has_no_variables(tmp_path: Path) -> None:
    """It is read as always, and can get some."""
    write(tmp_path, [{"a": 1}, {"a": 2}])
    store = ss.open_store(tmp_path)
    assert store.variables() == []
    assert store["q"].bindings().empty
    refused(tmp_path, lambda: ss.shared(tmp_path, "limit"), UnknownVariableError, "limit")
    with pytest.raises(UnknownQueryError, match=r"shared\.limit"):
        _ = store["shared.limit"]
    ss.shared(tmp_path, "limit", "double", init=1.0)
    assert store.variables() == ["limit"]
    assert store.queries() == ["q"]
    assert store.sql("SELECT key, q.value, l.value AS l FROM q, shared.limit l").to_arrow().to_pylist() == [
        {"key": "a", "value": 2, "l": 1.0}
    ]


def test_a_declaration_of_a_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says how to upgrade."""
    ss.shared(tmp_path, "limit", "double")
    monkeypatch.setattr("streamstate.snapshots.store.declared_variables.FORMAT", 99)
    declare(Layout.at(tmp_path), DeclaredVariable("newer", "{}", ""))
    monkeypatch.undo()
    with pytest.raises(NewerStoreError, match=r"'newer' .* was declared by a newer version.*\nUpgrade streamstate"):
        ss.shared(tmp_path, "limit")


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ""])
def test_a_hostile_name_in_a_store_is_refused(tmp_path: Path, name: str) -> None:
    """A store may come from somebody else; its names are folders."""
    ss.shared(tmp_path / "store", "limit", "double")
    declare(Layout.at(tmp_path / "store"), DeclaredVariable(name, "{}", ""))
    with pytest.raises(UntrustedStoreError, match="variable"):
        ss.open_store(tmp_path / "store").variables()
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("text", ["", "{}", "null", '{"name": "x", "type": "void"}', json.dumps({"name": "x"})])
def test_a_damaged_declaration_is_refused(tmp_path: Path, text: str) -> None:
    """The message shows it."""
    declare(Layout.at(tmp_path), DeclaredVariable("x", text, ""))
    refused(tmp_path, lambda: ss.shared(tmp_path, "x"), VariableError, r"A declaration .* is damaged: .*\nRestore")


# Queries.


@pytest.fixture
def started(spark: SparkSession, source: Source) -> Source:
    """A source with the input of an epoch."""
    source.add(letters(0))
    return source


@pytest.mark.parametrize(
    ("shared", "error", "match"),
    [
        (("limt",), UnknownVariableError, "limit"),
        (
            "limit",
            InvalidArgumentError,
            r"Invalid shared='limit': expected names or variables, such as shared=\('limit",
        ),
        ((5,), InvalidArgumentError, "Invalid shared variable 5: expected a name, or what ss.shared returns"),
        (None, InvalidArgumentError, "Invalid shared=None"),
    ],
)
def test_a_query_starts_only_with_variables_of_its_store(
    started: Source, tmp_path: Path, limit: SharedVariable, shared: Any, error: type[StreamStateError], match: str
) -> None:
    """Unknown names, and what is no name, are refused before anything starts."""
    frame = counts(started)
    refused(tmp_path, lambda: ss.start(frame, "q", limit.store, shared=shared), error, match)


def test_variables_of_another_store_or_transport_are_refused(
    started: Source, tmp_path: Path, limit: SharedVariable
) -> None:
    """A query's variables are in its store, and in one transport."""
    elsewhere = ss.shared(tmp_path / "other", "limit", "double")
    far = ss.shared(tmp_path / "store", "far", "double", transport=str(tmp_path / "t"))
    frame = counts(started)
    for shared, match in (
        (
            (elsewhere,),
            r"limit is a variable of .*other, and the query is captured into .*store.\nDeclare the variable in",
        ),
        ((limit, far), r"The variables are kept in several places: .*\nA query's variables need one transport"),
    ):
        refused(
            tmp_path,
            partial(ss.start, frame, "q", tmp_path / "store", shared=shared),
            QueryError,
            match,
        )


def reading(source: Source, limit: SharedVariable, call: str = "get") -> Any:
    """A query whose function uses a variable."""
    uses: dict[str, Callable[[], object]] = {
        "get": limit.get,
        "set": lambda: limit.set(1.0),
        "add": lambda: limit.add(1.0),
    }
    use = uses[call]
    function = F.udf(lambda _: str(use()), "string")
    return source.stream().withColumn("used", function("v")).groupBy("k", "used").count()


@pytest.mark.parametrize("call", ["get", "add"])
def test_a_query_without_a_binding_fails(started: Source, tmp_path: Path, limit: SharedVariable, call: str) -> None:
    """An operator never reads a default: a query that was not started with variables fails in its first epoch."""
    with pytest.raises(
        Exception, match=r"belongs to no epoch of a query that was started with shared variables"
    ) as raised:
        run(reading(started, limit, call), tmp_path / "checkpoint")
    assert "Start the query with ss.start(frame, name, store, shared=('limit',))" in str(raised.value)


@pytest.mark.slow
def test_a_query_with_other_variables_fails(started: Source, tmp_path: Path, limit: SharedVariable) -> None:
    """The message says which it was started with, and how to add this one."""
    ss.shared(limit.store, "other", "double")
    running = ss.start(reading(started, limit), "q", limit.store, shared=("other",), trigger="available-now")
    with pytest.raises(QueryError, match="failed"):
        running.wait(timeout=300)
    assert running.query is not None
    assert "limit is not bound to this query, which was started with shared=('other',)" in str(
        running.query.exception()
    )
    running.stop()


@pytest.mark.slow
def test_an_operator_sets_nothing(started: Source, limit: SharedVariable) -> None:
    """The message says what to do instead, and the variable is as it was."""
    running = ss.start(reading(started, limit, "set"), "q", limit.store, shared=(limit,), trigger="available-now")
    with pytest.raises(QueryError, match="failed"):
        running.wait(timeout=300)
    assert running.query is not None
    assert "limit.set() is for notebooks: which of many tasks would win?" in str(running.query.exception())
    running.stop()
    assert (limit.get(), limit.version) == (60.0, 0)


def test_a_job_outside_of_a_query_reads_nothing(spark: SparkSession, limit: SharedVariable) -> None:
    """A batch job has no epoch."""
    frame = spark.range(1).select(F.udf(lambda _: limit.get(), "double")("id"))
    with pytest.raises(Exception, match="belongs to no epoch"):
        frame.collect()


@pytest.mark.slow
def test_what_an_operator_adds_is_checked(started: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A contribution of another type fails the task that made it, with the type that is expected."""
    monkeypatch.setattr(version_bytes, "MAX_BYTES", 10_000)
    total = ss.shared(tmp_path / "store", "total", "counter")

    def adds(value: Any) -> Any:
        function = F.udf(lambda _: total.add(value), "string")
        return started.stream().withColumn("used", function("v")).groupBy("k", "used").count()

    running = ss.start(adds("one"), "q", total.store, shared=(total,), trigger="available-now")
    with pytest.raises(QueryError, match="failed"):
        running.wait(timeout=300)
    assert running.query is not None
    assert "Invalid value 'one' of type str: total is a bigint" in str(running.query.exception())
    running.stop()
    assert total.version == 0


def test_a_column_needs_a_variable_or_a_store(limit: SharedVariable) -> None:
    """A name alone says not where."""
    with pytest.raises(InvalidArgumentError, match=r"In which store is 'limit'\?\nPass the variable itself"):
        ss.shared_column("limit")
    with pytest.raises(UnknownVariableError, match="limit"):
        ss.shared_column("limt", limit.store)


def test_it_cannot_be_listened_to_with_what_is_no_function(limit: SharedVariable) -> None:
    """Nothing is started."""
    for arguments in ({"callback": 5}, {"callback": print, "interval": 0}, {"callback": print, "interval": math.nan}):
        with pytest.raises(InvalidArgumentError, match=r"Invalid (callback|interval)"):
            limit.on_change(**arguments)


def test_arrow_types_are_those_of_spark(tmp_path: Path) -> None:
    """A type of PySpark is as good as its text."""
    from pyspark.sql import types as T

    variable = ss.shared(tmp_path, "x", T.MapType(T.StringType(), T.DoubleType()))
    assert variable.declaration.type.arrow == pa.map_(pa.string(), pa.float64())
