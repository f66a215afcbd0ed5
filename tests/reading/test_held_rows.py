"""Paging, sorting and searching the differences between two epochs, against brute force."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import State, write

import streamstate as ss
from reading.test_histories import EXAMPLES, HISTORIES
from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.state_inspect.differences import held_rows

CHANGES = st.sampled_from([None, "added", "removed", "changed"])
ORDERS = st.sampled_from([None, "key", "value_old", "value_new", "value_delta", "size"])
Row = tuple[str, int | None, int | None]


def kind(row: Row) -> str:
    """The kind of change of a key, from its values at the two epochs."""
    return "added" if row[1] is None else "removed" if row[2] is None else "changed"


def differing(old: State, new: State) -> list[Row]:
    """The keys whose values differ, in key order."""
    rows = [(key, old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys())]
    return [row for row in rows if row[1] != row[2]]


def in_order(rows: list[Row], order: str | None, descending: bool) -> list[Row]:
    """Rows sorted by a column, missing values last, ties by key."""
    if order in (None, "key"):
        return sorted(rows, reverse=descending)

    def measure(row: Row) -> int | None:
        delta = None if row[1] is None or row[2] is None else row[2] - row[1]
        size = None if delta is None else abs(delta)
        return {"value_old": row[1], "value_new": row[2], "value_delta": delta, "size": size}[order or ""]

    known = [(measure(row), row) for row in rows]
    there = sorted(((m, row) for m, row in known if m is not None), key=lambda p: -p[0] if descending else p[0])
    return [row for _, row in there] + [row for m, row in known if m is None]


def read(page: pd.DataFrame) -> list[Row]:
    """The rows of a page."""
    sides = [[None if pd.isna(value) else int(value) for value in page[f"value_{side}"]] for side in ("old", "new")]
    return list(zip(page["key"], *sides, strict=True))


@pytest.mark.slow
@settings(EXAMPLES, max_examples=15)
@given(HISTORIES, st.data())
def test_any_page_in_any_order(states: list[State | None], data: st.DataObject) -> None:
    """A page is the right slice of the sorted, filtered differences, whether they are held or compared again."""
    known = {epoch: state for epoch, state in enumerate(states) if state is not None}
    a, b = (data.draw(st.sampled_from([*known])) for _ in "ab")
    change, order, text = data.draw(CHANGES), data.draw(ORDERS), data.draw(st.sampled_from(["", "a", "B"]))
    descending, offset, limit = data.draw(st.booleans()), data.draw(st.integers(0, 3)), data.draw(st.integers(0, 4))
    rows = [row for row in differing(known[a], known[b]) if change in (None, kind(row)) and text.lower() in row[0]]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        write(Path(folder), states)
        patch.setattr(held_rows, "_WIDEST", data.draw(st.sampled_from([0, 1_000])))
        with ss.open_store(folder)["q"].diff(a, b).held() as held:
            assert held.count(change=change, contains=text) == len(rows)
            page = held.page(
                offset,
                limit,
                change=change,
                contains=text,
                order_by="value_delta" if order == "size" else order,
                by_size=order == "size",
                descending=descending,
            )
    assert read(page) == in_order(rows, order, descending)[offset : offset + limit]
    assert page["_change"].tolist() == [kind(row) for row in read(page)]


def test_a_held_page_equals_the_diffs_page(tmp_path: Path) -> None:
    """Columns, types, causes and epochs are equal; columns can be named by position."""
    write(tmp_path, [{"a": 1, "b": 5}, {"a": 4, "c": 2}])
    diff = ss.open_store(tmp_path)["q"].diff(0, 1)
    with diff.held() as held:
        pd.testing.assert_frame_equal(held.page(), diff.page())
        at = list(diff.page().columns).index("value_new")
        pd.testing.assert_frame_equal(held.page(order_by=at), diff.page(order_by="value_new"))


def test_held_rows_are_isolated_from_new_epochs(tmp_path: Path) -> None:
    """Epochs captured while a diff is paged do not change it."""
    states: list[State | None] = [{"a": 1}, {"a": 2}]
    write(tmp_path, states)
    history = ss.open_store(tmp_path)["q"]
    with history.diff(0, 1).held() as held:
        write(tmp_path, [*states, {"b": 7}])
        assert history.diff(0, 2).counts == {"added": 1, "removed": 1, "changed": 0}
        assert read(held.page()) == [("a", 1, 2)]


def test_invalid_arguments_of_held_rows_are_rejected(tmp_path: Path) -> None:
    """Each error says what would be valid."""
    write(tmp_path, [{"a": 1}, {"a": 2}])
    with ss.open_store(tmp_path)["q"].diff(0, 1).held() as held:
        with pytest.raises(InvalidArgumentError, match="added, removed, changed"):
            held.page(change="moved")
        with pytest.raises(UnknownColumnError, match="value_delta"):
            held.page(order_by="value_dleta")
        with pytest.raises(InvalidArgumentError, match="differences"):
            held.page(order_by="value_new", by_size=True)
        with pytest.raises(InvalidArgumentError, match="offset=-1"):
            held.page(-1)
