"""Stores, histories, snapshots and state tables: their results, and their errors for invalid input."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from synthetic import State, write

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    NewerStoreError,
    NotAStoreError,
    StreamStateError,
    UnknownColumnError,
    UnknownEpochError,
    UnknownQueryError,
    UnknownTableError,
)
from streamstate.reports import History, Store
from streamstate.snapshots.store.layout import FORMAT, QUERIES, Layout
from streamstate.snapshots.store.registry import register

STATES: list[State | None] = [{"a": 1}, {"a": 2, "b": 5}, None, {"b": 6, "c": 7, "d": 8, "e": 9}]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A query ``q`` with a gap at epoch 2."""
    folder = tmp_path_factory.mktemp("reading")
    write(folder, STATES)
    return ss.open_store(folder)["q"]


def test_a_store_lists_its_queries(counted: tuple[Path, Path], store: Store) -> None:
    """A store is a mapping from names to histories."""
    assert (store.queries(), list(store), len(store), "counts" in store) == (["counts"], ["counts"], 1, True)
    assert store.path == str(counted[1])
    assert store["counts"].name == "counts"


def test_columns_are_keys_then_values_as_spark_names_them(store: Store) -> None:
    """A name that is already taken gets a number."""
    table = store["counts"].live().table()
    assert (table.key_columns, table.value_columns) == (["k"], ["count", "sum", "count_2", "max"])
    assert table.to_arrow().schema.names == [*table.key_columns, *table.value_columns]


def test_all_formats_have_the_same_rows(history: History) -> None:
    """Arrow, pandas, Polars, pages and lookups agree."""
    table = history.live().table("op0")
    expected = [{"key": key, "value": value} for key, value in STATES[3].items()]  # type: ignore[union-attr]
    assert table.to_arrow().to_pylist() == expected
    assert table.to_pandas().to_dict("records") == expected
    assert table.to_polars().to_dicts() == expected
    assert table.head().to_dict("records") == expected
    assert [table.lookup(key=row["key"]) for row in expected] == expected
    assert table.lookup(key="missing") is None
    assert len(table) == table.count() == 4


def test_pages_sort_and_filter(history: History) -> None:
    """Paging happens in the index, over the whole state."""
    table = history.live().table()
    assert table.page(1, 2)["key"].tolist() == ["c", "d"]
    assert table.page(limit=2, order_by="value", descending=True)["value"].tolist() == [9, 8]
    assert table.page(where="value > 6 AND key <> 'e'")["key"].tolist() == ["c", "d"]
    assert table.page(contains={"key": "D"})["value"].tolist() == [8]
    assert (table.count(where="value > 6"), table.count(contains={"key": "zz"})) == (3, 0)
    assert table.page(offset=99).empty


def test_snapshots_describe_themselves(history: History) -> None:
    """Epoch, offsets, watermark, tables and rows match the manifest."""
    snapshot = history.at(1)
    assert (snapshot.epoch, snapshot.offsets, snapshot.watermark) == (1, [0], None)
    assert (snapshot.tables(), snapshot.rows()) == (["op0"], {"op0": 2})
    assert history.live().epoch == 3
    assert history.epochs()["status"].tolist() == ["captured", "captured", "gap", "captured"]


def test_a_diff_as_one_frame(history: History) -> None:
    """Each changed key appears once, as added, removed or changed."""
    diff = history.diff(1, 3)
    assert diff.counts == {"added": 3, "removed": 1, "changed": 1}
    found = dict(zip(diff.to_pandas()["key"], diff.to_pandas()["_change"], strict=True))
    assert found == {"a": "removed", "b": "changed", "c": "added", "d": "added", "e": "added"}
    assert "3" in repr(diff)
    assert "&lt;" not in diff._repr_html_()


def test_epochs_have_the_columns_that_the_reference_lists(history: History) -> None:
    """Those of the manifest, with Python's times, and what each epoch read."""
    page = (Path(__file__).parents[2] / "docs/reference/tables.md").read_text("utf-8")
    manifest = page.partition("## The manifest")[2].partition("## ")[0]
    epochs = history.epochs()
    assert [*epochs.columns] == [*re.findall(r"^\| `(\w+)` \|", manifest, re.MULTILINE), "read", "records"]
    assert isinstance(epochs["began_at"].dtype, pd.DatetimeTZDtype)
    assert isinstance(epochs["next_watermark"].dtype, pd.DatetimeTZDtype)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda h: h.at(2), UnknownEpochError, "nearest captured: 1 and 3"),
        (lambda h: h.at(9), UnknownEpochError, "nearest captured: 3"),
        (lambda h: h.at("1"), InvalidArgumentError, "expected an integer"),
        (lambda h: h.at(), InvalidArgumentError, "exactly one of"),
        (lambda h: h.diff(0, 2), UnknownEpochError, "nearest captured"),
        (lambda h: h.live().table("op1"), UnknownTableError, "State table names: op0"),
        (lambda h: h.diff(0, 1, "nope"), UnknownTableError, "op0"),
        (lambda h: h.why(1, table="nope", key={"key": "a"}), UnknownTableError, "State table names: op0"),
        (lambda h: h.late(1, "nope"), UnknownTableError, "State table names: op0"),
        (lambda h: h.key_history("nope.result", key="a"), UnknownTableError, "State table names: op0"),
        (lambda h: h.key_history("op0", nope=1), UnknownColumnError, "Key column names: key"),
        (lambda h: h.key_history(), InvalidArgumentError, "key"),
        (lambda h: h.live().table().lookup(), InvalidArgumentError, "needs a value for: key"),
        (lambda h: h.live().table().page(order_by="nope"), UnknownColumnError, "key, value"),
        (lambda h: h.live().table().page(contains={"nope": "x"}), UnknownColumnError, "key, value"),
        (lambda h: h.live().table().page(where="nope > 1"), UnknownColumnError, "key, value"),
        (lambda h: h.live().table().page(where="value >"), InvalidSQLError, "does not parse"),
        (lambda h: h.live().table().page(where="key IN (SELECT 1)"), InvalidSQLError, "not allowed in a condition"),
        (lambda h: h.live().table().page(where="1; DROP TABLE x"), InvalidSQLError, "."),
        (lambda h: h.live().table().page(limit=-1), InvalidArgumentError, "limit=-1: expected an integer"),
    ],
)
def test_reading_errors_list_valid_choices(
    history: History, call: Callable[[History], object], error: type[Exception], message: str
) -> None:
    """Unknown names list the known ones."""
    with pytest.raises(error, match=message) as raised:
        call(history)
    assert isinstance(raised.value, StreamStateError)


def test_an_unknown_query_lists_the_known_ones(store: Store) -> None:
    """The error also suggests the nearest spelling."""
    with pytest.raises(UnknownQueryError, match="Did you mean 'counts'"):
        store["count"]


def test_a_query_without_epochs_says_so(tmp_path: Path) -> None:
    """The query is registered, but nothing is captured yet."""
    register(Layout.at(tmp_path), "q", "id", "checkpoint")
    history = ss.open_store(tmp_path)["q"]
    assert (history.captured(), history.tables(), len(history.epochs())) == ([], [], 0)
    with pytest.raises(UnknownEpochError, match="captured yet"):
        history.live()


def test_a_path_that_is_not_a_store_is_rejected(tmp_path: Path) -> None:
    """A missing path, another folder, and a file."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(NotAStoreError, match="not a store"):
            ss.open_store(path)


def test_a_store_of_a_newer_version_is_rejected(tmp_path: Path) -> None:
    """An error is better than a wrong answer."""
    write(tmp_path, [{"a": 1}])
    newer = pa.Table.from_pylist([{"name": "n", "query_id": "n", "format": FORMAT + 1}], schema=QUERIES)
    write_deltalake(str(tmp_path / "_queries"), newer, mode="append")
    with pytest.raises(NewerStoreError, match="Upgrade streamstate"):
        ss.open_store(tmp_path)
    with pytest.raises(NewerStoreError):
        write(tmp_path, [{"a": 1}])


def test_reading_needs_neither_spark_nor_java(counted: tuple[Path, Path]) -> None:
    """A process without Java that never imports Spark can read a store."""
    program = (
        "import sys, streamstate as ss\n"
        f"history = ss.open_store({str(counted[1])!r})['counts']\n"
        "print(history.live().table().count(), history.diff(0, 1).counts)\n"
        "assert not [name for name in sys.modules if name.startswith('pyspark')]\n"
    )
    environment = {"PATH": "/nonexistent", "HOME": "/nonexistent"}
    completed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert int(completed.stdout.split()[0]) == ss.open_store(counted[1])["counts"].live().table().count()


def test_a_large_state_is_read_completely(tmp_path: Path) -> None:
    """Larger than one row group of the index: on first load, after more epochs, and going back."""
    state = {f"k{number:06}": number for number in range(130_000)}
    later = {**state, "k000000": -1, "one more": 1}
    write(tmp_path, [state, later], commit_every=2)
    for first in (0, 1):
        history = ss.open_store(tmp_path)["q"]
        for epoch, expected in ((first, [state, later][first]), (1 - first, [state, later][1 - first])):
            found = history.at(epoch).table().to_arrow()
            assert dict(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)) == expected
