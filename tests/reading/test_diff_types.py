"""Differences, causes and conditions over columns of every type and name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import streamstate as ss
from streamstate.reports import History
from streamstate.snapshots.store.changelog import Operator, log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register
from streamstate.state_inspect.differences.diff_sql import DiffSQL

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
COLUMNS: dict[str, tuple[pa.DataType, Any, Any, Any]] = {
    "small": (pa.int8(), -128, 127, 255),
    "wide": (pa.int64(), -(2**63), 2**63 - 1, Decimal(2**64 - 1)),
    "real": (pa.float64(), 1.5, -2.0, -3.5),
    "money": (pa.decimal128(10, 2), Decimal("1.10"), Decimal("3.35"), Decimal("2.25")),
    "huge": (pa.decimal128(38, 0), Decimal(-(10**38 - 1)), Decimal(10**38 - 1), None),
    "moment": (pa.timestamp("us", tz="UTC"), NOON, NOON + dt.timedelta(minutes=90), pd.Timedelta(minutes=90)),
    "local": (pa.timestamp("us"), pd.Timestamp("2026-01-02"), pd.Timestamp("2026-01-01"), pd.Timedelta(days=-1)),
    "day": (pa.date32(), dt.date(2026, 1, 1), dt.date(2026, 3, 1), pd.Timedelta(days=59)),
}
"""Columns with a difference: type, value before, value after, difference."""
OTHERS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "text": (pa.string(), "a", "b"),
    "yes": (pa.bool_(), True, False),
    "bytes": (pa.binary(), b"a", b"b"),
    "nested": (pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]), {"x": 1, "y": ["a"]}, {"x": 2, "y": []}),
    "many": (pa.list_(pa.int64()), [1], [1, 2]),
    "by name": (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", 2)]),
    'odd "name"': (pa.int64(), 1, 2),
    "k0": (pa.int64(), 1, 2),
    "d0": (pa.int64(), 1, 2),
    "side": (pa.string(), "old", "new"),
    "row": (pa.int64(), 1, 2),
}
KEY = pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))])


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """One key that changes in every column, one that is removed, one that is added, and one without a value."""
    folder = tmp_path_factory.mktemp("types")
    kinds = {name: kind for name, (kind, *_) in {**COLUMNS, **OTHERS}.items()}
    before = {name: value for name, (_, value, *_) in {**COLUMNS, **OTHERS}.items()}
    after = {name: value for name, (_, _, value, *_) in {**COLUMNS, **OTHERS}.items()}
    nothing = dict.fromkeys(kinds)
    first = [("put", "changes", before), ("put", "goes", before), ("put", None, nothing)]
    second = [("put", "changes", after), ("delete", "goes", nothing), ("put", "comes", after)]
    write_epochs(folder, kinds, [first, second])
    return ss.open_store(folder)["q"]


def write_epochs(folder: Path, kinds: dict[str, pa.DataType], epochs: list[list[tuple[str, Any, Any]]]) -> None:
    """Write a store of one aggregation with a struct key."""
    layout = Layout.at(folder)
    register(layout, "q", "id", "checkpoint")
    fixed = [("_epoch", pa.int64()), ("_change", pa.string()), ("_partition", pa.int32()), ("key", KEY)]
    schema = pa.schema([*fixed, *kinds.items()])
    open_or_create(layout.changelog("q", "op0"), log_schema(schema, ["key"], Operator("stateStoreSave")), "log")
    manifest = Manifest(layout, "q")
    for epoch, changes in enumerate(epochs):
        rows = [
            {"_epoch": epoch, "_change": change, "_partition": 0, "key": key and {"a": key, "b": [1]}, **values}
            for change, key, values in changes
        ]
        table = pa.Table.from_pylist(rows, schema=schema)
        append_once(layout.changelog("q", "op0"), "q/op0", epoch, lambda _stands, table=table: table)  # type: ignore[misc]
        facts = {"op0": TableEntry(3, len(rows), None)}
        entry = Entry(epoch, CAPTURED, committed_at=NOON, offsets=f"[{epoch}]", tables=facts)
        manifest.append([entry], "q/_epochs")


def test_differences_by_type(history: History) -> None:
    """Numbers have exact differences, timestamps durations; overflows and other types have none."""
    page = history.diff(0, 1).page(change="changed")
    [row] = page.to_dict("records")
    for name, (_, before, after, delta) in COLUMNS.items():
        assert (row[f"{name}_old"], row[f"{name}_new"]) == (before, after)
        assert pd.isna(row[f"{name}_delta"]) if delta is None else row[f"{name}_delta"] == delta, name
    for name in ("text", "yes", "bytes", "nested", "many", "by name"):
        assert f"{name}_delta" not in page.columns
    assert row['odd "name"_delta'] == row["k0_delta"] == row["d0_delta"] == 1


@pytest.mark.parametrize("few", [DiffSQL.few, 0])
def test_counts_over_every_type(history: History, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of any type and keys that are structs or null are compared, both grouped and joined."""
    monkeypatch.setattr(DiffSQL, "few", few)
    assert history.diff(0, 1).counts == {"added": 1, "removed": 1, "changed": 1}


def test_lookup_of_nested_keys(history: History) -> None:
    """Rows are in the requested order; a key that is requested twice is returned twice."""
    changes, missing = {"key": {"a": "changes", "b": [1]}}, {"key": None}
    table = history.at(0).table()
    assert table.lookup_many([changes, missing])["small"].tolist() == [-128, pd.NA]
    assert table.lookup_many([missing, changes])["small"].tolist() == [pd.NA, -128]
    assert table.lookup_many([changes, changes])["small"].tolist() == [-128, -128]


def test_a_summary_uses_each_columns_type(history: History) -> None:
    """Sums, increases and decreases have the type of their column's differences."""
    summary = history.diff(0, 1).summary().columns.set_index("column")
    assert summary.loc["money", "sum"] == Decimal("2.25")
    assert summary.loc["moment", "largest_increase"] == pd.Timedelta(minutes=90)
    assert summary.loc["real", "largest_decrease"] == -3.5
    assert summary["largest_increase"].isna()["real"]
    assert history.diff(0, 1).movers("moment")["moment_delta"][0] == pd.Timedelta(minutes=90)


def test_causes_of_nested_keys(history: History) -> None:
    """Keys that are structs or null are found like any other."""
    page = history.diff(0, 1).page()
    assert page["_change"].tolist() == ["changed", "added", "removed"]
    assert page["_cause"].tolist() == ["input", "input", "watermark"]
    found = history.key_history(key={"a": "goes", "b": [1]})
    assert found[["change", "cause"]].to_numpy().tolist() == [["put", "input"], ["delete", "watermark"]]
    assert history.key_history(key=None)["epoch"].tolist() == [0]


def test_conditions_on_nested_values(history: History) -> None:
    """Structs, lists and maps are addressed in DuckDB's syntax."""
    assert history.first("nested.x = 2 AND len(many) = 2") == 1
    assert history.first("\"by name\"['a'] = 1") == 0
    spans = history.when("wide < 0", per_key=True)
    assert spans["held_until"].tolist() == [1, 1]


def test_a_diff_of_any_columns_can_be_displayed(history: History) -> None:
    """In a notebook and as text."""
    diff = history.diff(0, 1)
    assert "1 added, 1 removed, 1 changed" in repr(diff)
    assert "<table" in diff._repr_html_()
