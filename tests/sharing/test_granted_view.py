"""The view that a contract grants: its rows at every epoch and its changes, against a brute-force view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

import streamstate as ss
from streamstate.sharing.contract import GrantedTable
from streamstate.sharing.granted_view import AFTER, BEFORE, CHANGE_TYPE, DELETE, INSERT, GrantedView

Rows = Counter[tuple[Any, ...]]

KEYS = st.sampled_from(["a", "b", "c", "d"])
STATES = st.lists(st.one_of(st.none(), st.dictionaries(KEYS, st.integers(0, 3))), min_size=2, max_size=7)
FILTERS: dict[str | None, Callable[[str, int], bool]] = {
    None: lambda _key, _value: True,
    "value > 1": lambda _key, value: value > 1,
    "key < 'c'": lambda key, _: key < "c",
}


def view(state: dict[str, int], columns: tuple[str, ...], where: str | None) -> dict[str, tuple[Any, ...]]:
    """The granted rows by their keys."""
    kept = {key: {"key": key, "value": value} for key, value in state.items() if FILTERS[where](key, value)}
    return {key: tuple(row[name] for name in columns) for key, row in kept.items()}


def rows_of(table: Any, columns: tuple[str, ...]) -> Rows:
    """The rows of a table, as a multiset."""
    return Counter(tuple(row[name] for name in columns) for row in table.to_pylist())


def is_sorted(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> bool:
    """Whether the order of rows tells nothing but their granted values."""
    values = [tuple(row[name] for name in columns) for row in rows]
    return values == sorted(values)


@settings(max_examples=25)
@given(
    states=STATES,
    columns=st.sampled_from([("key", "value"), ("key",), ("value",)]),
    where=st.sampled_from(list(FILTERS)),
    keyframes=st.integers(0, 2),
)
def test_rows_and_changes_equal_a_brute_force_view(
    tmp_path_factory: pytest.TempPathFactory,
    states: list[dict[str, int] | None],
    columns: tuple[str, ...],
    where: str | None,
    keyframes: int,
) -> None:
    """At every captured epoch, and from each to the next; also over gaps."""
    states = [{}, *states]
    path = tmp_path_factory.mktemp("store")
    synthetic.write(path, states, keyframe_every=keyframes)
    granted = GrantedView(ss.open_store(path)["q"], GrantedTable("op0", columns, where))
    before: int | None = None
    for epoch, state in enumerate(states):
        if state is None:
            continue
        now = view(state, columns, where)
        rows = granted.rows(epoch)
        assert rows_of(rows, columns) == Counter(now.values())
        assert is_sorted(rows.to_pylist(), columns)
        was = {} if before is None else view(states[before] or {}, columns, where)
        found = granted.changes(before, epoch)
        expected: dict[str, Rows] = {
            INSERT: Counter(row for key, row in now.items() if key not in was),
            DELETE: Counter(row for key, row in was.items() if key not in now),
            BEFORE: Counter(row for key, row in was.items() if key in now and now[key] != row),
            AFTER: Counter(row for key, row in now.items() if key in was and was[key] != row),
        }
        assert found.schema.names == [*columns, CHANGE_TYPE]
        for kind, rows in expected.items():
            of_kind = [row for row in found.to_pylist() if row[CHANGE_TYPE] == kind]
            assert Counter(tuple(row[name] for name in columns) for row in of_kind) == rows
        for kinds in ((DELETE, BEFORE), (INSERT, AFTER)):
            assert is_sorted([row for row in found.to_pylist() if row[CHANGE_TYPE] in kinds], columns)
        before = epoch


def test_no_rows_are_read_for_the_columns(tmp_path: Path) -> None:
    """A request of metadata costs the same however large the state is."""
    synthetic.copy_of(tmp_path / "store", [{"a": 1}, {"a": 2}])
    history = ss.open_store(tmp_path / "store")["q"]
    for columns, keys in ((("key", "value"), ["key"]), (("value",), None)):
        granted = GrantedView(history, GrantedTable("op0", columns))
        assert (granted.schema.names, granted.keys) == ([*columns], keys)
        assert not history.recorded.holds_rows("op0")
    granted = GrantedView(history, GrantedTable("op0", ("value",)))
    assert granted.schema == granted.rows(1).schema
    assert history.recorded.holds_rows("op0")
