"""The diff view: what it shows at once, and what it shows as soon as it is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from browser.stores import Written
from reading.test_keys_given import MINUTE, START, WINDOW, Window
from synthetic import State, write

import streamstate as ss
from streamstate.widgets.diffs.actions import DiffSelection
from streamstate.widgets.diffs.model import DiffModel

STATES: list[State | None] = [{"a": epoch, "b": epoch // 4} for epoch in range(12)]
SELECTION = DiffSelection(a=1, b=10)


@pytest.fixture
def model(tmp_path: Path) -> DiffModel:
    """Two keys that change between two distant epochs."""
    write(tmp_path, STATES, keyframe_every=3)
    return DiffModel(ss.open_store(tmp_path)["q"])


def causes(message: object) -> list[tuple[str, str]]:
    """Of each row the causes, and the epochs of the changes."""
    assert isinstance(message, dict)
    return [(row["cause"], row["epochs"]) for row in message["page"]["rows"]]


@pytest.mark.usefixtures("read_from_files")
def test_rows_are_shown_before_their_causes_are_known(model: DiffModel) -> None:
    """To find the causes, every epoch in between may have to be read."""
    first, whole = model.quick(SELECTION), model.drawing(SELECTION)
    assert (first.unfinished, whole.unfinished) == (True, False)
    assert causes(first.message) == [("…", ""), ("…", "")]
    assert [epochs for _, epochs in causes(whole.message)] == ["4, 8", "2–10"]
    assert all(cause not in ("", "…") for cause, _ in causes(whole.message))
    assert first.message["counts"] == whole.message["counts"]


def test_causes_that_are_soon_known_are_shown_at_once(model: DiffModel) -> None:
    """Rows whose causes came and went would flicker."""
    first = model.quick(SELECTION)
    assert not first.unfinished
    assert causes(first.message) == causes(model.drawing(SELECTION).message)


def keys(message: Any) -> list[str]:
    """The key of each row."""
    return [row["keys"][0]["text"] for row in message["page"]["rows"]]


def test_a_diff_opens_with_the_largest_relative_changes(tmp_path: Path) -> None:
    """Of the first number that moved; what was 0 has changed the most, and added keys come last."""
    write(tmp_path, [{"a": 1_000, "b": 10, "c": 0, "d": 5}, {"a": 1_100, "b": 20, "c": 1, "d": 5, "n": 7}])
    history = ss.open_store(tmp_path)["q"]
    opened = DiffModel(history)
    message = opened.drawing(DiffSelection(0, 1)).message
    assert keys(message) == ["c", "b", "a", "n"]
    chosen = {"order_by": "value", "by_size": True, "relative": True, "descending": True}
    assert {name: message["selection"][name] for name in chosen} == chosen
    shown = history.diff(0, 1)._repr_html_()
    assert shown.index(">c<") < shown.index(">b<") < shown.index(">a<") < shown.index(">n<")


def test_a_person_can_choose_the_order_of_keys(tmp_path: Path) -> None:
    """The order that a diff opens with does not come back by itself."""
    write(tmp_path, [{"a": 1, "b": 1}, {"a": 2, "b": 9}])
    model = DiffModel(ss.open_store(tmp_path)["q"])
    selection = model.acted(DiffSelection(0, 1), "sort", {"column": None}, None)
    message = model.drawing(selection).message
    assert (keys(message), message["selection"]["order_by"]) == (["a", "b"], None)


def test_a_diff_without_numbers_opens_in_the_order_of_keys(tmp_path: Path) -> None:
    """There is no relative change of a text."""
    written = Written(tmp_path, "q", {"op0": ({"k": pa.string(), "text": pa.string()}, 1)})
    for texts in ("xy", "zz"):
        written.add({"op0": {(key,): (text,) for key, text in zip("ab", texts, strict=True)}})
    message = DiffModel(ss.open_store(tmp_path)["q"]).drawing(DiffSelection(0, 1)).message
    assert (keys(message), message["selection"]["order_by"]) == (["a", "b"], None)


def test_labels_of_movers_have_the_parts_of_the_key_that_differ(tmp_path: Path) -> None:
    """The common part is shown once, and the tooltip has the whole key."""
    columns = {"window": WINDOW, "user": pa.string(), "n": pa.int64()}
    written = Written(tmp_path, "q", {"op0": (columns, 2)})
    for numbers in ((1, 1), (3, 9)):
        written.add({"op0": {(Window(START), user): (n,) for user, n in zip(("u1", "u2"), numbers, strict=True)}})
    model = DiffModel(ss.open_store(tmp_path)["q"])
    movers = model.drawing(DiffSelection(0, 1)).kept.movers
    start = f"{START.astimezone():%Y-%m-%d %H:%M}"
    assert movers.common == f"of window {start} +1min"
    assert [row["key"] for row in movers.chart.rows] == ["u2", "u1"]
    assert f"window {start}:00 – " in movers.chart.rows[0]["whole"]
    assert movers.chart.rows[0]["whole"].endswith("user u2")
    assert movers.common in model.html(model.drawing(DiffSelection(0, 1)))


def test_labels_of_movers_leave_out_the_day_that_all_windows_have(tmp_path: Path) -> None:
    """So that there is room for the rest of the key."""
    columns = {"window": WINDOW, "user": pa.string(), "n": pa.int64()}
    written = Written(tmp_path, "q", {"op0": (columns, 2)})
    starts = [START, START + 2 * MINUTE]
    for numbers in ((1, 1), (3, 9)):
        written.add({"op0": {(Window(start), "u1"): (n,) for start, n in zip(starts, numbers, strict=True)}})
    movers = DiffModel(ss.open_store(tmp_path)["q"]).drawing(DiffSelection(0, 1)).kept.movers
    assert movers.common == f"of window {START.astimezone():%Y-%m-%d} +1min, user u1"
    assert [row["key"] for row in movers.chart.rows] == [f"{start.astimezone():%H:%M}" for start in reversed(starts)]
