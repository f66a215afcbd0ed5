"""A fork shares the epochs up to its branch point with its parent, and has its own epochs afterwards."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from branch_stores import COUNTS, Branch, counting

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownEpochError, UnknownTableError
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
    """A query, a fork of it after epoch 2, and a fork of the fork after epoch 3."""
    counting(tmp_path, "delays", DELAYS)
    counting(tmp_path, "what_if", WHAT_IF, ("delays", 2))
    counting(tmp_path, "deeper", DEEPER, ("what_if", 3))
    return ss.open_store(tmp_path)


def rows(store: Store, query: str, epoch: int) -> dict[str, int]:
    """The state at an epoch, as count by key."""
    frame = store[query].at(epoch).table().to_pandas()
    return dict(zip(frame["key"], frame["count"], strict=True))


def test_epochs_before_the_branch_point_come_from_the_parent(store: Store) -> None:
    """This holds for forks of forks, too. ``Snapshot.query`` is the query that ran the epoch."""
    lineage = {"what_if": ["delays", "delays", "what_if", "what_if", "what_if"]}
    lineage |= {"deeper": ["delays", "delays", "what_if", "deeper", "deeper"]}
    for query, owners in lineage.items():
        assert [store[query].at(epoch).query for epoch in range(5)] == owners
    assert [rows(store, "deeper", epoch) for epoch in range(5)] == [
        DELAYS[0],
        DELAYS[1],
        WHAT_IF[2],
        DEEPER[3],
        DEEPER[4],
    ]
    assert store["deeper"].at("live - 4").query == "delays"


def test_a_fork_without_captured_epochs_has_the_parents_epochs(tmp_path: Path) -> None:
    """They end at the branch point; the parent's later epochs are unknown to the fork."""
    counting(tmp_path, "delays", DELAYS)
    counting(tmp_path, "fresh", {}, ("delays", 3))
    fresh = ss.open_store(tmp_path)["fresh"]
    assert fresh.at(3).query == "delays"
    with pytest.raises(UnknownEpochError, match="Epoch 4 of fresh"):
        fresh.at(4)


def test_epochs_of_a_parent_missing_from_the_store_are_unknown(tmp_path: Path) -> None:
    """The error says that the store does not have the parent."""
    counting(tmp_path, "what_if", WHAT_IF, ("delays", 2))
    with pytest.raises(UnknownEpochError, match=r"forked from after epoch 2 and which this store does not have"):
        ss.open_store(tmp_path)["what_if"].at(1)


def test_a_cycle_of_forks_is_an_error(tmp_path: Path) -> None:
    """Two queries that are recorded as forks of each other do not cause an infinite loop."""
    counting(tmp_path, "first", {5: {"a": 1}}, ("second", 4))
    counting(tmp_path, "second", {5: {"a": 1}}, ("first", 4))
    with pytest.raises(UnknownEpochError, match="nearest captured: 5"):
        ss.open_store(tmp_path)["first"].at(3)


def test_a_forks_history_works_without_a_reference_to_its_store(tmp_path: Path) -> None:
    """Epochs of the parent can still be read after the ``Store`` object is gone."""
    counting(tmp_path, "delays", DELAYS)
    counting(tmp_path, "what_if", WHAT_IF, ("delays", 2))
    history = ss.open_store(tmp_path)["what_if"]
    assert history.at(1).query == "delays"
    assert history.diff(1, 3).counts == {"added": 2, "removed": 0, "changed": 2}


def test_sql_reads_epochs_before_the_branch_point(store: Store) -> None:
    """``VERSION AS OF`` resolves to the parent's epoch, and ``history`` to the parent's history at that epoch."""
    result = store.sql("SELECT key, count FROM deeper VERSION AS OF 1 ORDER BY key").to_pandas()
    assert result["count"].tolist() == [2, 1]
    versions = store.sql("SELECT count(*) AS n FROM what_if.history VERSION AS OF 1").to_pandas()
    assert versions["n"].tolist() == [3]


def test_a_diff_across_the_branch_point_names_both_queries(store: Store) -> None:
    """A diff from an epoch of the parent to one of the fork has the causes and epochs of both."""
    diff = store["what_if"].diff(1, 4)
    assert diff.queries == ("delays", "what_if")
    assert diff.counts == {"added": 1, "removed": 0, "changed": 2}
    page = diff.page().set_index("key")
    assert page["_change"].to_dict() == {"a": "changed", "b": "changed", "d": "added"}
    assert {key: list(epochs) for key, epochs in page["_epochs"].items()} == {"a": [3, 4], "b": [2, 3], "d": [3]}
    assert set(page["_cause"]) == {"input"}
    assert repr(diff).startswith("<Diff of op0 from delays at epoch 1 to what_if at epoch 4: 1 added")
    assert "delays at epoch 1 → what_if at epoch 4" in diff._repr_html_()


def test_a_diff_across_branches_compares_their_rows(store: Store) -> None:
    """After the branch point, every cause is unknown. At the branch point, the diff is empty."""
    diff = store["delays"].diff(4, store["what_if"].at(4))
    assert diff.added.to_dict("records") == [{"key": "b", "count": 6}, {"key": "d", "count": 1}]
    assert diff.removed.to_dict("records") == [{"key": "c", "count": 1}]
    assert len(diff.changed) == 0
    assert set(diff.page()["_cause"]) == {"unknown"}
    assert len(store["delays"].diff(store["delays"].at(2), store["what_if"].at(2))) == 0


def test_a_diff_of_two_shared_epochs_is_a_diff_of_the_parent(store: Store) -> None:
    """If both epochs belong to one query, ``Diff.sides`` is None."""
    diff = store["deeper"].diff(0, 1)
    assert diff.sides is None
    assert diff.queries == ("delays", "delays")
    assert len(diff) == 2


def test_a_diff_across_branches_can_be_held_paged_and_summarized(store: Store) -> None:
    """It supports the methods of a diff within one query."""
    diff = store["what_if"].diff(store["what_if"].at(4), store["deeper"].at(4))
    assert diff.summary().columns[["column", "sum"]].values.tolist() == [["count", 96]]
    assert diff.movers()["count_delta"].tolist() == [96]
    with diff.held() as held:
        assert held.count(change="removed") == 2
        assert held.page(order_by="count_delta", by_size=True, descending=True)["key"].tolist()[0] == "a"
    assert diff.to_pandas()["_change"].tolist() == ["removed", "removed", "changed"]


def test_a_diff_across_stores(tmp_path: Path, store: Store) -> None:
    """Two queries of the same name are distinguished by the paths of their stores."""
    counting(tmp_path / "other", "delays", {0: {"a": 1}, 1: {"a": 7, "z": 1}})
    other = ss.open_store(tmp_path / "other")
    diff = store["delays"].diff(1, other["delays"].at(1))
    assert diff.counts == {"added": 1, "removed": 1, "changed": 1}
    assert diff.changed.to_dict("records") == [{"key": "a", "count_old": 2, "count_new": 7}]
    with diff.held() as held:
        assert held.page(limit=1)["key"].tolist() == ["a"]
    assert diff.queries == (f"delays of {store.path}", f"delays of {other.path}")


def test_columns_that_are_not_in_both_branches_are_left_out(tmp_path: Path) -> None:
    """Columns that one branch lacks, or that differ in type, are listed. The common columns are compared."""
    counting(tmp_path, "delays", DELAYS)
    wide = {"op0": ({"key": pa.string(), "count": pa.int64(), "most": pa.float64()}, 1)}
    Branch(tmp_path, "wider", wide).add(0, {"op0": [{"key": "a", "count": 1, "most": 2.5}]})
    as_double = {"op0": ({"key": pa.string(), "count": pa.float64()}, 1)}
    Branch(tmp_path, "typed", as_double).add(0, {"op0": [{"key": "a", "count": 1.5}]})
    store = ss.open_store(tmp_path)
    diff = store["delays"].diff(0, store["wider"].at(0))
    assert len(diff) == 0
    assert diff.left_out == ("most (only in wider)",)
    assert "not compared: most (only in wider)" in repr(diff)
    assert store["delays"].diff(0, store["typed"].at(0)).left_out == ("count (int64 in delays, double in typed)",)


def test_branches_with_different_keys_or_tables_cannot_be_compared(tmp_path: Path) -> None:
    """The error lists the key columns, or the state tables, of both branches."""
    counting(tmp_path, "delays", DELAYS)
    keyed = {"op0": ({"key": pa.string(), "hour": pa.int64(), "count": pa.int64()}, 2)}
    Branch(tmp_path, "keyed", keyed).add(0, {"op0": [{"key": "a", "hour": 1, "count": 1}]})
    named = {"op0_left": COUNTS["op0"], "op0_right": COUNTS["op0"]}
    Branch(tmp_path, "named", named).add(0, {"op0_left": [], "op0_right": []})
    store = ss.open_store(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"different key columns in delays and keyed(.|\n)*hour int64"):
        store["delays"].diff(0, store["keyed"].at(0))
    with pytest.raises(
        UnknownTableError, match=r"in both delays and named.\ndelays has op0; named has op0_left, op0_right"
    ):
        store["delays"].diff(0, store["named"].at(0))
    with pytest.raises(UnknownTableError, match="state table 'op0' is not in both"):
        store["delays"].diff(0, store["named"].at(0), "op0")


def test_the_order_of_key_columns_does_not_matter(tmp_path: Path) -> None:
    """Rows of queries that group by x, y and by y, x are matched."""
    by_xy = {"op0": ({"x": pa.int64(), "y": pa.string(), "n": pa.int64()}, 2)}
    by_yx = {"op0": ({"y": pa.string(), "x": pa.int64(), "n": pa.int64()}, 2)}
    Branch(tmp_path, "by_xy", by_xy).add(0, {"op0": [{"x": 1, "y": None, "n": 1}, {"x": 2, "y": "b", "n": 2}]})
    Branch(tmp_path, "by_yx", by_yx).add(0, {"op0": [{"x": 1, "y": None, "n": 1}, {"x": 2, "y": "b", "n": 3}]})
    store = ss.open_store(tmp_path)
    assert store["by_xy"].diff(0, store["by_yx"].at(0)).counts == {"added": 0, "removed": 0, "changed": 1}


def test_a_key_history_can_include_ancestors(store: Store) -> None:
    """A column names the query of each row. The first keyframe of a fork is left out, as it changes nothing."""
    changes = store["deeper"].key_history(key="a", ancestors=True)
    assert changes[["epoch", "change", "count", "query"]].values.tolist() == [
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
def test_a_key_history_with_ancestors_shows_edits_of_the_fork(
    tmp_path: Path, edited: dict[str, int], at_the_fork: list[object]
) -> None:
    """A key that was edited in the fork changes at the branch point, with the cause unknown."""
    counting(tmp_path, "delays", DELAYS)
    counting(tmp_path, "edited", {2: edited, 3: {"a": 10}}, ("delays", 2))
    store = ss.open_store(tmp_path)
    changes = store["edited"].key_history(key="a", ancestors=True)
    rows = changes[["epoch", "change", "count", "query"]].itertuples(index=False)
    assert [[None if pd.isna(value) else value for value in row] for row in rows] == [
        [0, "put", 1, "delays"],
        [1, "put", 2, "delays"],
        [2, *at_the_fork, "edited"],
        [3, "put", 10, "edited"],
    ]
    assert changes["committed_at"].notna().all()
    assert changes["cause"].tolist()[2] == "unknown"
    assert store["edited"].key_history(key="b", ancestors=True)["epoch"].tolist() == [1, 2, 3]


def test_a_key_history_with_ancestors_of_a_key_added_by_an_edit(tmp_path: Path) -> None:
    """Its first row is at the branch point and belongs to the fork."""
    counting(tmp_path, "delays", DELAYS)
    counting(tmp_path, "edited", {2: {**DELAYS[2], "z": 7}}, ("delays", 2))
    changes = ss.open_store(tmp_path)["edited"].key_history(key="z", ancestors=True)
    assert changes[["epoch", "change", "count", "query"]].values.tolist() == [[2, "put", 7, "edited"]]


def test_a_key_history_with_ancestors_of_a_fork_without_epochs(tmp_path: Path) -> None:
    """It is the key history of the parent up to the branch point."""
    counting(tmp_path, "delays", DELAYS)
    Branch(tmp_path, "fresh", COUNTS, ("delays", 3))
    changes = ss.open_store(tmp_path)["fresh"].key_history(key="a", ancestors=True)
    assert changes["epoch"].tolist() == [0, 1, 3]
