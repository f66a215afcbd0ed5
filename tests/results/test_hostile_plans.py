"""A recorded plan may come from a stranger's store: whatever it says, reading it stays quick and small."""

from __future__ import annotations

import copy
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from memory_peak import measured
from synthetic import copy_of

import streamstate as ss
from streamstate.errors import NoResultError, StreamStateError
from streamstate.reports import Store
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.layout import PLANS, Layout
from streamstate.state_inspect.results.results import results_shown

SECONDS, MEGABYTES = 60.0, 300.0
"""Far more than a plan takes, far less than a bomb: a busy machine does not fail the tests."""
Tree = dict[str, Any]

KEY: Tree = {"is": "State", "part": "key", "at": 0, "type": "string"}
VALUE: Tree = {"is": "State", "part": "value", "at": 0, "type": "long"}
DOUBLE: Tree = {"is": "Cast", "of": [VALUE], "type": "double"}
DECIMAL: Tree = {"is": "Cast", "of": [VALUE], "type": "decimal(2,1)"}


def nested(kind: str, levels: int, leaf: Tree, *, arguments: int = 1, **more: Any) -> Tree:
    """An expression in itself, so many times; its other arguments are the leaf."""
    tree = leaf
    for _ in range(levels):
        tree = {"is": kind, "of": [tree, *[leaf] * (arguments - 1)], **more}
    return tree


def literal(kind: str, value: str) -> Tree:
    """A literal."""
    return {"is": "Literal", "type": kind, "value": value}


def column(name: str, kind: Any, expression: Tree) -> Tree:
    """A column of a result."""
    return {"name": name, "type": kind, "expression": expression}


def plan(*columns: Tree, where: tuple[Tree, ...] = ()) -> Tree:
    """A record of a plan of the synthetic store's query."""
    table = {
        "keys": [column("key", "string", {})],
        "values": [column("value", "long", {})],
        "same": [None],
        "columns": list(columns),
        "where": list(where),
        "needs_spark": None,
        "ansi": True,
    }
    return {"format": 1, "mode": "complete", "spark": "4.3.0", "settings": {}, "tables": {"op0": table}}


def of(expression: Tree, kind: Any = "double") -> Tree:
    """A plan with one computed column beside the key."""
    return plan(column("key", "string", KEY), column("made", kind, expression))


def _nested_type(levels: int) -> Any:
    kind: Any = "string"
    for _ in range(levels):
        kind = {"type": "array", "elementType": kind, "containsNull": True}
    return kind


def _wide_struct(fields: int) -> Any:
    names = [{"name": "n", "type": "long", "nullable": True, "metadata": {}} for _ in range(fields)]
    return {"type": "struct", "fields": names}


def _rounded(levels: int) -> Tree:
    tree = DOUBLE
    for _ in range(levels):
        tree = {"is": "Round", "of": [tree, ROUND], "type": "double"}
    return tree


ROUND = {"is": "Literal", "type": "integer", "value": "2"}
BOMBS: dict[str, Tree | str] = {
    "roots": of(nested("Sqrt", 25, DOUBLE)),
    "rounded roundings": of(_rounded(12)),
    "products of decimals": of(nested("Multiply", 20, DECIMAL, arguments=2), "decimal(38,6)"),
    "quotients of decimals": of(nested("Divide", 20, DECIMAL, arguments=2), "decimal(38,6)"),
    "choices of decimals": of(nested("If", 18, DECIMAL, arguments=3), "decimal(2,1)"),
    "sums in sums": of(nested("Add", 190, VALUE, arguments=2), "long"),
    "deep negations": of(nested("Not", 190, {"is": "IsNull", "of": [KEY]}), "boolean"),
    "a deeper tree than a parser reads": json.dumps(of(DOUBLE)).replace('"is": "Cast"', '"of": [' * 5000 + "]" * 5000),
    "a deep tree": of(nested("Sqrt", 120, DOUBLE)),
    "a deeper tree": of(nested("Sqrt", 400, DOUBLE)),
    "an exponent": of(literal("long", "1e999999999"), "long"),
    "a small exponent": of(literal("decimal(10,2)", "1e-999999999"), "decimal(10,2)"),
    "not a number": of(literal("long", "NaN"), "long"),
    "a long text": of(literal("string", "x" * 900_000), "string"),
    "a long reason": of({"why": "x" * 900_000}),
    "a text many times": of({"is": "Concat", "of": [KEY] * 5_000, "type": "string"}, "string"),
    "a column many times": plan(*(column(f"c{at}", "string", KEY) for at in range(5_000))),
    "columns of one name": plan(*(column("c", "long", VALUE) for _ in range(8_000))),
    "many quotients": plan(
        *(column("made", "decimal(8,6)", {"is": "Divide", "of": [DECIMAL, DECIMAL]}) for _ in range(1_000))
    ),
    "conditions many times": plan(
        column("key", "string", KEY), where=({"is": "IsNotNull", "of": [KEY], "type": "boolean"},) * 8_000
    ),
    "a deep type": of(DOUBLE, _nested_type(300)),
    "a wide struct": of(DOUBLE, _wide_struct(15_000)),
    "a type deep inside": of({"is": "IsNull", "of": [{"is": "If", "of": [KEY, KEY], "type": _nested_type(300)}]}),
    "half a character": plan(column("\ud800", "string", KEY)),
    "half a character as text": of(literal("string", "\ud800"), "string"),
    "a zero character": plan(column("a\0b", "string", literal("string", "a\0b"))),
    "an endless position": of({"is": "State", "part": "value", "at": float("inf"), "type": "long"}),
    "an endless place": plan(column("key", "string", KEY)) | {"format": float("inf")},
    "a negative position": of({"is": "State", "part": "value", "at": -1, "type": "long"}, "long"),
    "another type than stored": of({"is": "State", "part": "key", "at": 0, "type": "double"}),
    "more digits than there are": of({"is": "Cast", "of": [VALUE], "type": "decimal(99,99)"}, "decimal(99,99)"),
    "more digits inside": of(
        {"is": "Cast", "of": [{"is": "Cast", "of": [VALUE], "type": "decimal(60,50)"}], "type": "double"}
    ),
    "an overflow": of({"is": "Multiply", "of": [literal("double", "1e308"), literal("double", "1e308")]}),
    "a huge quotient": of(
        {
            "is": "Divide",
            "of": [
                {"is": "Cast", "of": [VALUE], "type": "decimal(20,0)"},
                literal("decimal(10,9)", "0.000000001"),
            ],
        },
        "decimal(38,17)",
    ),
    "arguments that are text": of({"is": "Add", "of": "ab", "type": "long"}),
    "an argument of itself": of({"is": "Coalesce", "of": [{}]}),
    "a function": of({"is": "repeat", "of": [KEY, literal("long", "1000000000")], "type": "string"}, "string"),
    "a list": of({"is": "ArrayRepeat", "of": [KEY, literal("long", "1000000000")], "type": _nested_type(1)}),
    "a method of the translator": of({"is": "__init__", "of": [KEY]}),
    "no object": "[1, 2]",
    "no text": "\x00",
}


def hostile_store(folder: Path, record: Tree | str) -> Store:
    """A store whose query has a record of a plan."""
    copy_of(folder, [{"a" * 1_000: 1, "b": -7}, {"a" * 1_000: 2, "b": -7, "c": 123_456_789_012}])
    layout = Layout.at(folder)
    text = record if isinstance(record, str) else json.dumps(record)
    row = {"since": 0, "recorded_at": datetime.now(UTC), "plan": text}
    open_or_create(layout.plans("q"), PLANS, "plans")
    append_once(layout.plans("q"), "plan/q", 1, lambda _: pa.Table.from_pylist([row], schema=PLANS))
    return ss.open_store(folder)


def read_everything(store: Store) -> str:
    """Read the query as a page does; returns what was said of the result."""
    history = store["q"]
    results_shown(history.recorded)
    live = history.live()
    assert live.table("op0").count() == 3
    said = ""
    try:
        result = live.result()
        said = str(result.to_arrow().schema.names[:3])
        rows = result.page(limit=20, order_by=result.schema.names[-1])
        said += str(rows)[-500:]
        history.diff(0, 1, result=True).page(limit=5)
        history.first("key IS NOT NULL")
    except StreamStateError as error:
        said += f"{type(error).__name__}: {str(error)[:500]}"
    else:
        store.sql("FROM q.result LIMIT 5").to_arrow()
    return said


QUICK = [
    *("roots", "products of decimals", "an exponent", "a text many times", "columns of one name", "a wide struct"),
    *("half a character", "an endless position", "another type than stored"),
]
"""The others are defused at the same places."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in BOMBS]
)
def test_a_bomb_in_a_plan_is_defused(name: str, tmp_path: Path) -> None:
    """The state stays readable; the result is computed, or an error or a cell says why it is not."""
    store = hostile_store(tmp_path / "store", BOMBS[name])
    with measured() as cost:
        said = read_everything(store)
    assert said
    assert len(said) < 2_000
    assert cost.seconds < SECONDS
    assert cost.megabytes < MEGABYTES


@pytest.mark.parametrize(
    ("name", "reason"),
    [("roots", "is too long"), ("a text many times", "is too long"), ("an exponent", "literal long")],
)
def test_what_is_refused_says_why(name: str, reason: str, tmp_path: Path) -> None:
    """The reason is in the column's cells, as for every column that cannot be computed here."""
    found = hostile_store(tmp_path / "store", BOMBS[name])["q"].live().result().to_arrow()
    assert {reason in str(cell) for cell in found["made"].to_pylist()} == {True}
    assert found["key"].to_pylist() == ["a" * 1_000, "b", "c"]


def test_a_condition_that_is_too_long_refuses_the_result(tmp_path: Path) -> None:
    """Without its condition, a result would have rows that the query did not return."""
    where = {"is": "GreaterThan", "of": [nested("Sqrt", 25, DOUBLE), DOUBLE]}
    store = hostile_store(tmp_path / "store", plan(column("key", "string", KEY), where=(where,)))
    with pytest.raises(NoResultError, match="too long, in a condition"):
        store["q"].live().result()


def _mutated(tree: Tree, chance: random.Random) -> Tree:
    """A plan with some of its parts changed, repeated, nested or gone."""
    made = copy.deepcopy(tree)
    for _ in range(chance.randrange(1, 5)):
        places = [*_places(made)]
        holder, at = chance.choice(places)
        other, there = chance.choice(places)
        match chance.randrange(7):
            case 0:
                holder[at] = chance.choice(_ODD)
            case 1:
                holder[at] = copy.deepcopy(other[there])
            case 2 if isinstance(holder, list):
                holder.extend([copy.deepcopy(holder[at])] * chance.choice([1, 3, 100]))
            case 3 if isinstance(holder, dict):
                del holder[at]
            case 4 if isinstance(holder[at], dict):
                kind = chance.choice(_KINDS)
                holder[at] = nested(kind, chance.choice([1, 2, 9, 30]), holder[at], arguments=chance.randrange(1, 4))
            case 5 if isinstance(holder[at], str):
                holder[at] = chance.choice(_KINDS + _TYPES)
            case _:
                holder[at] = chance.choice(_LEAVES)
        made = json.loads(json.dumps(made))  # what was put in two places becomes two
    return made


def _places(part: Any) -> Any:
    for at in part if isinstance(part, dict) else range(len(part)):
        yield part, at
        if isinstance(part[at], dict | list):
            yield from _places(part[at])


_ODD: list[Any] = [
    None,
    True,
    -1,
    10**30,
    1e308,
    float("nan"),
    "",
    "x" * 3_000,
    [],
    {},
    "\x00",
    '"',
    "'",
    "1e9999",
    "\ud800",
]
_TYPES = ["long", "double", "string", "boolean", "decimal(38,38)", "decimal(5,2)", "timestamp", "date", "void", "byte"]
_KINDS = [
    *("Sqrt", "Round", "Divide", "Multiply", "Add", "Subtract", "If", "CaseWhen", "Coalesce", "IsNull", "Not", "And"),
    *("Or", "EqualTo", "LessThan", "Concat", "Cast", "CheckOverflow", "Remainder", "IntegralDivide", "UnaryMinus"),
    *("GetStructField", "KnownNotNull", "DecimalDivideWithOverflowCheck"),
]
_LEAVES = [
    KEY,
    VALUE,
    DOUBLE,
    DECIMAL,
    ROUND,
    literal("double", "1.5"),
    literal("string", "x"),
    literal("decimal(38,37)", "1.5"),
]
_SEED_PLANS = [
    of({"is": "Divide", "of": [DECIMAL, DECIMAL]}, "decimal(8,6)"),
    of({"is": "Round", "of": [{"is": "Sqrt", "of": [DOUBLE]}, ROUND], "type": "double"}),
    of({"is": "Concat", "of": [KEY, literal("string", "!")], "type": "string"}, "string"),
    plan(column("key", "string", KEY), where=({"is": "LessThan", "of": [VALUE, literal("long", "5")]},)),
    of({"is": "CaseWhen", "of": [{"is": "IsNull", "of": [KEY]}, VALUE, literal("long", "0")]}, "long"),
]


@pytest.mark.parametrize("size", [10, pytest.param(5_000, marks=pytest.mark.exhaustive)])
def test_mutated_plans(size: int, tmp_path: Path) -> None:
    """Each is read like a good one, or refused with an error of the library, quickly."""
    chance = random.Random(46)
    for number in range(size):
        record = _mutated(chance.choice(_SEED_PLANS), chance)
        store = hostile_store(tmp_path / str(number), record)
        with measured() as cost:
            try:
                read_everything(store)
            except StreamStateError:
                pass
            except BaseException as error:
                error.add_note(json.dumps(record)[:3_000])
                raise
        assert cost.seconds < SECONDS, json.dumps(record)[:3_000]
        assert cost.megabytes < MEGABYTES, json.dumps(record)[:3_000]
