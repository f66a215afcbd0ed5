"""Joins across stores: one's own and what others share, in SQL and in a cut."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownNameError
from streamstate.sharing import ShareServer
from streamstate.state_inspect.store import Store


@pytest.fixture
def ours(tmp_path: Path) -> Store:
    """A store of one's own, with a query of the same name and one of another."""
    synthetic.write(tmp_path / "ours", [{"a": 10}, {"a": 10, "b": 20}, {"a": 11, "c": 30}, {"a": 11, "b": 30}])
    synthetic.write(tmp_path / "ours", [{"x": 1}], query="other")
    return ss.open_store(tmp_path / "ours")


@pytest.fixture
def theirs(store: Store, server: ShareServer, tmp_path: Path) -> Store:
    """What others share."""
    return ss.open_share(store["q"].publish("us").profile(server.url), cache=tmp_path / "theirs")


def test_a_join_in_sql(ours: Store, theirs: Store) -> None:
    """Each relation by its store, at the newest epoch or the one that it names."""
    relations = "ours.q VERSION AS OF 2 AS o JOIN theirs.q VERSION AS OF 3 AS t USING (key)"
    text = f"SELECT o.key, o.value AS mine, t.value AS yours FROM {relations}"
    found = ss.sql({"ours": ours, "theirs": theirs}, text)
    assert found.to_pandas().to_dict("records") == [{"key": "a", "mine": 11, "yours": 3}]
    assert found.epochs == {"ours.q": [2], "theirs.q": [3]}
    counted = ss.sql([ours, theirs], "SELECT count(*) AS n FROM store1.other, store2.q.op0")
    assert counted.to_pandas()["n"].tolist() == [1]


def test_a_cut_across_organisations(ours: Store, theirs: Store) -> None:
    """By the time of the commits, as the cut says; its SQL reads these epochs only."""
    with ss.cut({"ours": ours, "theirs": theirs}, ["ours.q", "theirs.q"]) as cut:
        assert (cut.by, cut.exact, cut.epochs) == ("commit_time", False, {"ours.q": 3, "theirs.q": 3})
        assert cut["theirs.q"].table().count() == 3
        rows = cut.sql("SELECT sum(o.value) AS mine FROM ours.q AS o JOIN theirs.q AS t USING (key)").to_pandas()
        assert rows["mine"].tolist() == [41]
    assert ss.cut([ours, theirs], ["other"]).epochs == {"store1.other": 0}
    with pytest.raises(InvalidArgumentError, match=r"name store1\.q and store2\.q|name store1\.q, store2\.q"):
        ss.cut([ours, theirs], ["q"])


def test_what_is_no_store(ours: Store) -> None:
    """Names are those of the stores, and say so if there is none."""
    with pytest.raises(InvalidArgumentError, match="No store"):
        ss.sql({}, "SELECT 1")
    with pytest.raises(InvalidArgumentError, match="Invalid names"):
        ss.sql({"a.b": ours}, "SELECT 1")
    with pytest.raises(UnknownNameError, match=r"ours\.q"):
        ss.sql({"ours": ours}, "SELECT * FROM yours.q").to_pandas()
