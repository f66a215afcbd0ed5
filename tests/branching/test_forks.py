"""Which queries of a store were forked from which."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from synthetic import write

import streamstate as ss
from streamstate.snapshots.delta import append_once
from streamstate.snapshots.layout import QUERIES, Layout
from streamstate.state_inspect.forks import Forked


def forked(path: Path, name: str, parent: str, epoch: int) -> None:
    """Register a fork as the store's table of queries has it."""
    row = {"name": name, "query_id": f"id of {name}", "checkpoint": "there", "parent": parent, "parent_epoch": epoch}
    rows = pa.Table.from_pylist([row | {"format": 1}], schema=QUERIES)
    append_once(Layout.at(path).queries, f"name/{name}", 1, lambda _: rows)


def test_a_query_knows_its_forks_and_its_parent(tmp_path: Path) -> None:
    """By name, whether the parent was recorded by its name or by its id; others are no concern of it."""
    write(tmp_path, [{"a": 1}], query="delays")
    write(tmp_path, [{"a": 1}], query="other")
    forked(tmp_path, "what_if", "delays", 12)
    forked(tmp_path, "deeper", "id of what_if", 14)
    store = ss.open_store(tmp_path)
    first, second = Forked("what_if", "delays", 12), Forked("deeper", "what_if", 14)
    assert store["delays"].forks() == [first]
    assert store["what_if"].forks() == [second, first]
    assert store["other"].forks() == []
