"""The keys that differ between two epochs, as rows: against brute force on random histories."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import State, write

import streamstate as ss
from reading.test_histories import EXAMPLES, HISTORIES
from streamstate.errors import InvalidSQLError, UnknownColumnError
from streamstate.state_inspect.differences.changed_rows import ChangedRows

Expected = list[tuple[str, str, int, int | None]]


def differing(a: State, b: State) -> Expected:
    """The differing keys, each with its change, the value shown, and the value before."""
    added = [("added", key, b[key], None) for key in b.keys() - a.keys()]
    removed = [("removed", key, a[key], a[key]) for key in a.keys() - b.keys()]
    changed = [("changed", key, b[key], a[key]) for key in a.keys() & b.keys() if a[key] != b[key]]
    return sorted([*added, *removed, *changed], key=lambda row: row[1])


def paged(rows: ChangedRows, size: int, **arguments: object) -> Expected:
    """All pages, concatenated."""
    found: Expected = []
    for offset in range(0, rows.count() + 1, size):
        page = rows.page_arrow(offset, size, **arguments)  # type: ignore[arg-type]
        values, before = page.rows.to_pydict(), page.before.to_pydict()
        found += zip(page.changes, values["key"], values["value"], before["value"], strict=True)
    return found


@EXAMPLES
@given(HISTORIES, st.integers(1, 3), st.booleans())
def test_changed_rows_of_any_two_epochs(states: list[State | None], size: int, descending: bool) -> None:
    """Each differing key appears once, in order, with both values; counts, filters and sorting match."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), states)
        history = ss.open_store(folder)["q"]
        known = {epoch: state for epoch, state in enumerate(states) if state is not None}
        for a, b in zip(known, [*known][1:], strict=False):
            expected = differing(known[a], known[b])
            rows = ChangedRows(history, "op0", a, b)
            assert paged(rows, size) == expected
            assert rows.count() == len(expected) == sum(history.diff(a, b).counts.values())
            assert rows.count(where="value > 1") == sum(row[2] > 1 for row in expected)
            assert rows.count(contains={"key": "A"}) == sum(row[1] == "a" for row in expected)
            ordered = sorted(expected, key=lambda row: row[2], reverse=descending)
            assert paged(rows, size, order_by="value", descending=descending) == ordered


def test_invalid_arguments_of_changed_rows_are_rejected(tmp_path: Path) -> None:
    """By name, or with the engine's message."""
    write(tmp_path, [{"a": 1}, {"a": 2}])
    rows = ChangedRows(ss.open_store(tmp_path)["q"], "op0", 0, 1)
    with pytest.raises(UnknownColumnError, match="value"):
        rows.page_arrow(order_by="size")
    with pytest.raises(UnknownColumnError, match="value"):
        rows.count(where="size > 1")
    with pytest.raises(InvalidSQLError):
        rows.count(where="value >")


def test_columns_may_have_the_names_of_internal_columns(tmp_path: Path) -> None:
    """The names of internal columns are chosen to avoid them."""
    import pyarrow as pa
    from browser.stores import Written

    columns = {"k": pa.int64(), "_was_0": pa.int64(), "o0": pa.int64()}
    written = Written(tmp_path, "odd", {"op0": (columns, 1)})
    written.add({"op0": {(1,): (1, 2)}})
    written.add({"op0": {(1,): (3, 4)}})
    page = ChangedRows(ss.open_store(tmp_path)["odd"], "op0", 0, 1).page_arrow()
    assert page.rows.to_pylist() == [{"k": 1, "_was_0": 3, "o0": 4}]
    assert page.before.to_pylist() == [{"k": 1, "_was_0": 1, "o0": 2}]
