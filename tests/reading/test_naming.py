"""Columns that Spark has named: what a view and an error say of them, and keys by the query's own names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from branch_stores import Branch

import streamstate as ss
from streamstate.errors import StreamStateError
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.plan_table import store_plan
from streamstate.snapshots.store.query_plans.query_plan import PlannedColumn, QueryPlan, TablePlan
from streamstate.widgets import DiffView, KeyHistoryView, StateBrowser

MENDS = 'streamstate.open_store(store)["clicks"].describe(build_query)'
SIDE = {"field0": pa.string(), "index": pa.int64(), "user": pa.string(), "n": pa.int64(), "matched": pa.bool_()}
AGGREGATE = {"_groupingexpression": pa.string(), "sum": pa.int64()}
DEDUPLICATED = {"user": pa.string()}
ROWS: dict[str, list[dict[str, Any]]] = {
    "op0_left": [{"field0": "u1", "index": at, "user": "u1", "n": at, "matched": True} for at in range(2)],
    "op1": [{"_groupingexpression": "U1", "sum": 3}],
    "op2": [{"user": "u1"}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A side of a join, an aggregation and a deduplication, captured without the query's plan."""
    for name, columns, keys, operator in (
        ("op0_left", SIDE, 2, "symmetricHashJoin"),
        ("op1", AGGREGATE, 1, "stateStoreSave"),
        ("op2", DEDUPLICATED, 1, "dedupe"),
    ):
        branch = Branch(tmp_path, "clicks" if name == "op0_left" else name, {name: (columns, keys)}, None, operator)
        branch.add(0, {name: ROWS[name]})
    return tmp_path


def planned(folder: Path) -> None:
    """Record the plan of the join."""
    columns = tuple(PlannedColumn(name, kind) for name, kind in (("user", "string"), ("n", "long")))
    plan = QueryPlan("append", "4.3.0", {}, {"op0_left": TablePlan(None, columns, (0,), columns)})
    store_plan(Layout.at(folder), "clicks", plan, 0)


@pytest.mark.parametrize("view", [StateBrowser, lambda history: DiffView(history, 0, 0)], ids=["browser", "diff"])
def test_a_view_says_that_the_plan_is_unknown(folder: Path, view: type[StateBrowser]) -> None:
    """With the line that records it; not where the query has named the columns."""
    for query, said in (("clicks", True), ("op1", True), ("op2", False)):
        shown = view(ss.open_store(folder)[query])
        message = shown.model.drawing(shown.selection).message
        assert (f'streamstate.open_store(store)["{query}"].describe(build_query)' in message["naming"]) is said


def test_an_error_of_a_key_says_that_the_plan_is_unknown(folder: Path) -> None:
    """The columns that it lists are Spark's."""
    with pytest.raises(StreamStateError, match="Spark has named these columns") as error:
        ss.open_store(folder)["clicks"].key_history(user="u1")
    assert MENDS in str(error.value)


def test_the_querys_names_are_those_of_a_join(folder: Path) -> None:
    """With the plan, a key can be given by the query's names, and the views say what Spark's are."""
    planned(folder)
    history = ss.open_store(folder)["clicks"]
    assert history.key_history(user="u1")["index"].tolist() == [0, 1]
    assert history.live().table("op0_left").lookup(user="u1", index=1)["n"] == 1  # type: ignore[index]
    shown = StateBrowser(history)
    assert shown.model.drawing(shown.selection).message["naming"] == (
        "In the key, field0 is user, index numbers the rows of a key."
    )
    with pytest.raises(StreamStateError, match="field0 is user"):
        history.key_history(usr="u1")


def test_a_view_of_a_key_says_what_its_columns_are(folder: Path) -> None:
    """Beside the fields into which a key is typed."""
    view = KeyHistoryView(ss.open_store(folder)["clicks"])
    assert MENDS in view.model.drawing(view.selection).message["naming"]
