"""``Store.tail``: what was read before is kept current in the background."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import State, write

import streamstate as ss
from streamstate.snapshots.errors import InvalidArgumentError

STATES: list[State | None] = [{"a": epoch, str(epoch): 1} for epoch in range(6)]


def until(happened: Callable[[], object]) -> None:
    """Wait for a condition; half a minute is more than any machine needs."""
    pause = threading.Event()
    for _ in range(3000):
        if happened():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")


def test_new_epochs_are_loaded_without_being_asked_for(tmp_path: Path) -> None:
    """The index of a table that was read has the newest epoch before anybody asks for it."""
    write(tmp_path / "store", STATES[:3])
    store = ss.open_store(tmp_path / "store")
    held = store["q"].live()
    table = held.table()
    with store.tail(every=0.01):
        index = store["q"].interval_table("op0", 2, 2)
        assert index.high == 2
        write(tmp_path / "store", STATES)
        until(lambda: index.high == 5)
    assert table.lookup(key="a") == {"key": "a", "value": 2}
    assert store["q"].live().table().lookup(key="a") == {"key": "a", "value": 5}


def test_what_nobody_read_is_not_loaded(tmp_path: Path) -> None:
    """A query whose state was never asked for takes no memory."""
    write(tmp_path / "store", STATES)
    store = ss.open_store(tmp_path / "store")
    history = store["q"]
    with store.tail(every=0.01) as tail:
        history.advance()
        assert tail.running
    assert history.interval_table("op0", 0).low == 0  # loaded now, by the question
    assert not tail.running


def test_a_store_that_goes_away_is_an_error_of_the_handle(tmp_path: Path) -> None:
    """Nothing is printed from the thread; what was loaded stays readable."""
    write(tmp_path / "store", STATES[:3])
    store = ss.open_store(tmp_path / "store")
    table = store["q"].live().table()
    with store.tail(every=0.01) as tail:
        shutil.rmtree(tmp_path / "store")
        until(lambda: tail.error is not None)
        assert "last error" in repr(tail)
    assert table.lookup(key="a") == {"key": "a", "value": 2}


@pytest.mark.parametrize("every", [0, -1, "1s", True])
def test_seconds_are_checked(tmp_path: Path, every: object) -> None:
    """The error says what would be right."""
    write(tmp_path / "store", STATES[:1])
    with pytest.raises(InvalidArgumentError, match="seconds"):
        ss.open_store(tmp_path / "store").tail(every=every)  # type: ignore[arg-type]


def test_stopping_twice_is_fine(tmp_path: Path) -> None:
    """Idempotent."""
    write(tmp_path / "store", STATES[:1])
    tail = ss.open_store(tmp_path / "store").tail()
    tail.stop()
    tail.stop()
    assert "stopped" in repr(tail)
