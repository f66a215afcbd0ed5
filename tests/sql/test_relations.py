"""``q.history`` has all versions with their intervals, and ``q.changes`` is the changelog, both at any epoch."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import State, copy_of, write

import streamstate as ss
from streamstate.errors import UnknownColumnError, UnknownEpochError, UnknownNameError, UnknownTableError
from streamstate.reports import Result, Store

STATES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3), max_size=4)
HISTORIES = st.lists(st.one_of(STATES, STATES, STATES, st.none()), min_size=1, max_size=8).filter(
    lambda h: h[-1] is not None
)
EXAMPLES = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
Version = tuple[int, int | None, str, int]


def versions(states: list[State | None], last: int) -> list[Version]:
    """The versions up to an epoch as (from, to, key, value), computed by brute force; a gap ends all versions."""
    closed: list[Version] = []
    valid: dict[str, tuple[int, int]] = {}
    for epoch, state in enumerate(states[: last + 1]):
        before = states[epoch - 1] if epoch else {}
        for key, (start, value) in list(valid.items()):
            if state is None or state.get(key) != value:
                closed.append((start, epoch, key, value))
                del valid[key]
        if state is not None:
            for key, value in state.items():
                if key not in valid:
                    valid[key] = (epoch, value)
            assert before is not None or all(start == epoch for start, _ in valid.values())
    return sorted([*closed, *((start, None, key, value) for key, (start, value) in valid.items())], key=repr)


def rows(result: Result) -> list[tuple[Any, ...]]:
    """The sorted rows of a result."""
    return sorted(zip(*(column.to_pylist() for column in result.to_arrow().columns), strict=True), key=repr)


@pytest.mark.slow
@pytest.mark.usefixtures("read_either_way")
@EXAMPLES
@given(HISTORIES, st.integers(0, 3), st.data())
def test_the_history_equals_brute_force(states: list[State | None], keyframe_every: int, data: st.DataObject) -> None:
    """At any epoch, the versions and their intervals equal those computed from the states."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), states, keyframe_every=keyframe_every)
        store = ss.open_store(folder)
        captured = [epoch for epoch, state in enumerate(states) if state is not None]
        for epoch in [captured[-1], data.draw(st.sampled_from(captured))]:
            found = store.sql("SELECT _valid_from, _valid_to, key, value FROM q.history", at=epoch)
            assert rows(found) == versions(states, epoch)


@pytest.mark.usefixtures("read_either_way")
@EXAMPLES
@given(HISTORIES, st.integers(0, 3), st.data())
def test_the_state_follows_from_the_history_and_from_the_changes(
    states: list[State | None], keyframe_every: int, data: st.DataObject
) -> None:
    """The state is the versions that are valid at an epoch, and the newest row of each key in the changelog."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), states, keyframe_every=keyframe_every)
        store = ss.open_store(folder)
        epoch = data.draw(st.sampled_from([e for e, state in enumerate(states) if state is not None]))
        state = rows(store.sql("SELECT key, value FROM q", at=epoch))
        assert state == sorted((states[epoch] or {}).items(), key=repr)
        valid = "SELECT key, value FROM q.history WHERE _valid_from <= ? AND (_valid_to > ? OR _valid_to IS NULL)"
        assert rows(store.sql(valid, params=[epoch, epoch])) == state
        since = max((e for e in range(epoch) if states[e] is None), default=-1)
        newest = (
            "SELECT key, value FROM (FROM q.changes VERSION AS OF $e WHERE _epoch > $since"
            " QUALIFY row_number() OVER (PARTITION BY key ORDER BY _epoch DESC, _change = 'keyframe') = 1)"
            " WHERE _change <> 'delete'"
        )
        assert rows(store.sql(newest, params={"e": epoch, "since": since})) == state


@pytest.fixture
def small(tmp_path: Path) -> Store:
    """A store with the query ``q``, with three epochs."""
    copy_of(tmp_path, [{"a": 1}, {"a": 2, "b": 5}, {"b": 6, "c": 7}])
    return ss.open_store(tmp_path)


def test_columns_of_relations(small: Store) -> None:
    """Histories start with the interval, changes with the epoch and the kind. No internal column is visible."""
    assert small.sql("FROM q.history").columns == ["_valid_from", "_valid_to", "_partition", "key", "value"]
    assert small.sql("FROM q.changes").columns == ["_epoch", "_change", "_partition", "key", "value"]
    assert small.sql("FROM q").columns == ["key", "value"]


def test_a_valid_version_has_no_end(small: Store) -> None:
    """``_valid_to`` is NULL, even if a later epoch replaced the version."""
    assert rows(small.sql("SELECT _valid_from, _valid_to, value FROM q.history WHERE key = 'a'")) == [
        (0, 1, 1),
        (1, 2, 2),
    ]
    at_0 = small.sql("SELECT _valid_from, _valid_to, value FROM q.history VERSION AS OF 0")
    assert rows(at_0) == [(0, None, 1)]


def test_changes_are_the_changelog(small: Store) -> None:
    """Puts and deletes are listed with their epochs."""
    found = small.sql("SELECT _epoch, _change, key, value FROM q.op0.changes WHERE key = 'a' ORDER BY _epoch")
    assert found.to_pandas()["_change"].tolist() == ["put", "put", "delete"]
    assert found.to_arrow()["value"].to_pylist() == [1, 2, None]


def test_relations_can_be_named_by_their_table(small: Store) -> None:
    """The name of the only table is optional, and names are case-insensitive."""
    for name in ("q", "q.op0"):
        for kind in ("history", "HISTORY", "changes"):
            assert len(small.sql(f"FROM {name}.{kind}")) == len(small.sql(f"FROM q.{kind}"))


def test_relations_at_several_epochs(small: Store) -> None:
    """Each relation of a statement has its own epoch, and the result lists them."""
    sql = "SELECT 1 FROM q.history VERSION AS OF 1 h JOIN q VERSION AS OF 0 o USING (key) JOIN q n ON true"
    found = small.sql(sql.replace("1 h", "1 AS h").replace("0 o", "0 AS o").replace("q n", "q AS n"))
    assert found.epochs == {"q.history": [1], "q": [0, 2]}


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("FROM q.histories", UnknownTableError, "op0"),
        ("FROM q.op1.history", UnknownTableError, "op0"),
        ("FROM q.history.op0", UnknownNameError, "Relation names: q"),
        ("FROM history", UnknownNameError, "Relation names: q"),
        ("SELECT _hash FROM q.history", UnknownColumnError, "_valid_from, _valid_to, _partition, key, value"),
        ("FROM q.changes VERSION AS OF 9", UnknownEpochError, "nearest captured: 2"),
    ],
)
def test_unknown_names_are_refused(small: Store, sql: str, error: type[Exception], message: str) -> None:
    """The error lists the known names."""
    with pytest.raises(error, match=message):
        small.sql(sql)


def test_a_new_column_is_null_at_earlier_epochs(tmp_path: Path) -> None:
    """The column is NULL in earlier rows of the state, the history and the changes."""
    from streamstate.snapshots.store.changelog import key_columns, log_schema
    from streamstate.snapshots.store.delta import append_once, open_or_create
    from streamstate.snapshots.store.entries import Entry, TableEntry
    from streamstate.snapshots.store.layout import CAPTURED, Layout
    from streamstate.snapshots.store.manifest import Manifest

    write(tmp_path, [{"a": 1}])
    layout = Layout.at(tmp_path)
    log = layout.changelog("q", "op0")
    wider = pa.schema(
        [
            ("_epoch", pa.int64()),
            ("_change", pa.string()),
            ("_partition", pa.int32()),
            ("key", pa.string()),
            ("value", pa.int64()),
            ("more", pa.float64()),
        ]
    )
    table = open_or_create(log, log_schema(wider, ["key"]), "log")
    assert key_columns(pa.schema(table.schema().to_arrow())) == ["key"]
    extra = pa.Table.from_pylist([{"_epoch": 1, "_change": "put", "key": "b", "value": 2, "more": 0.5}], schema=wider)
    append_once(log, "q/op0", 1, lambda _stands: extra)
    Manifest(layout, "q").append([Entry(1, CAPTURED, tables={"op0": TableEntry(2, 1, None)})], "q/_epochs")
    store = ss.open_store(tmp_path)
    assert rows(store.sql("SELECT key, more FROM q")) == [("a", None), ("b", 0.5)]
    assert rows(store.sql("SELECT key, more FROM q VERSION AS OF 0")) == [("a", None)]
    assert rows(store.sql("SELECT key, more FROM q.history")) == [("a", None), ("b", 0.5)]
    assert rows(store.sql("SELECT key, more FROM q.changes")) == [("a", None), ("b", 0.5)]
