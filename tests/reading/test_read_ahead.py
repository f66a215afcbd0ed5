"""Loading ahead: what is wanted next replaces what was wanted before, and nothing goes on after a stop."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from synthetic import State, copy_of

import streamstate as ss
from reading.test_tail import until
from streamstate.errors import StoreError
from streamstate.reports import History
from streamstate.state_inspect.temporal_index.background_loading import ReadAhead
from streamstate.state_inspect.temporal_index.loading import loading_progress
from streamstate.state_inspect.temporal_index.query_interrupts import QueryStopped, RunningStatements
from streamstate.widgets.state_browser.actions import BrowserSelection
from streamstate.widgets.state_browser.model import BrowserModel

STATES: list[State | None] = [{"a": epoch, "b": epoch // 3} for epoch in range(30)]


@pytest.fixture
def history(tmp_path: Path) -> History:
    """30 epochs, a keyframe every five."""
    copy_of(tmp_path / "store", STATES, keyframe_every=5)
    return ss.open_store(tmp_path / "store")["q"]


def lows(history: History) -> set[int | None]:
    """The first epochs of what is loaded."""
    return {table.low for table in history.recorded.index.loaded("q", "op0")}


def test_the_browser_reads_the_epochs_beside_those_it_shows(history: History) -> None:
    """After a slider move, the parts before and after are loaded; closing the view stops that."""
    model = BrowserModel(history)
    model.quick(BrowserSelection(epoch=12))
    until(lambda: {5, 10, 15} <= lows(history))
    model.release()
    assert not [thread for thread in threading.enumerate() if thread.name == "streamstate-read-ahead"]


def test_what_is_wanted_next_replaces_what_was_wanted_before() -> None:
    """A load that is under way and still wanted goes on; errors are left to whoever asks."""
    loaded: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def load(_table: str, epoch: int) -> None:
        begun.set()
        assert go_on.wait(60)
        loaded.append(epoch)
        if epoch == 1:
            raise StoreError("gone")

    ahead = ReadAhead(load)
    ahead.want("t", [1, 2])
    assert begun.wait(60)
    ahead.want("t", [3, 1])
    go_on.set()
    until(lambda: loaded == [1, 3])
    ahead.stop()
    assert loaded == [1, 3]


def test_loading_can_be_stopped(history: History) -> None:
    """Nothing of it stays, and the same epochs can be loaded afterwards."""
    running = RunningStatements()

    def stop(_name: str, _read: int, _expected: int) -> None:
        running.stop()

    with running.active(), loading_progress(stop), pytest.raises(QueryStopped):
        history.at(12).table()
    running.wait()
    assert lows(history) == set()
    assert history.at(12).table().lookup(key="a") == {"key": "a", "value": 12}
    live = RunningStatements()

    def stop_live(_name: str, _read: int, _expected: int) -> None:
        live.stop()

    with live.active(), loading_progress(stop_live), pytest.raises(QueryStopped):
        history.live().table()
    live.wait()
    assert history.live().table().lookup(key="a") == {"key": "a", "value": 29}


_ENDS = """
import subprocess
import sys
import threading
import duckdb
from streamstate.state_inspect.temporal_index.query_interrupts import interruptible
from streamstate.state_inspect.temporal_index.background_loading import ReadAhead

database, begun = duckdb.connect(), threading.Event()

def load(table, epoch):
    with interruptible(database):
        begun.set()
        database.execute("SELECT count(*) FROM range(1_000_000_000_000) WHERE random() > 2")

ReadAhead(load).want("t", [1])
begun.wait()
"""


@pytest.mark.slow
def test_a_process_may_end_while_it_reads_ahead() -> None:
    """Python would end the thread within DuckDB, which aborts the process."""
    ended = subprocess.run([sys.executable, "-c", _ENDS], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
