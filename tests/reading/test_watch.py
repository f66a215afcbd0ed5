"""A watch calls back when a condition becomes true, and reports what ended it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import State, write

import streamstate as ss
from streamstate.errors import InvalidArgumentError, InvalidSQLError, StoreError, UnknownColumnError
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.plan_table import store_plan
from streamstate.snapshots.store.query_plans.query_plan import PlannedColumn, QueryPlan, TablePlan
from streamstate.state_inspect.conditions.watch import Watch, WatchEvent

PROMPTLY = 0.01
STATES: list[State | None] = [{"a": 9}, {"a": 9, "b": 1}, {"a": 9, "b": 7, "c": 8}, {"a": 9, "b": 7}, {"b": 8, "c": 6}]


class EventRecorder:
    """Records events, and lets a test wait for them."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []
        self._changed = threading.Condition()

    def __call__(self, event: WatchEvent) -> None:
        """Record an event."""
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        """Wait until there are this many events."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, timeout=300)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that a thread brings about."""
    waiting = threading.Event()
    for _ in range(3_000):
        if condition():
            return
        waiting.wait(PROMPTLY)
    raise AssertionError("it did not come")


def test_a_watch_fires_once_per_epoch_with_new_matches(tmp_path: Path) -> None:
    """Rows that matched when the watch started, or that keep matching, do not fire; rows that match again do."""
    write(tmp_path, STATES[:2])
    history, seen = ss.open_store(tmp_path)["q"], EventRecorder()
    with history.watch("value > 5", seen, interval=PROMPTLY) as watch:
        write(tmp_path, STATES)
        seen.wait(2)
    assert [(event.epoch, event.count) for event in seen.events] == [(2, 2), (4, 1)]
    assert [event.rows["key"].tolist() for event in seen.events] == [["b", "c"], ["c"]]
    assert seen.events[0].snapshot.table().count() == 3
    assert (watch.fired, watch.error, watch.running) == (2, None, False)
    assert "stopped" in repr(watch)


def test_a_watch_can_be_limited_to_one_key(tmp_path: Path) -> None:
    """Other rows do not fire it."""
    write(tmp_path, STATES[:2])
    history, seen = ss.open_store(tmp_path)["q"], EventRecorder()
    with history.watch("value > 7", seen, interval=PROMPTLY, key="b") as watch:
        write(tmp_path, STATES)
        seen.wait(1)
        assert watch.running
    assert [event.epoch for event in seen.events] == [4]


def test_a_watch_of_a_result(tmp_path: Path) -> None:
    """A condition on the query's own columns; the events have these columns, too."""
    key, value = ({"is": "State", "part": part, "at": 0} for part in ("key", "value"))
    columns = [PlannedColumn("name", "string", key | {"type": "string"})]
    columns.append(PlannedColumn("score", "long", value | {"type": "long"}))
    table = TablePlan((PlannedColumn("key", "string"),), (PlannedColumn("value", "long"),), (None,), tuple(columns))
    write(tmp_path, STATES[:2])
    store_plan(Layout.at(tmp_path), "q", QueryPlan("update", "4.3.0", {}, {"op0": table}), 0)
    history, seen = ss.open_store(tmp_path)["q"], EventRecorder()
    with history.watch("score > 5", seen, interval=PROMPTLY) as watch:
        assert watch.table == "result"
        write(tmp_path, STATES)
        seen.wait(2)
    assert [event.epoch for event in seen.events] == [2, 4]
    assert seen.events[0].rows.to_dict("list") == {"name": ["b", "c"], "score": [7, 8]}
    with history.watch("value > 5", seen) as watch:
        assert watch.table == "op0"


def test_a_match_before_and_after_a_gap_is_not_new(tmp_path: Path) -> None:
    """The previous captured epoch decides."""
    states: list[State | None] = [{"a": 9}, None, {"a": 9, "b": 9}]
    write(tmp_path, states[:1])
    history, seen = ss.open_store(tmp_path)["q"], EventRecorder()
    with history.watch("value > 5", seen, interval=PROMPTLY):
        write(tmp_path, states)
        seen.wait(1)
    assert seen.events[0].rows["key"].tolist() == ["b"]


def test_an_error_of_the_callback_ends_the_watch(tmp_path: Path) -> None:
    """The handle has the error; nothing is printed."""

    def fails(event: WatchEvent) -> None:
        raise ValueError(f"at {event.epoch}")

    write(tmp_path, STATES[:1])
    watch = ss.open_store(tmp_path)["q"].watch("value > 5", fails, interval=PROMPTLY)
    write(tmp_path, STATES)
    until(lambda: not watch.running)
    assert isinstance(watch.error, ValueError)
    assert str(watch.error) == "at 2"
    assert "ValueError" in repr(watch)
    watch.stop()


def test_a_damaged_store_ends_the_watch(tmp_path: Path) -> None:
    """The handle has the store's error."""
    write(tmp_path, STATES)
    watch = ss.open_store(tmp_path)["q"].watch("value > 5", EventRecorder(), interval=PROMPTLY)
    log = tmp_path / "q" / "_epochs" / "_delta_log"
    newest = max(int(entry.stem) for entry in log.glob("*.json") if entry.stem.isdigit())
    hidden = log / "hidden"
    hidden.write_text("{damaged", encoding="utf-8")
    hidden.rename(log / f"{newest + 1:020}.json")
    until(lambda: not watch.running)
    assert isinstance(watch.error, StoreError)


def test_a_callback_may_stop_its_watch(tmp_path: Path) -> None:
    """Stopping does not wait for the callback itself."""
    write(tmp_path, STATES[:1])
    handles: list[Watch] = []
    started = threading.Event()

    def once(event: WatchEvent) -> None:
        started.wait(30)
        handles[0].stop()

    handles.append(ss.open_store(tmp_path)["q"].watch("value > 5", once, interval=PROMPTLY))
    started.set()
    write(tmp_path, STATES)
    until(lambda: not handles[0].running)
    assert (handles[0].fired, handles[0].error) == (1, None)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"predicate": "nope > 5"}, UnknownColumnError),
        ({"predicate": "count(*) > 5"}, InvalidSQLError),
        ({"interval": 0}, InvalidArgumentError),
        ({"callback": 3}, InvalidArgumentError),
        ({"kez": "a"}, UnknownColumnError),
    ],
)
def test_invalid_arguments_of_a_watch_raise_immediately(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception]
) -> None:
    """The call raises, not the handle."""
    write(tmp_path, STATES[:1])
    given: dict[str, Any] = {"predicate": "value > 5", "callback": print, **arguments}
    with pytest.raises(error):
        ss.open_store(tmp_path)["q"].watch(given.pop("predicate"), given.pop("callback"), **given)
