"""Expiry times are kept in milliseconds, and shown as times: in views and as text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from synthetic import write

import streamstate as ss
from streamstate.command_line import main
from streamstate.reports import History
from streamstate.state_inspect.cell_text import timestamp
from streamstate.state_inspect.expiry_times import expiry, expiry_columns
from streamstate.widgets.diffs.actions import DiffSelection
from streamstate.widgets.diffs.model import DiffModel
from streamstate.widgets.key_history.actions import KeySelection
from streamstate.widgets.key_history.model import KeyHistoryModel
from streamstate.widgets.state_browser.actions import BrowserSelection
from streamstate.widgets.state_browser.model import BrowserModel

DUE = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
MILLISECONDS = int(DUE.timestamp() * 1000)
NEVER = -1
STATES: list[dict[str, int] | None] = [{"a": MILLISECONDS, "b": NEVER}, {"a": MILLISECONDS + 60_000, "b": NEVER}]
"""The timeouts of two keys; the second has none."""


@pytest.fixture(scope="module")
def timeouts(tmp_path_factory: pytest.TempPathFactory) -> History:
    """The state of an ``applyInPandasWithState``, and beside it that of an aggregation with such a column."""
    folder = tmp_path_factory.mktemp("timeouts")
    facts = [{"watermark": DUE - timedelta(minutes=5)}] * 2
    write(folder, STATES, operator="applyInPandasWithState", value="timeoutTimestamp", facts=facts)
    write(folder, STATES, operator="stateStoreSave", value="timeoutTimestamp", query="sums")
    return ss.open_store(folder)["q"]


def test_only_spark_s_own_columns_are_times(timeouts: History) -> None:
    """A column of the same name that a user has made stays a number."""
    assert expiry_columns(timeouts.recorded, "op0") == {"timeoutTimestamp"}
    sums = ss.open_store(Path(timeouts.recorded.layout.root))["sums"]
    assert expiry_columns(sums.recorded, "op0") == expiry_columns(sums.recorded, "result") == set()
    assert [expiry(value) for value in (MILLISECONDS, NEVER, None)] == [DUE, "never", None]


def test_the_browser_shows_times_beside_the_watermark(timeouts: History) -> None:
    """Also in what a cell was, and in the history of a key."""
    drawing = BrowserModel(timeouts).view(BrowserSelection(key={"key": "a"}))
    first, second = drawing.page.rows
    assert [cell.text for cell in first.cells] == ["a", timestamp(DUE + timedelta(minutes=1))]
    assert first.was[1].text == timestamp(DUE)
    assert second.cells[1].text == "never"
    assert dict(drawing.facts)["watermark"] == timestamp(DUE - timedelta(minutes=5))
    assert drawing.history is not None
    assert [change.cells[0].text for change in drawing.history.changes] == [
        timestamp(DUE + timedelta(minutes=1)), timestamp(DUE),
    ]  # fmt: skip


def test_a_diff_says_by_how_much_time_they_moved(timeouts: History) -> None:
    """Not by how many milliseconds."""
    [row] = DiffModel(timeouts).view(DiffSelection(0, 1)).page.rows
    value = row.values[0]
    assert (value.now.whole, value.moved) == (timestamp(DUE + timedelta(minutes=1)), "+0:01:00")
    assert value.was is not None
    assert value.was.whole == timestamp(DUE)


def test_a_key_s_history_draws_them_as_times(timeouts: History) -> None:
    """On an axis of time."""
    message = KeyHistoryModel(timeouts).drawing(KeySelection("op0", {"key": "a"})).message
    assert timestamp(DUE) in str(message["page"])
    assert str(MILLISECONDS) not in str(message)


def test_the_command_line_prints_times_and_in_json_what_is_stored(
    timeouts: History, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text is for people, JSON for programs."""

    def printed(*options: str, command: str = "show") -> str:
        main([command, timeouts.recorded.layout.root, "q", *options])
        return capsys.readouterr().out

    assert "2026-03-01T12:31:00" in printed()
    assert "never" in printed()
    assert f'"timeoutTimestamp": {MILLISECONDS}' in printed("--at", "0", "--json")
    assert "2026-03-01T12:30:00" in printed("key=a", command="key")


@pytest.mark.parametrize(
    "read",
    [
        lambda history: history.live().table().to_pandas(),
        lambda history: history.key_history(key="a"),
        lambda history: history.diff(0, 1).to_pandas().rename(columns={"timeoutTimestamp_new": "timeoutTimestamp"}),
    ],
)
def test_data_are_as_stored(timeouts: History, read: Callable) -> None:  # type: ignore[type-arg]
    """Columns are Spark's."""
    assert read(timeouts)["timeoutTimestamp"].iloc[-1] in (NEVER, MILLISECONDS + 60_000)
