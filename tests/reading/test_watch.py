"""A watch calls back when a condition comes true, and tells what ended it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import State, write

import streamstate as ss
from streamstate.snapshots.errors import InvalidArgumentError, InvalidSQLError, StoreError, UnknownColumnError
from streamstate.state_inspect.conditions.watch import Watch, WatchEvent

PROMPTLY = 0.01
STATES: list[State | None] = [{"a": 9}, {"a": 9, "b": 1}, {"a": 9, "b": 7, "c": 8}, {"a": 9, "b": 7}, {"b": 8, "c": 6}]


class Seen:
    """Gathers events, and lets a test wait for them."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []
        self._changed = threading.Condition()

    def __call__(self, event: WatchEvent) -> None:
        """The callback."""
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        """Until there are so many events."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, timeout=30)


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that a thread brings about."""
    waiting = threading.Event()
    for _ in range(3_000):
        if condition():
            return
        waiting.wait(PROMPTLY)
    raise AssertionError("it did not come")


def test_it_fires_once_for_each_epoch_in_which_rows_begin_to_meet_it(tmp_path: Path) -> None:
    """Not for those that met it when it began, nor for those that go on meeting it; again for one that returns."""
    write(tmp_path, STATES[:2])
    history, seen = ss.open_store(tmp_path)["q"], Seen()
    with history.watch("value > 5", seen, every=PROMPTLY) as watch:
        write(tmp_path, STATES)
        seen.wait(2)
    assert [(event.epoch, event.count) for event in seen.events] == [(2, 2), (4, 1)]
    assert [event.rows["key"].tolist() for event in seen.events] == [["b", "c"], ["c"]]
    assert seen.events[0].snapshot.table().count() == 3
    assert (watch.fired, watch.error, watch.running) == (2, None, False)
    assert "stopped" in repr(watch)


def test_it_watches_one_key(tmp_path: Path) -> None:
    """Other rows do not set it off."""
    write(tmp_path, STATES[:2])
    history, seen = ss.open_store(tmp_path)["q"], Seen()
    with history.watch("value > 7", seen, every=PROMPTLY, key="b") as watch:
        write(tmp_path, STATES)
        seen.wait(1)
        assert watch.running
    assert [event.epoch for event in seen.events] == [4]


def test_what_held_before_a_gap_and_after_it_is_not_new(tmp_path: Path) -> None:
    """The captured epoch before is what counts."""
    states: list[State | None] = [{"a": 9}, None, {"a": 9, "b": 9}]
    write(tmp_path, states[:1])
    history, seen = ss.open_store(tmp_path)["q"], Seen()
    with history.watch("value > 5", seen, every=PROMPTLY):
        write(tmp_path, states)
        seen.wait(1)
    assert seen.events[0].rows["key"].tolist() == ["b"]


def test_an_error_of_the_callback_ends_it(tmp_path: Path) -> None:
    """The handle has the error; nothing is printed."""

    def fails(event: WatchEvent) -> None:
        raise ValueError(f"at {event.epoch}")

    write(tmp_path, STATES[:1])
    watch = ss.open_store(tmp_path)["q"].watch("value > 5", fails, every=PROMPTLY)
    write(tmp_path, STATES)
    until(lambda: not watch.running)
    assert isinstance(watch.error, ValueError)
    assert str(watch.error) == "at 2"
    assert "ValueError" in repr(watch)
    watch.stop()


def test_a_store_that_is_damaged_ends_it(tmp_path: Path) -> None:
    """The error is the store's."""
    write(tmp_path, STATES)
    watch = ss.open_store(tmp_path)["q"].watch("value > 5", Seen(), every=PROMPTLY)
    log = tmp_path / "q" / "_epochs" / "_delta_log"
    newest = max(int(one.stem) for one in log.glob("*.json") if one.stem.isdigit())
    hidden = log / "hidden"
    hidden.write_text("{damaged", encoding="utf-8")
    hidden.rename(log / f"{newest + 1:020}.json")
    until(lambda: not watch.running)
    assert isinstance(watch.error, StoreError)


def test_a_callback_may_stop_it(tmp_path: Path) -> None:
    """Which does not wait for itself."""
    write(tmp_path, STATES[:1])
    handles: list[Watch] = []
    started = threading.Event()

    def once(event: WatchEvent) -> None:
        started.wait(30)
        handles[0].stop()

    handles.append(ss.open_store(tmp_path)["q"].watch("value > 5", once, every=PROMPTLY))
    started.set()
    write(tmp_path, STATES)
    until(lambda: not handles[0].running)
    assert (handles[0].fired, handles[0].error) == (1, None)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"predicate": "nope > 5"}, UnknownColumnError),
        ({"predicate": "count(*) > 5"}, InvalidSQLError),
        ({"every": 0}, InvalidArgumentError),
        ({"callback": 3}, InvalidArgumentError),
        ({"kez": "a"}, UnknownColumnError),
    ],
)
def test_mistakes_are_told_at_once(tmp_path: Path, arguments: dict[str, Any], error: type[Exception]) -> None:
    """By the call, not by the handle."""
    write(tmp_path, STATES[:1])
    given: dict[str, Any] = {"predicate": "value > 5", "callback": print, **arguments}
    with pytest.raises(error):
        ss.open_store(tmp_path)["q"].watch(given.pop("predicate"), given.pop("callback"), **given)
