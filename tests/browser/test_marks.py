"""The marks beside the slider: gaps, restarts and forks, by position and in words."""

from __future__ import annotations

from dataclasses import replace

from streamstate.snapshots.store.entries import Entry
from streamstate.snapshots.store.layout import CAPTURED
from streamstate.snapshots.store.registry import ForkPoint
from streamstate.widgets.state_browser.marks import APART, SliderMark, slider_marks


def captured(*epochs: int, run: str = "first") -> list[Entry]:
    """Entries of captured epochs."""
    return [Entry(epoch, CAPTURED, run) for epoch in epochs]


def test_consecutive_epochs_have_no_marks() -> None:
    """A query without epochs has none either."""
    assert slider_marks("q", []).drawn == ()
    assert slider_marks("q", [Entry.gap(0)]).drawn == ()
    assert slider_marks("q", captured(0, 1, 2)).drawn == []


def test_a_gap_is_marked_between_two_positions() -> None:
    """The slider leaves out missing epochs; consecutive missing epochs are one gap."""
    entries = [*captured(0, 1), Entry.gap(2), Entry.gap(3), *captured(4, 5)]
    marks = slider_marks("q", entries)
    assert marks.drawn == [SliderMark("gap", 0.5, "Gap: 2 epochs, 2–3 could not be captured")]
    assert marks.facts == (("gap", "2–3"),)


def test_a_restart_is_marked_where_the_run_changes() -> None:
    """This also holds across a gap; an epoch whose run is unknown has no mark."""
    entries = [*captured(0, 1), Entry.gap(2), *captured(3, 4, run="second")]
    assert [(mark.kind, mark.place) for mark in slider_marks("q", entries).drawn] == [
        ("gap", 0.5),
        ("restart", 0.66667),
    ]
    unknown = [replace(entry, run_id=None) for entry in entries]
    assert [mark.kind for mark in slider_marks("q", unknown).drawn] == ["gap"]


def test_forks_are_marked_where_they_start() -> None:
    """Forks of this query are marked, and its own parent is described too."""
    marks = slider_marks("q", captured(0, 1, 2), [ForkPoint("branch", "q", 1), ForkPoint("q", "origin", 7)])
    assert [(mark.kind, mark.place, mark.title) for mark in marks.drawn] == [
        ("fork", 0.5, "Fork: branch branches off after epoch 1")
    ]
    assert marks.facts == (("fork", "branch after 1"), ("forked from", "origin after epoch 7"))


def test_marks_of_ten_thousand_epochs_are_merged_without_loss() -> None:
    """Merged marks still count every gap, and each is in its place."""
    entries = [Entry.gap(epoch) if epoch % 10 == 9 else captured(epoch)[0] for epoch in range(10_000)]
    marks = slider_marks("q", entries)
    assert 2 <= len(marks.drawn) <= APART
    assert sum(mark.count for mark in marks.drawn) == 1_000
    assert all(0 <= mark.place <= 1 for mark in marks.drawn)
    assert [mark.place for mark in marks.drawn] == sorted(mark.place for mark in marks.drawn)
    assert marks.facts == (("gaps", "1,000, the last 9999"),)
    assert "gaps, epochs 9–" in marks.drawn[0].title
