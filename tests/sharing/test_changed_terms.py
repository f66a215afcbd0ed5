"""A copy when the contract changes: later epochs are what is granted then, and earlier ones stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

import streamstate as ss
from sharing.test_shared_store import Killed, profile, rows
from streamstate.errors import ShareError
from streamstate.sharing import SharedStore, ShareServer, serve
from streamstate.snapshots.store.manifest import Manifest
from streamstate.state_inspect.store import Store

STATES: list[dict[str, int] | None] = [{"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}, {"a": 5, "b": 3, "c": 4}]
LATER: list[dict[str, int] | None] = [*STATES, {"a": 5, "b": 3, "d": 1}]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with three epochs."""
    synthetic.copy_of(tmp_path / "store", STATES)
    return ss.open_store(tmp_path / "store")


def add(store: Store, states: list[dict[str, int] | None]) -> None:
    """Add epochs to a store."""
    synthetic.write(Path(store.path.removeprefix("file://")), states)


def copy_of(store: Store, server: ShareServer, tmp_path: Path, **terms: Any) -> SharedStore:
    """The copy of what is granted."""
    return ss.open_share(profile(store, server, **terms), cache=tmp_path / "copy")


@pytest.mark.parametrize("columns", [["key", "value"], ["value"]])
@pytest.mark.parametrize(("before", "after"), [(None, "value > 3"), ("value > 3", None), ("value < 4", "value > 3")])
def test_other_rows(
    store: Store, server: ShareServer, tmp_path: Path, columns: list[str], before: str | None, after: str | None
) -> None:
    """Fewer or more rows: those that are not granted any more are gone at the next epoch, and others come."""
    theirs = copy_of(store, server, tmp_path, columns=columns, where=before)
    old = rows(theirs, 2)
    store["q"].publish("partner", columns=columns, where=after)
    assert theirs.refresh()[0].epoch == 2
    add(store, LATER)
    assert theirs.refresh()[0].epoch == 3
    view = {"a": 5, "b": 3, "d": 1} if after is None else {"a": 5}
    granted = [{"key": key, "value": value} for key, value in view.items()]
    assert rows(theirs, 3) == sorted(tuple(row[name] for name in columns) for row in granted)
    assert rows(theirs, 2) == old
    runs = theirs["q"].epochs()["run_id"].tolist()
    assert len({*runs[:3]}) == 1
    assert runs[3] != runs[2]


def test_unchanged_rows_are_no_changes(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """An epoch that is copied whole has as changes only the rows that differ."""
    theirs = copy_of(store, server, tmp_path)
    store["q"].publish("partner", where="value > 1")
    add(store, LATER)
    theirs.refresh()
    assert theirs["q"].epochs()["changes"].tolist()[-1] == {"op0": 1}
    assert theirs["q"].diff(2, 3).counts == {"added": 0, "removed": 1, "changed": 0}


def test_later_epochs(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """With a later ``since``, the copy goes on there; what changed in between shows."""
    theirs = copy_of(store, server, tmp_path)
    store["q"].publish("partner", since=5)
    add(store, LATER)
    assert [(fresh.epoch, fresh.error) for fresh in theirs.refresh()] == [(2, None)]
    add(store, [*LATER, {"x": 1}, {"a": 5, "y": 2}, {"y": 3}])
    assert theirs.refresh()[0].epoch == 6
    assert theirs["q"].captured() == [0, 1, 2, 5, 6]
    assert [rows(theirs, epoch) for epoch in (2, 5, 6)] == [
        [("a", 5), ("b", 3), ("c", 4)],
        [("a", 5), ("y", 2)],
        [("y", 3)],
    ]


def test_epochs_that_retention_drops(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """Changes from an epoch that the copy does not end with are not applied to it."""
    theirs = copy_of(store, server, tmp_path)
    add(store, [*LATER, {"a": 1}, {"a": 1, "b": 3}])
    ss.open_store(store.path)["q"].retain(last=2)
    assert theirs.refresh()[0].epoch == 5
    assert rows(theirs, 4) == [("a", 1)]
    assert rows(theirs, 5) == [("a", 1), ("b", 3)]


def test_fewer_columns(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """The copy says that it needs another cache, and can still be read; nothing is written to it."""
    theirs = copy_of(store, server, tmp_path)
    add(store, LATER)
    for columns in (["value"], ["key"]):
        opened = profile(store, server, columns=columns)
        with pytest.raises(ShareError, match=r"other columns of op0 now\. Open it with another cache"):
            theirs.refresh()
        assert "other columns" in (theirs.freshness()[0].error or "")
        assert rows(theirs, 2) == rows(ss.open_share(opened, cache=tmp_path / "copy", refresh=False), 2)
        again = ss.open_share(opened, cache=tmp_path / f"copy of {columns[0]}")
        assert again["q"].captured() == [0, 1, 2, 3]
    profile(store, server)
    assert theirs.refresh()[0].error is None
    assert rows(theirs, 3) == [("a", 5), ("b", 3), ("d", 1)]


def test_more_columns(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """A column that is granted later exists from the next epoch on."""
    theirs = copy_of(store, server, tmp_path, columns=["key"])
    profile(store, server)
    add(store, LATER)
    theirs.refresh()
    assert rows(theirs, 2) == [("a",), ("b",), ("c",)]
    assert rows(theirs, 3) == [("a", 5), ("b", 3), ("d", 1)]


def test_a_share_that_ended(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """The copy stays; its freshness says that no epochs will come, until it is shared again."""
    theirs = copy_of(store, server, tmp_path)
    store.contracts()[0].revoke()
    add(store, LATER)
    [fresh] = theirs.refresh()
    assert fresh.epoch == 2
    assert fresh.error == "q is not shared any more: its contract was revoked or has ended."
    assert rows(theirs, 2) == [("a", 5), ("b", 3), ("c", 4)]
    profile(store, server)
    assert [(fresh.epoch, fresh.error) for fresh in theirs.refresh()] == [(3, None)]


def test_one_share_fails(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """The others are copied all the same, and the error is raised."""
    theirs = copy_of(store, server, tmp_path)
    profile(store, server, name="values", columns=["value"])
    theirs.refresh()
    store["q"].publish("partner", columns=["key"])
    add(store, LATER)
    with pytest.raises(ShareError, match="other columns"):
        theirs.refresh()
    assert [(fresh.name, fresh.epoch, fresh.error is None) for fresh in theirs.freshness()] == [
        ("q", 2, False),
        ("values", 3, True),
    ]


def test_terms_that_change_while_copying_is_interrupted(
    store: Store, server: ShareServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written under the old terms is never taken for what is granted under the new ones."""
    theirs = copy_of(store, server, tmp_path)
    add(store, LATER)

    def killed(*_arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "append", killed)  # after the log was written
        with pytest.raises(Killed):
            theirs.refresh()
    store["q"].publish("partner", where="value > 3")
    with pytest.raises(ShareError, match="interrupted, and its terms have changed since"):
        theirs.refresh()
    assert theirs["q"].captured() == [0, 1, 2]
    store["q"].publish("partner", where="value > 3", since=4)
    add(store, [*LATER, {"e": 9}])
    assert theirs.refresh()[0].epoch == 4
    assert rows(theirs, 4) == [("e", 9)]


TERMS = st.fixed_dictionaries({"where": st.sampled_from([None, "value > 1", "key < 'c'"]), "since": st.integers(0, 3)})
STEPS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3)), st.one_of(st.none(), TERMS), st.booleans()),
    min_size=1,
    max_size=6,
)


def check_copies(folder: Path, steps: list[tuple[dict[str, int], dict[str, Any] | None, bool]], key: bool) -> None:
    """At each step there is an epoch and perhaps other terms, and the copy is refreshed or not."""
    columns, terms = ["key", "value"] if key else ["value"], dict[str, Any](where=None, since=0)
    states, expected = list[dict[str, int] | None]([{"a": 1, "b": 2}]), dict[int, list[tuple[Any, ...]]]()
    synthetic.write(folder / "store", states)
    store = ss.open_store(folder / "store")
    with serve(store, port=0) as server:
        theirs = ss.open_share(profile(store, server, columns=columns), cache=folder / "copy")
        for number, (state, changed, refreshed) in enumerate([({"a": 1, "b": 2}, None, True), *steps]):
            states = [*states, state] if number else states
            synthetic.write(folder / "store", states)
            if changed is not None:
                terms = changed
                store["q"].publish("partner", columns=columns, **terms)
            if refreshed:
                newest = theirs.refresh()[0].epoch
                copied = max(expected, default=-1)
                for epoch in range(max(copied + 1, terms["since"]), number + 1):
                    expected[epoch] = view(states[epoch] or {}, columns, terms["where"])
                assert newest == max(expected, default=None)
    assert theirs["q"].captured() == sorted(expected)
    for epoch, found in expected.items():
        assert rows(theirs, epoch) == found


def view(state: dict[str, int], columns: list[str], where: str | None) -> list[tuple[Any, ...]]:
    """The granted rows of a state."""
    tests: dict[str | None, Callable[[str, int], bool]] = {
        None: lambda _key, _value: True,
        "value > 1": lambda _key, value: value > 1,
        "key < 'c'": lambda key, _value: key < "c",
    }
    kept = [{"key": key, "value": value} for key, value in state.items() if tests[where](key, value)]
    return sorted(tuple(row[name] for name in columns) for row in kept)


@settings(max_examples=6)
@given(steps=STEPS, key=st.booleans())
def test_each_epoch_is_as_it_was_granted(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[dict[str, int], dict[str, Any] | None, bool]],
    *,
    key: bool,
) -> None:
    """Whatever changes when: an epoch has what was granted when it was copied."""
    check_copies(tmp_path_factory.mktemp("shared"), steps, key)


@pytest.mark.exhaustive
@settings(max_examples=150)
@given(steps=STEPS, key=st.booleans())
def test_each_epoch_of_150_contracts(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[dict[str, int], dict[str, Any] | None, bool]],
    *,
    key: bool,
) -> None:
    """As above."""
    check_copies(tmp_path_factory.mktemp("shared"), steps, key)
