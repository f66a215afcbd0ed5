"""``Store.tail`` keeps tables that were read before current in the background."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import State, write

import streamstate as ss
from streamstate.errors import InvalidArgumentError

STATES: list[State | None] = [{"a": epoch, str(epoch): 1} for epoch in range(6)]


def until(happened: Callable[[], object]) -> None:
    """Wait for a condition; half a minute is enough on any machine."""
    pause = threading.Event()
    for _ in range(3000):
        if happened():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")


def test_new_epochs_are_loaded_in_advance(tmp_path: Path) -> None:
    """The index of a table that was read has the newest epoch before the next read."""
    write(tmp_path / "store", STATES[:3])
    store = ss.open_store(tmp_path / "store")
    held = store["q"].live()
    table = held.table()
    with store.tail(interval=0.01):
        index = store["q"].recorded.interval_table("op0", 2, 2)
        assert index.high == 2
        write(tmp_path / "store", STATES)
        until(lambda: index.high == 5)
    assert table.lookup(key="a") == {"key": "a", "value": 2}
    assert store["q"].live().table().lookup(key="a") == {"key": "a", "value": 5}


def test_unread_tables_are_not_loaded(tmp_path: Path) -> None:
    """A query whose state was never read takes no memory."""
    write(tmp_path / "store", STATES)
    store = ss.open_store(tmp_path / "store")
    history = store["q"]
    with store.tail(interval=0.01) as tail:
        history.recorded.advance()
        assert tail.running
    assert history.recorded.interval_table("op0", 0).low == 0  # this call loads it
    assert not tail.running


def test_a_missing_store_is_an_error_of_the_tail_handle(tmp_path: Path) -> None:
    """The thread prints nothing; loaded epochs stay readable."""
    write(tmp_path / "store", STATES[:3])
    store = ss.open_store(tmp_path / "store")
    table = store["q"].live().table()
    with store.tail(interval=0.01) as tail:
        shutil.rmtree(tmp_path / "store")
        until(lambda: tail.error is not None)
        assert "last error" in repr(tail)
    assert table.lookup(key="a") == {"key": "a", "value": 2}


@pytest.mark.parametrize("interval", [0, -1, "1s", True])
def test_an_invalid_tail_interval_is_rejected(tmp_path: Path, interval: object) -> None:
    """The error says what would be valid."""
    write(tmp_path / "store", STATES[:1])
    with pytest.raises(InvalidArgumentError, match="seconds"):
        ss.open_store(tmp_path / "store").tail(interval=interval)  # type: ignore[arg-type]


def test_stopping_a_tail_is_idempotent(tmp_path: Path) -> None:
    """Stopping it twice is not an error."""
    write(tmp_path / "store", STATES[:1])
    tail = ss.open_store(tmp_path / "store").tail()
    tail.stop()
    tail.stop()
    assert "stopped" in repr(tail)
