"""Two queries are compared epoch by epoch, and the first difference is found."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from branch_stores import COUNTS, Branch, counted, counting, register
from hypothesis import given, settings
from hypothesis import strategies as st

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownEpochError, UnknownTableError
from streamstate.state_inspect import Comparison, History
from streamstate.state_inspect.branches.comparison import BranchDivergence

STATE = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4)
HISTORY = st.lists(st.none() | STATE, min_size=1, max_size=6)
States = dict[int, dict[str, int] | None]


def both(folder: Path, here: States, there: States, parent: tuple[str, int] | None = None) -> tuple[History, History]:
    """The histories of two queries in one store."""
    counting(folder, "delays", here)
    counting(folder, "what_if", there, parent)
    store = ss.open_store(folder)
    return store["delays"], store["what_if"]


def expected(here: States, there: States) -> list[list[object]]:
    """The expected rows of ``Comparison.epochs``, from a comparison of every key at every epoch."""
    rows: list[list[object]] = []
    for epoch in sorted({*here} & {*there}):
        a, b = here[epoch], there[epoch]
        if a is not None and b is not None:
            differing = sum(a[key] != b[key] for key in {*a} & {*b})
            rows.append([epoch, len(a), len(b), differing, len({*a} - {*b}), len({*b} - {*a})])
    return rows


def counts(comparison: Comparison) -> list[list[object]]:
    """The rows of ``Comparison.epochs``, without fingerprints."""
    frame = comparison.epochs()
    return frame[["epoch", "rows", "other_rows", "differing", "only_here", "only_there"]].values.tolist()


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(HISTORY, HISTORY, st.booleans())
def test_a_comparison_agrees_with_a_comparison_of_every_key(
    here: list[dict[str, int] | None], there: list[dict[str, int] | None], two_stores: bool
) -> None:
    """Counts, fingerprints, keys and the first difference are right, with gaps, and in one store or two."""
    with tempfile.TemporaryDirectory() as folder:
        a, b = dict(enumerate(here)), dict(enumerate(there))
        counting(Path(folder, "left"), "delays", a)
        counting(Path(folder, "right" if two_stores else "left"), "what_if", b)
        left = ss.open_store(Path(folder, "left"))
        right = ss.open_store(Path(folder, "right")) if two_stores else left
        rows = expected(a, b)
        if not rows:
            with pytest.raises(UnknownEpochError, match="no epochs of their own in common"):
                left["delays"].compare(right["what_if"])
            return
        comparison = left["delays"].compare(right["what_if"])
        assert counts(comparison) == rows
        different = [row for row in rows if any(row[3:])]
        assert comparison.same == (not different)
        assert (comparison.first is None) == (not different)
        if comparison.first is not None:
            assert comparison.first.epoch == different[0][0]
        frame = comparison.epochs()
        equal = (frame["fingerprint"] == frame["other_fingerprint"]).tolist()
        assert equal == [not any(row[3:]) for row in rows]
        for epoch, *_, differing, only_here, only_there in rows:
            kinds = comparison.keys(int(str(epoch)))["_kind"].tolist()
            assert [kinds.count(kind) for kind in ("differing", "only here", "only there")] == [
                differing,
                only_here,
                only_there,
            ]


@pytest.mark.exhaustive
@settings(max_examples=10, deadline=None)
@given(st.lists(STATE, min_size=1, max_size=6), st.lists(STATE, max_size=4), st.data())
def test_a_fork_is_compared_from_its_branch_point(
    parent: list[dict[str, int]], own: list[dict[str, int]], data: st.DataObject
) -> None:
    """Earlier epochs are shared, and are compared only if ``epochs`` includes them."""
    at = data.draw(st.integers(0, len(parent) - 1))
    here: States = dict(enumerate(parent))
    there: States = {at: parent[at], **{at + 1 + offset: state for offset, state in enumerate(own)}}
    with tempfile.TemporaryDirectory() as folder:
        delays, fork = both(Path(folder), here, there, ("delays", at))
        assert counts(delays.compare(fork)) == expected(here, there)
        whole = fork.compare(delays, epochs=range(min(len(parent), at + 1 + len(own))))
        shared: States = {epoch: here[epoch] for epoch in range(at)} | there
        assert counts(whole) == expected(shared, here)


def test_two_forks_are_compared_from_the_earlier_branch_point(tmp_path: Path) -> None:
    """Until the later branch point, the later fork has the epochs of the parent."""
    counting(tmp_path, "delays", {0: {"a": 0}, 1: {"a": 1}, 2: {"a": 2}, 3: {"a": 3}})
    counting(tmp_path, "early", {1: {"a": 1}, 2: {"a": 7}, 3: {"a": 7}}, ("delays", 1))
    counting(tmp_path, "late", {2: {"a": 2}, 3: {"a": 7}}, ("delays", 2))
    store = ss.open_store(tmp_path)
    comparison = store["early"].compare(store["late"])
    assert counts(comparison) == [[1, 1, 1, 0, 0, 0], [2, 1, 1, 1, 0, 0], [3, 1, 1, 0, 0, 0]]
    assert comparison.first is not None
    assert comparison.first.columns == {"count": (7, 2)}


def test_the_first_difference_has_the_key_and_both_values_of_its_columns(tmp_path: Path) -> None:
    """They are plain Python values. A key that only one query has is shown with all its columns."""
    delays, fork = both(
        tmp_path, {0: {"a": 1}, 1: {"a": 1, "b": 2}, 2: {"c": 1}}, {0: {"a": 1}, 1: {"a": 1, "b": 3}, 2: {}}
    )
    first = delays.compare(fork).first
    assert first is not None
    assert (first.epoch, first.table, first.key, first.kind) == (1, "op0", {"key": "b"}, "differing")
    assert first.columns == {"count": (2, 3)}
    assert type(first.columns["count"][0]) is int
    removed = delays.compare(fork, epochs=[2]).first
    assert removed is not None
    assert (removed.key, removed.kind, removed.columns) == ({"key": "c"}, "only here", {"count": (1, None)})


def test_repr_and_html_of_a_comparison(tmp_path: Path) -> None:
    """They show the queries, the epochs and the first difference. Values are escaped in HTML."""
    delays, fork = both(tmp_path, {0: {"<b>": 1}, 1: {"<b>": 1234}}, {0: {"<b>": 1}, 1: {"<b>": 2}})
    comparison = delays.compare(fork)
    assert repr(comparison).splitlines() == [
        "<Comparison of delays with what_if: epochs 0 to 1, table op0>",
        "First different: epoch 1, op0, key='<b>': count 1234 here, 2 there.",
        "1 of 2 epochs differs.",
    ]
    html = comparison._repr_html_()
    assert "<b>" not in html
    assert "key=&#x27;&lt;b&gt;&#x27;" in html
    assert "<td>1</td>" in html
    equal = delays.compare(fork, epochs=[0])
    assert equal.same
    assert repr(equal).splitlines()[1] == "No key differs at any of 1 epoch."
    assert "<table" not in equal._repr_html_()


def test_queries_with_different_tables_are_not_the_same(tmp_path: Path) -> None:
    """A table that only one query has is listed, and the common tables are compared."""
    tables = {"op0": COUNTS["op0"], "op1": COUNTS["op0"]}
    Branch(tmp_path, "delays", tables).add(0, {**counted({"a": 1}), "op1": []})
    Branch(tmp_path, "what_if", COUNTS).add(0, counted({"a": 1}))
    store = ss.open_store(tmp_path)
    comparison = store["delays"].compare(store["what_if"])
    assert comparison.first is None
    assert not comparison.same
    assert comparison.left_out == ("op1 (only in delays)",)
    assert "Not compared: op1 (only in delays)." in repr(comparison)
    assert store["delays"].compare(store["what_if"], tables="op0").same
    with pytest.raises(UnknownTableError, match="state table 'op1' is not in both"):
        store["delays"].compare(store["what_if"], tables=["op1"])


def test_invalid_comparisons_are_rejected(tmp_path: Path) -> None:
    """A query is not compared with itself, nor at epochs that one of the two lacks; the error lists valid epochs."""
    delays, fork = both(tmp_path, {0: {"a": 1}, 1: {"a": 2}}, {0: {"a": 1}})
    register(tmp_path, "fresh", ("delays", 1))
    with pytest.raises(InvalidArgumentError, match="cannot be compared with itself"):
        delays.compare(delays)
    with pytest.raises(UnknownEpochError, match="Epoch 1 of what_if is not captured"):
        delays.compare(fork, epochs=[1])
    with pytest.raises(UnknownEpochError, match="Compared epochs: 0"):
        delays.compare(fork).diff(1)
    with pytest.raises(UnknownEpochError, match=r"in common(.|\n)*fresh: 0 to 1"):
        delays.compare(ss.open_store(tmp_path)["fresh"])


def test_a_comparison_has_a_diff_at_each_epoch(tmp_path: Path) -> None:
    """The diff is from this query to the other: rows that only the other query has are added."""
    delays, fork = both(tmp_path, {0: {"a": 1, "b": 1}}, {0: {"a": 4, "c": 1}})
    diff = delays.compare(fork).diff(0)
    assert diff.queries == ("delays", "what_if")
    assert diff.counts == {"added": 1, "removed": 1, "changed": 1}
    keys = delays.compare(fork).keys(0)
    assert keys.columns.tolist() == ["_kind", "key", "count_here", "count_there"]
    assert keys[["_kind", "key"]].values.tolist() == [["differing", "a"], ["only here", "b"], ["only there", "c"]]


def test_a_divergence_says_any_value_in_words() -> None:
    """Times as text, and an interval inside a struct, which JSON does not have."""
    day = datetime(2026, 11, 29, 7, tzinfo=UTC)
    columns = {"left": (day, None), "waited": ({"longest": timedelta(hours=1)}, {"longest": None})}
    said = str(BranchDivergence(3, "op0", {"carrier": "UA"}, "differing", columns))
    assert said == (
        "epoch 3, op0, carrier='UA': left '2026-11-29T07:00:00Z' here, None there, "
        "waited {'longest': datetime.timedelta(seconds=3600)} here, {'longest': None} there"
    )
