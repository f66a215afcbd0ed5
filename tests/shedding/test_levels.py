"""Levels: what a predicate, a share and a loss-tolerance graph make of each value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamstate.errors import InvalidArgumentError, InvalidSQLError
from streamstate.shedding import level_for, level_variable
from streamstate.snapshots.store.epoch_load import ShedCounts
from streamstate.snapshots.store.names import is_name
from streamstate.variables.declaration import check_variable_name
from streamstate.variables.shedding.kept_predicate import kept_predicate
from streamstate.variables.shedding.level import ALL, MOST, Level, is_level

NUMBERS = st.one_of(
    st.integers(-5, 5).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1]),
)
COMPARISONS = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])


@st.composite
def predicates(draw: st.DrawFn, depth: int = 2) -> tuple[str, Any]:
    """A predicate as SQL, and as a function of Python."""
    kind = draw(st.sampled_from(["compare", "reverse", "between", "in", *(["and", "or", "not"] * (depth > 0))]))
    if kind in ("and", "or"):
        (left, a), (right, b) = draw(predicates(depth - 1)), draw(predicates(depth - 1))
        both = kind == "and"
        return f"({left}) {kind} ({right})", lambda v: (a(v) and b(v)) if both else (a(v) or b(v))
    if kind == "not":
        text, inner = draw(predicates(depth - 1))
        return f"NOT ({text})", lambda v: not inner(v)
    x, y = draw(NUMBERS), draw(NUMBERS)
    if kind == "between":
        return f"v BETWEEN {x!r} AND {y!r}", lambda v: x <= v <= y
    if kind == "in":
        return f"v IN ({x!r}, {y!r})", lambda v: v in (x, y)
    sign = draw(COMPARISONS)
    truth: Callable[[float, float], bool] = {
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
        "=": lambda a, b: a == b,
        "<>": lambda a, b: a != b,
    }[sign]
    if kind == "compare":
        return f"v {sign} {x!r}", lambda v: truth(v, x)
    return f"{x!r} {sign} v", lambda v: truth(x, v)


@given(predicates(), st.data(), st.integers(0, ALL))
def test_each_value_is_kept_as_the_predicate_says(predicate: tuple[str, Any], data: st.DataObject, kept: int) -> None:
    """Rows that meet the predicate are all kept, of others the share: also next to a bound, and at infinity."""
    text, holds = predicate
    try:
        level = Level.of(level_for(text, kept / ALL))
    except InvalidArgumentError:  # more than five intervals
        assume(False)
    bounds = [*level.bounds, 0.0]
    near = st.sampled_from(
        [
            value
            for bound in bounds
            for value in (bound, math.nextafter(bound, -math.inf), math.nextafter(bound, math.inf))
        ]
    )
    values = st.one_of(near, NUMBERS, st.sampled_from([math.inf, -math.inf]))
    for value in data.draw(st.lists(values, max_size=20)):
        assert level.share(value) == (ALL if holds(value) else kept), value
    assert level.share(None) == level.share(math.nan) == kept


def test_greater_is_told_from_at_least() -> None:
    """A bound belongs to the interval above it, so that > begins at the next number."""
    assert level_for("delay >= 60", 0.25) == {"bounds": [60.0], "keep": [2500, ALL], "base": 2500}
    assert level_for("delay > 60", 0.25)["bounds"] == [math.nextafter(60, math.inf)]
    assert level_for("60 >= delay", 0.25)["keep"] == [ALL, 2500]
    assert level_for(None, 0.25) == {"bounds": [], "keep": [2500], "base": 2500}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("delay >", "not SQL"),
        ("delay", "no such comparison"),
        ("delay > 60 AND carrier = 1", "2 columns"),
        ("delay > '60'", "not a number"),
        ("delay > carrier", "not a number"),
        ("delay + 1 > 60", "does not compare a column"),
        ("delay LIKE 'x'", "no such comparison"),
        ("delay IS NULL", "no such comparison"),
        ("abs(delay) > 60", "does not compare a column"),
        ("delay IN (SELECT 1)", "no such comparison"),
        ("delay > 9007199254740993", "no double-precision number"),
        ("delay > 1e999", "no double-precision number"),
        ("true", "no such comparison"),
        ("1 > 2", "does not compare a column"),
        (60, "Invalid predicate 60"),
    ],
)
def test_other_predicates_are_refused(text: Any, why: str) -> None:
    """The message says what is wrong and shows predicates that are right."""
    with pytest.raises(InvalidSQLError, match=why) as raised:
        level_for(text, 0.5)
    assert "such as 'delay > 60'" in str(raised.value)


def test_a_predicate_knows_its_column() -> None:
    """So that a policy can be compared with the frame."""
    assert kept_predicate("`a b` > 1 or `a b` < 0").column == "a b"
    assert kept_predicate("delay > 1 or Delay < 0").column.casefold() == "delay"


@pytest.mark.parametrize(
    "utility",
    [[], [(60, 1.0), (0, 0.2)], [(0, 1.5)], [(0, 0.2), (0, 1.0)], [(math.nan, 1.0)], [60], "graph", [(0, "high")]],
)
def test_other_graphs_are_refused(utility: Any) -> None:
    """A graph has ascending values with utilities from 0 to 1."""
    with pytest.raises(InvalidArgumentError, match="Expected ascending values"):
        level_for(None, 0.5, utility)


@pytest.mark.parametrize("kept", [-0.1, 1.1, math.nan, "half", None, True])
def test_a_share_is_from_0_to_1(kept: Any) -> None:
    """Everything else is refused."""
    with pytest.raises(InvalidArgumentError, match="expected a share from 0 to 1"):
        level_for(None, kept)


GRAPHS = st.lists(st.tuples(st.integers(-50, 50), st.sampled_from([0.1, 0.5, 0.9])), min_size=1, max_size=5).map(
    lambda steps: sorted(dict(steps).items())
)


@given(GRAPHS, st.floats(0, 1), st.lists(st.integers(0, 1000), min_size=MOST, max_size=MOST), st.booleans())
def test_the_least_useful_rows_are_dropped_first(
    utility: list[tuple[float, float]], kept: float, counts: list[int], protected: bool
) -> None:
    """As many rows are dropped as a share of all others would drop, never more; the useful ones last."""
    keep = "v >= 40" if protected else None
    try:
        intervals = len(level_for(keep, 1.0, utility)["keep"])
    except InvalidArgumentError:
        return
    rows = counts[:intervals]
    level = Level.of(level_for(keep, kept, utility, rows=rows))
    starts = [-math.inf, *level.bounds]
    useful = [next((u for at, u in reversed(utility) if at <= start), utility[0][1]) for start in starts]
    free = [number for number, start in enumerate(starts) if not (protected and start >= 40)]
    assert all(level.keep[number] == ALL for number in range(intervals) if number not in free)
    dropped = sum(rows[number] * (1 - level.keep[number] / ALL) for number in free)
    allowed = (1 - kept) * sum(rows[number] for number in free)
    assert allowed - sum(rows) / ALL - 1e-6 <= dropped <= allowed + 1e-6 * max(1, sum(rows))
    for a in free:
        for b in free:
            if useful[a] < useful[b] and rows[a] and rows[b] and level.keep[b] < ALL:
                assert level.keep[a] <= 1, (a, b)


def test_without_counts_all_are_sampled_alike() -> None:
    """Else more could be dropped than was allowed; the intervals are counted from then on."""
    assert level_for(None, 0.5, [(0, 0.2), (60, 1.0)])["keep"] == [5000, 5000]
    with pytest.raises(InvalidArgumentError, match="expected 2 numbers"):
        level_for(None, 0.5, [(0, 0.2), (60, 1.0)], rows=[1])


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"bounds": [], "keep": [ALL]},
        {"bounds": [1.0], "keep": [1], "base": 1},
        {"bounds": [2.0, 1.0], "keep": [1, 2, 3], "base": 1},
        {"bounds": [math.nan], "keep": [1, 2], "base": 1},
        {"bounds": [], "keep": [ALL + 1], "base": 1},
        {"bounds": [], "keep": [-1], "base": 1},
        {"bounds": [], "keep": [0.5], "base": 1},
        {"bounds": [], "keep": [1], "base": None},
        {"bounds": [1.0, 2.0, 3.0, 4.0, 5.0], "keep": [1] * 6, "base": 1},
    ],
)
def test_what_is_no_level_is_refused(value: Any) -> None:
    """A query could not use it, and would be bound to it for good."""
    with pytest.raises(InvalidArgumentError, match="Invalid level of shedding"):
        Level.of(value)


@given(st.text(min_size=1, max_size=100))
def test_each_query_has_a_level_of_its_own(query: str) -> None:
    """Also one whose name no variable can have."""
    if is_name(query):
        name = check_variable_name(level_variable(query))
        assert is_level(name)
    assert level_variable("delays") == "delays_shed"
    assert level_variable("a-b") != level_variable("a_b")


def test_counts_of_several_sheds_are_added_up() -> None:
    """They are found by the names of their observations."""
    one = {"rows": 10, "kept": 6, "kept_null_id": 1, "dropped_level": 4, "level": 3}
    two = {"rows": 5, "kept": 3, "kept_null_id": 0, "dropped_1": 2, "rows_1": 4, "dropped_no_value": 0, "level": None}
    assert ShedCounts.observed({"other": {"n": 1}}) is None
    counts = ShedCounts.observed({"streamstate_shed": one, "streamstate_shed_right": two, "other": {"rows": 100}})
    assert counts == ShedCounts(15, 9, {"level": 4, "1": 2}, 3, 1, {"1": 4})
    assert counts.rows == counts.kept + sum(counts.dropped.values())
