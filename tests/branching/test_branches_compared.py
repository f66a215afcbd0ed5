"""Two timelines are compared epoch by epoch, and the first thing in which they differ is named."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from branch_stores import COUNTS, Branch, counted, counting, register
from hypothesis import given, settings
from hypothesis import strategies as st

import streamstate as ss
from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError, UnknownTableError
from streamstate.state_inspect import Comparison, History

STATE = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4)
HISTORY = st.lists(st.none() | STATE, min_size=1, max_size=6)
States = dict[int, dict[str, int] | None]


def both(folder: Path, here: States, there: States, parent: tuple[str, int] | None = None) -> tuple[History, History]:
    """Two queries of one store."""
    counting(folder, "delays", here)
    counting(folder, "what_if", there, parent)
    store = ss.open_store(folder)
    return store["delays"], store["what_if"]


def expected(here: States, there: States) -> list[list[object]]:
    """What a comparison is to tell, by looking at every key at every epoch."""
    rows: list[list[object]] = []
    for epoch in sorted({*here} & {*there}):
        a, b = here[epoch], there[epoch]
        if a is not None and b is not None:
            differing = sum(a[key] != b[key] for key in {*a} & {*b})
            rows.append([epoch, len(a), len(b), differing, len({*a} - {*b}), len({*b} - {*a})])
    return rows


def told(comparison: Comparison) -> list[list[object]]:
    """What it tells of the only table."""
    frame = comparison.epochs()
    return frame[["epoch", "rows", "other_rows", "differing", "only_here", "only_there"]].values.tolist()


@settings(max_examples=15, deadline=None)
@given(HISTORY, HISTORY, st.booleans())
def test_all_epochs_are_counted_as_by_looking_at_every_key(
    here: list[dict[str, int] | None], there: list[dict[str, int] | None], elsewhere: bool
) -> None:
    """Over gaps, in one store or two: the counts, the fingerprints and the first difference agree with the rows."""
    with tempfile.TemporaryDirectory() as folder:
        a, b = dict(enumerate(here)), dict(enumerate(there))
        counting(Path(folder, "one"), "delays", a)
        counting(Path(folder, "other" if elsewhere else "one"), "what_if", b)
        one = ss.open_store(Path(folder, "one"))
        other = ss.open_store(Path(folder, "other")) if elsewhere else one
        rows = expected(a, b)
        if not rows:
            with pytest.raises(UnknownEpochError, match="no epoch of their own in common"):
                one["delays"].compare(other["what_if"])
            return
        comparison = one["delays"].compare(other["what_if"])
        assert told(comparison) == rows
        odd = [row for row in rows if any(row[3:])]
        assert comparison.same == (not odd)
        assert (comparison.first is None) == (not odd)
        if comparison.first is not None:
            assert comparison.first.epoch == odd[0][0]
        frame = comparison.epochs()
        equal = (frame["fingerprint"] == frame["other_fingerprint"]).tolist()
        assert equal == [not any(row[3:]) for row in rows]
        for epoch, *_, differing, only_here, only_there in rows:
            kinds = comparison.keys(int(str(epoch)))["_kind"].tolist()
            assert [kinds.count(one) for one in ("differing", "only here", "only there")] == [
                differing,
                only_here,
                only_there,
            ]


@settings(max_examples=10, deadline=None)
@given(st.lists(STATE, min_size=1, max_size=6), st.lists(STATE, max_size=4), st.data())
def test_a_fork_is_compared_from_its_branch_point_on(
    line: list[dict[str, int]], own: list[dict[str, int]], data: st.DataObject
) -> None:
    """At which it is the same; what came before is shared and is not compared."""
    at = data.draw(st.integers(0, len(line) - 1))
    here: States = dict(enumerate(line))
    there: States = {at: line[at], **{at + 1 + offset: state for offset, state in enumerate(own)}}
    with tempfile.TemporaryDirectory() as folder:
        delays, fork = both(Path(folder), here, there, ("delays", at))
        assert told(delays.compare(fork)) == expected(here, there)
        whole = fork.compare(delays, epochs=range(min(len(line), at + 1 + len(own))))
        shared: States = {epoch: here[epoch] for epoch in range(at)} | there
        assert told(whole) == expected(shared, here)


def test_siblings_are_compared_from_where_the_first_left(tmp_path: Path) -> None:
    """The later one has its parent's epochs until then."""
    counting(tmp_path, "delays", {0: {"a": 0}, 1: {"a": 1}, 2: {"a": 2}, 3: {"a": 3}})
    counting(tmp_path, "early", {1: {"a": 1}, 2: {"a": 7}, 3: {"a": 7}}, ("delays", 1))
    counting(tmp_path, "late", {2: {"a": 2}, 3: {"a": 7}}, ("delays", 2))
    store = ss.open_store(tmp_path)
    comparison = store["early"].compare(store["late"])
    assert told(comparison) == [[1, 1, 1, 0, 0, 0], [2, 1, 1, 1, 0, 0], [3, 1, 1, 0, 0, 0]]
    assert comparison.first is not None
    assert comparison.first.columns == {"count": (7, 2)}


def test_the_first_divergence_names_key_and_columns_with_both_values(tmp_path: Path) -> None:
    """In plain Python values; a key that only one has shows all that it holds."""
    delays, fork = both(
        tmp_path, {0: {"a": 1}, 1: {"a": 1, "b": 2}, 2: {"c": 1}}, {0: {"a": 1}, 1: {"a": 1, "b": 3}, 2: {}}
    )
    first = delays.compare(fork).first
    assert first is not None
    assert (first.epoch, first.table, first.key, first.kind) == (1, "op0", {"key": "b"}, "differing")
    assert first.columns == {"count": (2, 3)}
    assert type(first.columns["count"][0]) is int
    gone = delays.compare(fork, epochs=[2]).first
    assert gone is not None
    assert (gone.key, gone.kind, gone.columns) == ({"key": "c"}, "only here", {"count": (1, None)})


def test_a_comparison_tells_itself_in_text_and_in_html(tmp_path: Path) -> None:
    """Whose state, which epochs, where they part; what comes from the state is escaped."""
    delays, fork = both(tmp_path, {0: {"<b>": 1}, 1: {"<b>": 1234}}, {0: {"<b>": 1}, 1: {"<b>": 2}})
    comparison = delays.compare(fork)
    assert repr(comparison).splitlines() == [
        "<Comparison of delays with what_if: epochs 0 to 1, table op0>",
        "First different: epoch 1, op0, key='<b>': count 1234 here, 2 there.",
        "1 of 2 epochs differs.",
    ]
    shown = comparison._repr_html_()
    assert "<b>" not in shown
    assert "key=&#x27;&lt;b&gt;&#x27;" in shown
    assert "<td>1</td>" in shown
    equal = delays.compare(fork, epochs=[0])
    assert equal.same
    assert repr(equal).splitlines()[1] == "No key differs at any of 1 epoch."
    assert "<table" not in equal._repr_html_()


def test_tables_and_columns_of_one_side_make_two_timelines_not_the_same(tmp_path: Path) -> None:
    """They are named; the rest is compared."""
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
    with pytest.raises(UnknownTableError, match="no state table 'op1'"):
        store["delays"].compare(store["what_if"], tables=["op1"])


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    """Itself, epochs that one lacks, and epochs that were not compared; the message says what there is."""
    delays, fork = both(tmp_path, {0: {"a": 1}, 1: {"a": 2}}, {0: {"a": 1}})
    register(tmp_path, "fresh", ("delays", 1))
    with pytest.raises(InvalidArgumentError, match="cannot be compared with itself"):
        delays.compare(delays)
    with pytest.raises(UnknownEpochError, match="Epoch 1 of what_if is not captured"):
        delays.compare(fork, epochs=[1])
    with pytest.raises(UnknownEpochError, match="Those that were: 0"):
        delays.compare(fork).diff(1)
    with pytest.raises(UnknownEpochError, match=r"in common(.|\n)*fresh: 0 to 1"):
        delays.compare(ss.open_store(tmp_path)["fresh"])


def test_one_epoch_of_a_comparison_is_a_diff_from_here_to_there(tmp_path: Path) -> None:
    """What is only there counts as added."""
    delays, fork = both(tmp_path, {0: {"a": 1, "b": 1}}, {0: {"a": 4, "c": 1}})
    diff = delays.compare(fork).diff(0)
    assert diff.queries == ("delays", "what_if")
    assert diff.counts == {"added": 1, "removed": 1, "changed": 1}
    keys = delays.compare(fork).keys(0)
    assert keys.columns.tolist() == ["_kind", "key", "count_here", "count_there"]
    assert keys[["_kind", "key"]].values.tolist() == [["differing", "a"], ["only here", "b"], ["only there", "c"]]
