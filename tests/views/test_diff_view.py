"""The diff view: what it shows at once, and what it shows as soon as it is known."""

from __future__ import annotations

from pathlib import Path

import pytest
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
    assert [epochs for _, epochs in causes(whole.message)] == ["2–10", "4, 8"]
    assert all(cause not in ("", "…") for cause, _ in causes(whole.message))
    assert first.message["counts"] == whole.message["counts"]


def test_causes_that_are_soon_known_are_shown_at_once(model: DiffModel) -> None:
    """Rows whose causes came and went would flicker."""
    first = model.quick(SELECTION)
    assert not first.unfinished
    assert causes(first.message) == causes(model.drawing(SELECTION).message)
