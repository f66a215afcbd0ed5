"""A fork shares its early epochs with the query that it was forked from, and differs from it afterwards."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from branch_stores import COUNTS, Branch, counting

import streamstate as ss
from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError, UnknownTableError
from streamstate.state_inspect import Store

DELAYS = {
    0: {"a": 1},
    1: {"a": 2, "b": 1},
    2: {"a": 2, "b": 5, "c": 1},
    3: {"a": 3, "b": 5, "c": 1},
    4: {"a": 4, "c": 1},
}
WHAT_IF = {2: DELAYS[2], 3: {"a": 3, "b": 6, "c": 1, "d": 1}, 4: {"a": 4, "b": 6, "d": 1}}
DEEPER = {3: WHAT_IF[3], 4: {"a": 100}}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A query, its fork after epoch 2, and a fork of that after epoch 3."""
    counting(tmp_path, "delays", DELAYS)
    counting(tmp_path, "what_if", WHAT_IF, ("delays", 2))
    counting(tmp_path, "deeper", DEEPER, ("what_if", 3))
    return ss.open_store(tmp_path)


def rows(store: Store, query: str, epoch: int) -> dict[str, int]:
    """The state at an epoch."""
    frame = store[query].at(epoch).table().to_pandas()
    return dict(zip(frame["key"], frame["count"], strict=True))


def test_an_epoch_before_a_forks_first_is_its_parents(store: Store) -> None:
    """Over forks of forks; the snapshot says whose it is."""
    line = {"what_if": ["delays", "delays", "what_if", "what_if", "what_if"]}
    line |= {"deeper": ["delays", "delays", "what_if", "deeper", "deeper"]}
    for query, owners in line.items():
        assert [store[query].at(epoch).query for epoch in range(5)] == owners
    assert [rows(store, "deeper", epoch) for epoch in range(5)] == [
        DELAYS[0],
        DELAYS[1],
        WHAT_IF[2],
        DEEPER[3],
        DEEPER[4],
    ]
    assert store["deeper"].at("live - 4").query == "delays"


def test_a_fork_that_was_not_captured_yet_has_its_parents_epochs(tmp_path: Path) -> None:
    """Up to the one after which it was forked, and no further."""
    counting(tmp_path, "delays", DELAYS)
    counting(tmp_path, "fresh", {}, ("delays", 3))
    fresh = ss.open_store(tmp_path)["fresh"]
    assert fresh.at(3).query == "delays"
    with pytest.raises(UnknownEpochError, match="Epoch 4 of fresh"):
        fresh.at(4)


def test_an_epoch_of_a_parent_that_the_store_lacks_says_so(tmp_path: Path) -> None:
    """The message names the query and what to do."""
    counting(tmp_path, "what_if", WHAT_IF, ("delays", 2))
    with pytest.raises(UnknownEpochError, match=r"forked from after epoch 2, and which this store does not have"):
        ss.open_store(tmp_path)["what_if"].at(1)


def test_queries_that_claim_to_be_each_others_forks_end(tmp_path: Path) -> None:
    """A table of queries that goes in a circle leads to an error, not on for ever."""
    counting(tmp_path, "one", {5: {"a": 1}}, ("other", 4))
    counting(tmp_path, "other", {5: {"a": 1}}, ("one", 4))
    with pytest.raises(UnknownEpochError, match="nearest captured: 5"):
        ss.open_store(tmp_path)["one"].at(3)


def test_the_store_need_not_be_held_for_a_forks_early_epochs(tmp_path: Path) -> None:
    """A history stands for itself."""
    counting(tmp_path, "delays", DELAYS)
    counting(tmp_path, "what_if", WHAT_IF, ("delays", 2))
    history = ss.open_store(tmp_path)["what_if"]
    assert history.at(1).query == "delays"
    assert history.diff(1, 3).counts == {"added": 2, "removed": 0, "changed": 2}


def test_sql_travels_to_a_forks_early_epochs(store: Store) -> None:
    """``VERSION AS OF`` finds what ``at`` finds, and ``history`` is that of the query whose epoch it is."""
    found = store.sql("SELECT key, count FROM deeper VERSION AS OF 1 ORDER BY key").to_pandas()
    assert found["count"].tolist() == [2, 1]
    versions = store.sql("SELECT count(*) AS n FROM what_if.history VERSION AS OF 1").to_pandas()
    assert versions["n"].tolist() == [3]


def test_a_diff_across_the_branch_point_names_both_queries(store: Store) -> None:
    """From an epoch of the parent to one of the fork, with the causes and epochs of both lines."""
    diff = store["what_if"].diff(1, 4)
    assert diff.queries == ("delays", "what_if")
    assert diff.counts == {"added": 1, "removed": 0, "changed": 2}
    page = diff.page().set_index("key")
    assert page["_change"].to_dict() == {"a": "changed", "b": "changed", "d": "added"}
    assert {key: list(one) for key, one in page["_epochs"].items()} == {"a": [3, 4], "b": [2, 3], "d": [3]}
    assert set(page["_cause"]) == {"input"}
    assert repr(diff).startswith("<Diff of op0 from delays at epoch 1 to what_if at epoch 4: 1 added")
    assert "delays at epoch 1 → what_if at epoch 4" in diff._repr_html_()


def test_a_diff_across_branches_is_that_of_their_rows(store: Store) -> None:
    """Between epochs after they parted; nothing says why they differ."""
    diff = store["delays"].diff(4, store["what_if"].at(4))
    assert diff.added.to_dict("records") == [{"key": "b", "count": 6}, {"key": "d", "count": 1}]
    assert diff.removed.to_dict("records") == [{"key": "c", "count": 1}]
    assert len(diff.changed) == 0
    assert set(diff.page()["_cause"]) == {"unknown"}
    assert len(store["delays"].diff(store["delays"].at(2), store["what_if"].at(2))) == 0


def test_a_diff_of_two_shared_epochs_is_the_parents_own(store: Store) -> None:
    """Nothing is joined where both epochs are of one query."""
    diff = store["deeper"].diff(0, 1)
    assert diff.sides is None
    assert diff.queries == ("delays", "delays")
    assert len(diff) == 2


def test_a_diff_across_branches_is_held_paged_and_summed(store: Store) -> None:
    """Everything that a diff of one query can do."""
    diff = store["what_if"].diff(store["what_if"].at(4), store["deeper"].at(4))
    assert diff.summary().columns[["column", "sum"]].values.tolist() == [["count", 96]]
    assert diff.movers()["count_delta"].tolist() == [96]
    with diff.held() as held:
        assert held.count(change="removed") == 2
        assert held.page(order_by="count_delta", by_size=True, descending=True)["key"].tolist()[0] == "a"
    assert diff.to_pandas()["_change"].tolist() == ["removed", "removed", "changed"]


def test_a_diff_reaches_into_another_store(tmp_path: Path, store: Store) -> None:
    """The same query's name in two stores is told apart by the stores."""
    counting(tmp_path / "other", "delays", {0: {"a": 1}, 1: {"a": 7, "z": 1}})
    other = ss.open_store(tmp_path / "other")
    diff = store["delays"].diff(1, other["delays"].at(1))
    assert diff.counts == {"added": 1, "removed": 1, "changed": 1}
    assert diff.changed.to_dict("records") == [{"key": "a", "count_old": 2, "count_new": 7}]
    with diff.held() as held:
        assert held.page(limit=1)["key"].tolist() == ["a"]
    assert diff.queries == (f"delays of {store.path}", f"delays of {other.path}")


def test_columns_that_one_branch_lacks_are_named_and_left_out(tmp_path: Path) -> None:
    """The common columns are compared; so are the rows of keys that only one has."""
    counting(tmp_path, "delays", DELAYS)
    wide = {"op0": ({"key": pa.string(), "count": pa.int64(), "most": pa.float64()}, 1)}
    Branch(tmp_path, "wider", wide).add(0, {"op0": [{"key": "a", "count": 1, "most": 2.5}]})
    other = {"op0": ({"key": pa.string(), "count": pa.float64()}, 1)}
    Branch(tmp_path, "typed", other).add(0, {"op0": [{"key": "a", "count": 1.5}]})
    store = ss.open_store(tmp_path)
    diff = store["delays"].diff(0, store["wider"].at(0))
    assert len(diff) == 0
    assert diff.left_out == ("most (only in wider)",)
    assert "not compared: most (only in wider)" in repr(diff)
    assert store["delays"].diff(0, store["typed"].at(0)).left_out == ("count (int64 in delays, double in typed)",)


def test_branches_with_other_keys_or_tables_cannot_be_compared(tmp_path: Path) -> None:
    """The message names the keys, or the tables, of both."""
    counting(tmp_path, "delays", DELAYS)
    keyed = {"op0": ({"key": pa.string(), "hour": pa.int64(), "count": pa.int64()}, 2)}
    Branch(tmp_path, "keyed", keyed).add(0, {"op0": [{"key": "a", "hour": 1, "count": 1}]})
    named = {"op0_left": COUNTS["op0"], "op0_right": COUNTS["op0"]}
    Branch(tmp_path, "named", named).add(0, {"op0_left": [], "op0_right": []})
    store = ss.open_store(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"other key columns in delays than in keyed(.|\n)*hour int64"):
        store["delays"].diff(0, store["keyed"].at(0))
    with pytest.raises(UnknownTableError, match=r"both have.\ndelays has op0; named has op0_left, op0_right"):
        store["delays"].diff(0, store["named"].at(0))
    with pytest.raises(UnknownTableError, match="no state table 'op0'"):
        store["delays"].diff(0, store["named"].at(0), "op0")


def test_keys_in_another_order_are_the_same_keys(tmp_path: Path) -> None:
    """A query that groups by the same columns the other way round has the same rows."""
    one = {"op0": ({"x": pa.int64(), "y": pa.string(), "n": pa.int64()}, 2)}
    other = {"op0": ({"y": pa.string(), "x": pa.int64(), "n": pa.int64()}, 2)}
    Branch(tmp_path, "one", one).add(0, {"op0": [{"x": 1, "y": None, "n": 1}, {"x": 2, "y": "b", "n": 2}]})
    Branch(tmp_path, "other", other).add(0, {"op0": [{"x": 1, "y": None, "n": 1}, {"x": 2, "y": "b", "n": 3}]})
    store = ss.open_store(tmp_path)
    assert store["one"].diff(0, store["other"].at(0)).counts == {"added": 0, "removed": 0, "changed": 1}


def test_a_key_history_can_begin_with_the_ancestors(store: Store) -> None:
    """Each row says whose epoch it is; the keyframe that a fork begins with tells nothing new and is left out."""
    life = store["deeper"].key_history(key="a", ancestors=True)
    assert life[["epoch", "change", "count", "query"]].values.tolist() == [
        [0, "put", 1, "delays"],
        [1, "put", 2, "delays"],
        [3, "put", 3, "what_if"],
        [4, "put", 100, "deeper"],
    ]
    assert "query" not in store["deeper"].key_history(key="a").columns
    assert store["deeper"].key_history(key="a")["change"].tolist() == ["keyframe", "put"]


@pytest.mark.parametrize(
    ("edited", "at_the_fork"),
    [
        ({"a": 9, "b": 5, "c": 1}, ["put", 9]),
        ({"b": 5, "c": 1}, ["delete", None]),
    ],
    ids=["changed", "removed"],
)
def test_a_key_history_with_ancestors_says_what_was_edited(
    tmp_path: Path, edited: dict[str, int], at_the_fork: list[object]
) -> None:
    """At the epoch that both share, where the fork's own state is another from the start."""
    counting(tmp_path, "delays", DELAYS)
    counting(tmp_path, "edited", {2: edited, 3: {"a": 10}}, ("delays", 2))
    store = ss.open_store(tmp_path)
    life = store["edited"].key_history(key="a", ancestors=True)
    told = life[["epoch", "change", "count", "query"]].itertuples(index=False)
    assert [[None if pd.isna(one) else one for one in row] for row in told] == [
        [0, "put", 1, "delays"],
        [1, "put", 2, "delays"],
        [2, *at_the_fork, "edited"],
        [3, "put", 10, "edited"],
    ]
    assert life["committed_at"].notna().all()
    assert life["cause"].tolist()[2] == "unknown"
    assert store["edited"].key_history(key="b", ancestors=True)["epoch"].tolist() == [1, 2, 3]


def test_a_key_history_with_ancestors_of_an_added_key(tmp_path: Path) -> None:
    """An edit put it there."""
    counting(tmp_path, "delays", DELAYS)
    counting(tmp_path, "edited", {2: {**DELAYS[2], "z": 7}}, ("delays", 2))
    life = ss.open_store(tmp_path)["edited"].key_history(key="z", ancestors=True)
    assert life[["epoch", "change", "count", "query"]].values.tolist() == [[2, "put", 7, "edited"]]


def test_a_key_history_with_ancestors_of_a_fork_without_epochs_is_the_parents(tmp_path: Path) -> None:
    """Up to the epoch after which it was forked."""
    counting(tmp_path, "delays", DELAYS)
    Branch(tmp_path, "fresh", COUNTS, ("delays", 3))
    life = ss.open_store(tmp_path)["fresh"].key_history(key="a", ancestors=True)
    assert life["epoch"].tolist() == [0, 1, 3]
