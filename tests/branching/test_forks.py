"""``History.forks`` lists the branch points that a query is part of."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from synthetic import write

import streamstate as ss
from streamstate.snapshots.store.delta import append_once
from streamstate.snapshots.store.layout import QUERIES, Layout
from streamstate.snapshots.store.registry import ForkPoint


def register_fork(path: Path, name: str, parent: str, epoch: int) -> None:
    """Register a fork in the store's queries table."""
    row = {"name": name, "query_id": f"id of {name}", "checkpoint": "there", "parent": parent, "parent_epoch": epoch}
    rows = pa.Table.from_pylist([row | {"format": 1}], schema=QUERIES)
    append_once(Layout.at(path).queries, f"name/{name}", 1, lambda _: rows)


def test_a_query_knows_its_forks_and_its_parent(tmp_path: Path) -> None:
    """Both are listed by name, even if the parent is recorded by its id. Unrelated queries are not listed."""
    write(tmp_path, [{"a": 1}], query="delays")
    write(tmp_path, [{"a": 1}], query="other")
    register_fork(tmp_path, "what_if", "delays", 12)
    register_fork(tmp_path, "deeper", "id of what_if", 14)
    store = ss.open_store(tmp_path)
    first, second = ForkPoint("what_if", "delays", 12), ForkPoint("deeper", "what_if", 14)
    assert store["delays"].forks() == [first]
    assert store["what_if"].forks() == [second, first]
    assert store["other"].forks() == []
