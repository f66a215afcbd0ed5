"""Keys as people give them: a window by its start, part of a key, and an example to copy in every error."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from branch_stores import Branch
from browser.stores import Written

import streamstate as ss
from streamstate.command_line import main
from streamstate.errors import InvalidArgumentError, StreamStateError
from streamstate.reports import History
from streamstate.widgets import KeyHistoryView

START = dt.datetime(2026, 11, 26, 9, 51, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
ROW = {"window": {"start": START, "end": START + MINUTE}, "user": "u1", "n": 3}

pytestmark = pytest.mark.usefixtures("read_from_files")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts by window and user in ``op0``, and the sessions of users in ``op1``."""
    path = tmp_path_factory.mktemp("given") / "store"
    counts = {"window": WINDOW, "user": pa.string(), "n": pa.int64()}
    sessions = {"user": pa.string(), "sessionStartTime": pa.timestamp("us", "UTC"), "session_window": WINDOW}
    written = Written(path, "visits", {"op0": (counts, 2), "op1": (sessions, 2)})
    for epoch in range(4):
        windows = [START + at * MINUTE for at in range(epoch)]
        of_users = {(Window(start), user): (epoch,) for start in windows for user in ("u1", None)}
        of_sessions = {(user, start): (Window(start),) for start in windows for user in ("u1", "u2")}
        written.add({"op0": of_users, "op1": of_sessions})
    return path


class Window(dict[str, Any]):
    """A window that can be part of a dict's key."""

    def __init__(self, start: dt.datetime) -> None:
        super().__init__(start=start, end=start + MINUTE)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self["start"])


@pytest.fixture
def history(folder: Path) -> History:
    """The query, with nothing loaded."""
    return ss.open_store(folder)["visits"]


GIVEN: dict[str, Any] = {
    "start": START,
    "start as text": "2026-11-26T09:51:00Z",
    "start in another zone": "2026-11-26T10:51:00+01:00",
    "both ends as text": "2026-11-26T09:51:00Z/2026-11-26T09:52:00Z",
    "mapping": {"start": START, "end": START + MINUTE},
    "mapping of text": {"start": "2026-11-26T09:51:00Z", "end": "2026-11-26T09:52:00Z"},
    "start in a mapping": {"start": START},
    "JSON": '{"start": "2026-11-26T09:51:00Z", "end": "2026-11-26T09:52:00Z"}',
    "pair": (START, START + MINUTE),
    "timestamp of pandas": pd.Timestamp(START),
    "interval of pandas": pd.Interval(pd.Timestamp(START), pd.Timestamp(START + MINUTE), closed="left"),
}


@pytest.mark.parametrize("window", GIVEN.values(), ids=GIVEN)
def test_a_window_can_be_given_in_many_ways(history: History, window: Any) -> None:
    """By its start, whose end is that of the other windows, or by both ends; wherever a key is taken."""
    table = history.live().table("op0")
    assert table.lookup(window=window, user="u1") == ROW
    assert table.lookup_many([{"window": window, "user": "u1"}])["n"].tolist() == [3]
    assert history.key_history("op0", window=window, user="u1")["n"].tolist() == [1, 2, 3]
    assert history.key_history(window=window, user="u1")["n"].tolist() == [1, 2, 3]
    assert history.first("n = 2", table="op0", window=window) == 2
    assert history.when("n = 2", table="op0", window=window, user="u1")["held_until"].tolist() == [3]
    with history.watch("n > 9", print, table="op0", interval=60, window=window) as watch:
        assert watch.running
    assert "3 changes" in repr(KeyHistoryView(history, "op0", {"window": window, "user": "u1"}))


@pytest.mark.parametrize("text", [text for text in GIVEN.values() if isinstance(text, str)])
def test_a_command_takes_a_window_by_its_start(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As ``window=START`` or ``window=START/END``."""
    words = [f"window={text}", "user=u1", "--at", "live"]
    assert main(["key", str(folder), "visits", "--table", "op0", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 3


def test_a_null_in_a_key_can_be_given(folder: Path, history: History, capsys: pytest.CaptureFixture[str]) -> None:
    """It is spelled ``null``; the text is spelled with quotes."""
    key = ["key", str(folder), "visits", "window=2026-11-26T09:51:00Z", "--table", "op0", "--at", "live", "--json"]
    for user, found in (("null", 1), ('"null"', 0)):
        assert main([*key, f"user={user}"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == found
    assert history.live().table("op0").lookup(window=START, user=None) == {**ROW, "user": None}


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("2026-11-26T09:51:00", "no time zone"),
        (START.replace(tzinfo=None), "no time zone"),
        ("yesterday", "a window's start, or start/end"),
        ({"strat": START}, "a window's start, or start/end"),
        (7, "a window's start, or start/end"),
    ],
)
def test_a_window_that_cannot_be_read_is_refused(history: History, window: Any, message: str) -> None:
    """The error says how it can be given."""
    with pytest.raises(InvalidArgumentError, match=message):
        history.key_history("op0", window=window, user="u1")


def test_a_session_can_be_given_by_its_window(history: History) -> None:
    """The result shows the window; the state's key has its start."""
    table = history.live().table("op1")
    expected = {"user": "u2", "sessionStartTime": START, "session_window": {"start": START, "end": START + MINUTE}}
    for session in (START, "2026-11-26T09:51:00Z", {"start": START, "end": START + 2 * MINUTE}):
        assert table.lookup(user="u2", session_window=session) == expected
    assert table.lookup(user="u2", sessionStartTime=START) == expected


def test_a_key_history_of_part_of_a_key(history: History, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All sessions of a user: the other key columns come before the values."""
    found = history.key_history("op1", user="u2")
    assert list(found.columns) == ["epoch", "change", "committed_at", "sessionStartTime", "session_window", "cause"]
    assert list(zip(found["epoch"], found["sessionStartTime"], strict=True)) == [
        (epoch, START + at * MINUTE) for epoch, at in ((1, 0), (2, 1), (3, 2))
    ]
    assert main(["key", str(folder), "visits", "user=u2", "--table", "op1", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    with pytest.raises(InvalidArgumentError, match="at least one column"):
        history.key_history("op1")


def test_a_history_of_part_of_a_key_can_include_ancestors(tmp_path: Path) -> None:
    """An edit of each of its keys shows, where the fork begins."""
    columns = {"op0": ({"user": pa.string(), "item": pa.string(), "n": pa.int64()}, 2)}
    first = [{"user": "u", "item": item, "n": 1} for item in "ab"]
    Branch(tmp_path, "sold", columns).add(0, {"op0": first})
    fork = Branch(tmp_path, "edited", columns, ("sold", 0))
    fork.add(0, {"op0": [{"user": "u", "item": "b", "n": 9}, {"user": "u", "item": "c", "n": 1}]})
    found = ss.open_store(tmp_path)["edited"].key_history(user="u", ancestors=True)
    assert found[["epoch", "change", "item", "query"]].to_numpy().tolist() == [
        [0, "put", "a", "sold"],
        [0, "put", "b", "sold"],
        [0, "delete", "a", "edited"],
        [0, "put", "b", "edited"],
        [0, "put", "c", "edited"],
    ]


ERRORS: dict[str, Callable[[History], object]] = {
    "missing column": lambda history: history.live().table("op0").lookup(user="u1"),
    "unknown column": lambda history: history.live().table("op0").lookup(windw=START, user="u1"),
    "wrong type": lambda history: history.live().table("op0").lookup(window="yesterday", user="u1"),
    "many keys": lambda history: history.live().table("op0").lookup_many([{"user": "u1"}]),
    "history": lambda history: history.key_history("op0", windw=START),
    "no key": lambda history: history.key_history("op0"),
    "condition": lambda history: history.first("n > 1", table="op0", window="yesterday"),
    "unknown column of a condition": lambda history: history.when("n > 1", table="op0", windw=START),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS)
def test_every_error_of_a_key_has_an_example_to_copy(history: History, call: Callable[[History], object]) -> None:
    """The example is a key that the table has, and it works as it is."""
    with pytest.raises(StreamStateError) as error:
        call(history)
    example = str(error.value).rpartition("For example: ")[2]
    found = eval(f"table.lookup({example})", {"table": history.live().table("op0")})
    assert found["n"] == 3


@pytest.mark.parametrize("words", [["user=u1"], ["window=yesterday", "user=u1"], ["windw=1"], ["user"]])
def test_every_error_of_a_commands_key_has_an_example_to_copy(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the command's own words."""
    command = ["key", str(folder), "visits", "--table", "op0", "--at", "live", "--json"]
    assert main([*command, *words]) == 1
    example = capsys.readouterr().err.rpartition("For example: ")[2]
    assert main([*command, *shlex.split(example)]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 3
