"""Analytics over a whole state: every answer is compared with pandas, for unusual types and empty tables too."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import START, State, write

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownColumnError, UnknownTableError
from streamstate.reports import Snapshot, Store
from streamstate.snapshots.store.changelog import log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register

EXAMPLES = settings(max_examples=12, deadline=None)


def stored(path: Path, rows: pa.Table, keys: list[str], *, table: str = "op0", partitions: Any = None) -> Snapshot:
    """A store of one epoch with the given state."""
    layout = Layout.at(path)
    register(layout, "q", "id", "checkpoint")
    fixed = {
        "_epoch": pa.array([0] * rows.num_rows, pa.int64()),
        "_change": pa.array(["put"] * rows.num_rows, pa.string()),
        "_partition": pa.array(partitions or [0] * rows.num_rows, pa.int32()),
    }
    log = pa.table({**fixed, **dict(zip(rows.column_names, rows.columns, strict=True))})
    open_or_create(layout.changelog("q", table), log_schema(log.schema, keys), "log")
    append_once(layout.changelog("q", table), f"q/{table}", 0, lambda _: log)
    facts = {table: TableEntry(rows.num_rows, rows.num_rows, None)}
    Manifest(layout, "q").append([Entry(0, CAPTURED, committed_at=START, tables=facts)], "q/_epochs")
    return ss.open_store(path)["q"].live()


TIMES = [START + timedelta(hours=hour) for hour in (5, 1, 3)]
TYPES = pa.table(
    {
        "key": pa.array([1, 2, 3, 4], pa.int64()),
        "text": ["a", "bé", None, "a"],
        "long": pa.array([10, None, 30, 20], pa.int64()),
        "tiny": pa.array([-1, 5, None, 5], pa.int8()),
        "double": [1.5, None, -2.5, 4.0],
        "decimal": pa.array([Decimal("1.50"), None, Decimal("-3.25"), Decimal("2.00")], pa.decimal128(38, 2)),
        "flag": [True, None, False, True],
        "zoned": pa.array([*TIMES, None], pa.timestamp("us", tz="UTC")),
        "local": pa.array([*[time.replace(tzinfo=None) for time in TIMES], None], pa.timestamp("us")),
        "day": pa.array([date(2026, 1, 3), None, date(2026, 1, 1), date(2026, 1, 2)]),
        "binary": pa.array([b"\x00\x01", b"", None, b"\xff"], pa.binary()),
        "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": None}, {"a": 1, "b": "x"}]),
        "list": pa.array([[1, 2], [], None, [1, 2]], pa.list_(pa.int64())),
        "map": pa.array([[("a", 1)], None, [], [("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "nothing": pa.array([None] * 4, pa.int64()),
        'a "quoted" name': pa.array([1, 1, 2, None], pa.int32()),
    }
)
QUANTILES = {"p01": 0.01, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p99": 0.99}


def test_each_column_is_summarized_as_in_pandas(tmp_path: Path) -> None:
    """Every type has counts, and the minimum, maximum, mean and quantiles that are defined for it."""
    frame = stored(tmp_path, TYPES, ["key"]).table().summary()
    assert list(frame["column"]) == TYPES.column_names
    assert list(frame["key"]) == [True] + [False] * (TYPES.num_columns - 1)
    assert set(frame["rows"]) == {4}
    facts = frame.set_index("column")
    for name in TYPES.column_names:
        values = [value for value in TYPES[name].to_pylist() if value is not None]
        assert facts["nulls"][name] == 4 - len(values)
        assert facts["distinct"][name] == len({repr(value) for value in values})
        if name in {"struct", "list", "map"}:
            assert missing(facts, name)
        elif values:
            assert (facts["min"][name], facts["max"][name]) == (min(values), max(values))
    for name in ("long", "tiny", "double", "decimal"):
        numbers = pd.Series([float(value) for value in TYPES[name].to_pylist() if value is not None])
        assert facts["mean"][name] == pytest.approx(numbers.mean())
        assert [facts[quantile][name] for quantile in QUANTILES] == pytest.approx(
            list(numbers.quantile(list(QUANTILES.values())))
        )
    assert (facts["p50"]["zoned"], facts["mean"]["zoned"]) == (TIMES[2], TIMES[2])
    assert facts["p50"]["day"] == date(2026, 1, 2)
    assert facts["mean"]["flag"] == pytest.approx(2 / 3)
    assert missing(facts, "nothing")


def missing(facts: pd.DataFrame, column: str) -> bool:
    """Return whether a column has no minimum, maximum, mean or quantiles."""
    return all(facts[fact][column] is None for fact in ("min", "max", "mean", *QUANTILES))


def test_bytes_measure_the_values(tmp_path: Path) -> None:
    """Fixed-width values, UTF-8 and binary are counted; a missing value has no bytes."""
    facts = stored(tmp_path, TYPES, ["key"]).table().summary().set_index("column")["bytes"]
    expected = {
        "key": 32,
        "text": 5,
        "long": 24,
        "tiny": 3,
        "decimal": 48,
        "flag": 3,
        "zoned": 24,
        "day": 12,
        "binary": 3,
    }
    assert {name: facts[name] for name in expected} == expected
    assert facts["nothing"] == 0
    assert all(facts[name] > 0 for name in ("struct", "list", "map"))


def test_nan_and_infinities(tmp_path: Path) -> None:
    """NaN is larger than any number; infinities are numbers."""
    rows = pa.table({"key": [1, 2, 3, 4], "x": [math.nan, math.inf, -math.inf, 1.0]})
    table = stored(tmp_path, rows, ["key"]).table()
    facts = table.summary().set_index("column").loc["x"]
    assert (facts["min"], facts["nulls"]) == (-math.inf, 0)
    assert math.isnan(facts["max"])
    histogram = table.histogram("x")
    assert histogram["rows"].to_list() == [1, 1, 1, 1]
    assert histogram["low"].to_list()[:3] == [1.0, -math.inf, math.inf]
    assert math.isnan(histogram["low"].to_list()[3])


@pytest.mark.usefixtures("read_either_way")
@pytest.mark.parametrize("keys", [["key"], TYPES.column_names])
def test_an_empty_table_has_empty_analytics(tmp_path: Path, keys: list[str]) -> None:
    """An empty table has an empty answer, not an error."""
    snapshot = stored(tmp_path, TYPES.slice(0, 0), keys)
    table = snapshot.table()
    assert set(table.summary()["rows"]) == {0}
    assert [len(table.histogram(name)) for name in TYPES.column_names] == [0] * TYPES.num_columns
    assert (len(table.skew()), len(table.heavy_keys())) == (0, 0)
    assert snapshot.summary()["rows"].to_list() == [0]
    history = ss.open_store(tmp_path)["q"]
    assert (history.stale_keys(since=0).count, len(history.stale_keys(since=0).page())) == (0, 0)
    assert len(history.heavy_keys()) == 0


@pytest.mark.usefixtures("read_either_way")
def test_a_table_without_value_columns(tmp_path: Path) -> None:
    """This is what deduplication keeps: its value is void."""
    table = stored(tmp_path, pa.table({"_key": pa.array([0], pa.int32())}), ["_key"]).table()
    assert table.summary()["column"].to_list() == ["_key"]
    assert table.heavy_keys().to_dict("list") == {"_key": [0], "_rows": [1], "_bytes": [4], "_share": [1.0]}
    assert table.skew()["ratio"].to_list() == [1.0]
    assert ss.open_store(tmp_path)["q"].stale_keys(epochs=0).page()["_key"].to_list() == [0]


def test_many_columns_are_summarized(tmp_path: Path) -> None:
    """Each of two hundred columns is summarized."""
    columns = {f"c{number}": pa.array([number, number + 1], pa.int64()) for number in range(200)}
    frame = stored(tmp_path, pa.table(columns), ["c0"]).table().summary()
    assert frame["column"].to_list() == [*columns]
    assert [*frame["mean"]] == [number + 0.5 for number in range(200)]
    assert [*frame["bytes"]] == [16] * 200


NUMBERS = st.lists(st.integers(-50, 50) | st.none(), max_size=30)


@EXAMPLES
@given(NUMBERS, st.integers(1, 7))
def test_a_histogram_counts_each_value_once(
    tmp_path_factory: pytest.TempPathFactory, values: list[int | None], bins: int
) -> None:
    """Each value is in the bin whose edges enclose it, as in NumPy."""
    rows = pa.table({"key": pa.array(range(len(values)), pa.int64()), "x": pa.array(values, pa.int64())})
    found = stored(tmp_path_factory.mktemp("histogram"), rows, ["key"]).table().histogram("x", bins)
    known = [float(value) for value in values if value is not None]
    assert found["rows"].sum() == len(known)
    if not known:
        assert len(found) == 0
        return
    assert found["share"].sum() == pytest.approx(1)
    assert (found["low"].iloc[0], found["high"].iloc[-1]) == (min(known), max(known))
    assert len(found) == (bins if len(set(known)) > 1 else 1)
    for at, row in enumerate(found.to_dict("records")):
        low, high, last = row["low"], row["high"], at == len(found) - 1
        assert row["rows"] == sum(low <= value and (value < high or (last and value <= high)) for value in known)


def test_a_histogram_of_dates_and_times(tmp_path: Path) -> None:
    """Its edges are points in time, with a zone if the column has one."""
    table = stored(tmp_path, TYPES, ["key"]).table()
    zoned = table.histogram("zoned", bins=2)
    assert zoned["rows"].to_list() == [1, 2]
    assert (zoned["low"][0], zoned["high"][1]) == (TIMES[1], TIMES[0])
    assert table.histogram("local", bins=2)["low"][0] == pd.Timestamp(TIMES[1]).tz_localize(None)
    assert table.histogram("day", bins=2)["high"][1] == pd.Timestamp("2026-01-03")


def test_a_histogram_of_other_types(tmp_path: Path) -> None:
    """It has the most frequent values and their share."""
    table = stored(tmp_path, TYPES, ["key"]).table()
    text = table.histogram("text", bins=1)
    assert text.to_dict("list") == {"value": ["a"], "rows": [2], "share": [pytest.approx(2 / 3)]}
    for name in ("flag", "binary", "struct", "list", "map"):
        assert table.histogram(name)["rows"].sum() == 4 - TYPES[name].null_count


@pytest.mark.parametrize("bins", [0, -1, 1001, True, 2.5])
def test_bins_out_of_range_are_rejected(tmp_path: Path, bins: Any) -> None:
    """The error gives the valid range."""
    table = stored(tmp_path, TYPES, ["key"]).table()
    with pytest.raises(InvalidArgumentError, match="from 1 to 1000"):
        table.histogram("long", bins)


def test_skew_over_partitions(tmp_path: Path) -> None:
    """Partitions without rows count towards the mean."""
    rows = pa.table({"key": pa.array(range(6), pa.int64())})
    skew = stored(tmp_path, rows, ["key"], partitions=[0, 0, 0, 3, 3, 1]).table().skew()
    assert skew["rows"].to_list() == [3, 1, 0, 2]
    assert skew["bytes"].to_list() == [24, 8, 0, 16]
    assert skew["share"].to_list() == pytest.approx([3 / 6, 1 / 6, 0, 2 / 6])
    assert skew["ratio"].to_list() == pytest.approx([2, 1 / 1.5, 0, 2 / 1.5])


@pytest.mark.slow
@EXAMPLES
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1)), max_size=20))
def test_heavy_keys_of_a_list(tmp_path_factory: pytest.TempPathFactory, items: list[tuple[str, int]]) -> None:
    """List positions number the rows of one key; by default they are not part of the key."""
    rows = pa.table(
        {
            "user": pa.array([user for user, _ in items], pa.string()),
            "kind": pa.array([kind for _, kind in items], pa.int64()),
            "_position": pa.array(range(len(items)), pa.int64()),
        }
    )
    table = stored(tmp_path_factory.mktemp("heavy"), rows, ["user", "kind", "_position"]).table()
    both = table.heavy_keys()
    assert dict(zip(zip(both["user"], both["kind"], strict=True), both["_rows"], strict=True)) == Counter(items)
    users = table.heavy_keys(by="user")
    assert dict(zip(users["user"], users["_rows"], strict=True)) == Counter(user for user, _ in items)
    assert users["_rows"].is_monotonic_decreasing
    assert (users["_bytes"] == users["_rows"] * 17).all()


def test_heavy_keys_of_a_join_and_of_single_rows(tmp_path: Path) -> None:
    """A join side's index numbers its rows; if each key has one row, the largest rows come first."""
    rows = pa.table({"field0": ["a", "b", "b"], "index": pa.array([0, 0, 1], pa.int64()), "v": ["", "", ""]})
    side = stored(tmp_path / "join", rows, ["field0", "index"], table="op0_left").table()
    assert side.heavy_keys()[["field0", "_rows"]].to_dict("list") == {"field0": ["b", "a"], "_rows": [2, 1]}
    single = pa.table({"k": ["a", "b"], "v": ["short", "a longer one"]})
    assert stored(tmp_path / "single", single, ["k"]).table().heavy_keys(1)["k"].to_list() == ["b"]


def test_heavy_keys_of_unknown_columns(tmp_path: Path) -> None:
    """The error lists the key columns."""
    table = stored(tmp_path, TYPES, ["key"]).table()
    with pytest.raises(UnknownColumnError, match="no key column 'text'"):
        table.heavy_keys(by=["text"])
    with pytest.raises(InvalidArgumentError, match="Key columns: key"):
        table.heavy_keys(by=[])
    with pytest.raises(InvalidArgumentError, match="n=-1"):
        table.heavy_keys(-1)


STATES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2), max_size=6)
HISTORIES = st.lists(st.one_of(STATES, STATES, STATES, st.none()), min_size=1, max_size=8).filter(
    lambda history: history[-1] is not None
)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("read_either_way")
@EXAMPLES
@given(HISTORIES, st.integers(0, 3), st.integers(0, 8))
def test_untouched_and_often_written_keys(
    tmp_path_factory: pytest.TempPathFactory, states: list[State | None], keyframe_every: int, since: int
) -> None:
    """Both match a walk through the history; after a gap a key counts as seen, not as written."""
    path = tmp_path_factory.mktemp("untouched")
    write(path, states, keyframe_every=keyframe_every)
    history = ss.open_store(path)["q"]
    changed: dict[str, tuple[int, str]] = {}
    written: dict[str, list[int]] = {}
    for epoch, state in enumerate(states):
        before: State | None = states[epoch - 1] if epoch else {}
        for key in state or {}:
            if before is None:
                changed[key] = (epoch, "keyframe")
            elif before.get(key) != (state or {})[key]:
                changed[key] = (epoch, "put")
                written.setdefault(key, []).append(epoch)
    live = states[-1] or {}
    expected = {key: changed[key] for key in live if changed[key][0] <= since}
    found = history.stale_keys(since=since)
    assert (found.count, len(found), found.rows) == (len(expected), len(expected), len(live))
    frame = found.to_pandas()
    assert frame["_last_changed"].is_monotonic_increasing
    assert {row["key"]: (row["_last_changed"], row["_change"]) for row in frame.to_dict("records")} == expected
    assert {row["key"]: row["value"] for row in frame.to_dict("records")} == {key: live[key] for key in expected}
    assert (frame["_age"] == frame["_epochs"] * timedelta(minutes=1)).all()
    assert dict(zip(*found.by_epoch()[["epoch", "rows"]].T.to_numpy(), strict=True)) == Counter(
        epoch for epoch, _ in expected.values()
    )
    busy = history.heavy_keys(since=since)
    counts = {key: sum(epoch > since for epoch in epochs) for key, epochs in written.items()}
    assert dict(zip(busy["key"], busy["_writes"], strict=True)) == {key: n for key, n in counts.items() if n}
    assert history.heavy_keys()["_writes"].sum() == sum(map(len, written.values()))


@pytest.mark.usefixtures("read_either_way")
def test_untouched_keys_are_paged_and_pinned(tmp_path: Path) -> None:
    """Pages are consecutive, later captures do not change them, and the result can be displayed."""
    states: list[State | None] = [{str(key): 0 for key in range(5)}, {**{str(key): 0 for key in range(5)}, "5": 1}]
    write(tmp_path, states)
    history = ss.open_store(tmp_path)["q"]
    found = history.stale_keys(epochs=1)
    assert (found.since, found.share) == (0, 5 / 6)
    assert [*found.page(0, 3)["key"], *found.page(3, 3)["key"]] == list("01234")
    assert repr(found) == "<StaleKeys of op0 since epoch 0: 5 of 6 (83.3%) at epoch 1>"
    assert "5 of 6 keys (83.3%)" in found._repr_html_()
    write(tmp_path, [*states, {"0": 7}])
    history.live().table().count()
    assert found.count == 5
    assert history.stale_keys(epochs=1).count == 0
    assert history.stale_keys(epochs=99).since == -1


@pytest.mark.parametrize("given", [{}, {"since": 1, "epochs": 1}, {"since": -1}, {"epochs": True}, {"since": "x"}])
def test_since_or_epochs_is_required(tmp_path: Path, given: dict[str, Any]) -> None:
    """Exactly one of the two is required, as an integer of at least 0."""
    write(tmp_path, [{"a": 1}])
    with pytest.raises(InvalidArgumentError, match=r"since=12|expected an integer"):
        ss.open_store(tmp_path)["q"].stale_keys(**given)


def test_growth_has_rows_changes_and_differences(tmp_path: Path) -> None:
    """The difference is from the previous epoch, if there is one."""
    write(tmp_path, [{"a": 1}, {"a": 1, "b": 2, "c": 3}, None, {"a": 1}])
    history = ss.open_store(tmp_path)["q"]
    frame = history.growth()
    assert frame[["epoch", "rows", "delta", "changes"]].to_numpy().tolist() == [
        [0, 1, 1, 1],
        [1, 3, 2, 2],
        [3, 1, -2, 0],
    ]
    assert frame["committed_at"][1] == START + timedelta(minutes=1)
    assert set(frame["table"]) == {"op0"}
    assert history.growth("op0").equals(frame)
    with pytest.raises(UnknownTableError, match="op1"):
        history.growth("op1")


def test_growth_of_the_first_captured_epoch_is_unknown(tmp_path: Path) -> None:
    """The epochs before it no longer exist."""
    write(tmp_path, [None, {"a": 1}])
    assert ss.open_store(tmp_path)["q"].growth()["delta"].isna().to_list() == [True]


def test_watermark_lag_and_time_between_commits(tmp_path: Path) -> None:
    """The lag is the time from the watermark to the commit; unknown times are missing."""
    facts: list[dict[str, Any]] = [
        {"watermark": None, "input_rows": 5},
        {"watermark": START - timedelta(minutes=9), "input_rows": None},
        {},
        {"watermark": START, "committed_at": None},
    ]
    write(tmp_path, [{"a": 1}, {"a": 2}, None, {"a": 3}], facts=facts)
    frame = ss.open_store(tmp_path)["q"].watermark_lag()
    assert frame["epoch"].to_list() == [0, 1, 3]
    assert frame["lag"].isna().to_list() == [True, False, True]
    assert frame["lag"][1] == timedelta(minutes=10)
    assert frame["since_previous"].isna().to_list() == [True, False, True]
    assert frame["input_rows"].isna().to_list() == [False, True, True]


def test_a_snapshot_summary_has_one_row_per_table(tmp_path: Path) -> None:
    """Each table has its rows and partitions."""
    rows = pa.table({"key": pa.array(range(6), pa.int64()), "v": pa.array(range(6), pa.int64())})
    frame = stored(tmp_path, rows, ["key"], partitions=[0, 0, 0, 3, 3, 1]).summary()
    assert frame.to_dict("records") == [
        {
            "table": "op0",
            "rows": 6,
            "changes": 6,
            "key_columns": 1,
            "value_columns": 1,
            "partitions": 4,
            "bytes": 96,
        }
    ]


def test_the_summary_of_a_real_query(store: Store) -> None:
    """The summary's counts match the rows."""
    table = store["counts"].live().table()
    frame, rows = table.summary().set_index("column"), table.to_pandas()
    assert set(frame["rows"]) == {len(rows)}
    assert frame["max"]["max"] == rows["max"].max()
    assert frame["p75"]["count"] == pytest.approx(np.quantile(rows["count"].astype(float), 0.75))
    assert table.skew()["rows"].sum() == len(rows)
    assert store["counts"].growth()["rows"].iloc[-1] == len(rows)
