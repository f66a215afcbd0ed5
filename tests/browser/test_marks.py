"""What stands beside the slider: gaps, restarts and forks, in their places and in words."""

from __future__ import annotations

from dataclasses import replace

from streamstate.snapshots.layout import CAPTURED
from streamstate.snapshots.manifest import Entry
from streamstate.state_inspect.forks import Forked
from streamstate.widgets.browser.marks import APART, Mark, marks


def captured(*epochs: int, run: str = "first") -> list[Entry]:
    """Entries of captured epochs."""
    return [Entry(epoch, CAPTURED, run) for epoch in epochs]


def test_without_anything_to_say_there_are_no_marks() -> None:
    """Neither for a query that has no epoch, nor for one whose epochs follow each other."""
    assert marks("q", []).drawn == ()
    assert marks("q", [Entry.gap(0)]).drawn == ()
    assert marks("q", captured(0, 1, 2)).drawn == []


def test_a_gap_lies_between_two_positions() -> None:
    """The slider leaves out what is missing; however many epochs are, it is one gap."""
    entries = [*captured(0, 1), Entry.gap(2), Entry.gap(3), *captured(4, 5)]
    told = marks("q", entries)
    assert told.drawn == [Mark("gap", 0.5, "Gap: 2 epochs, 2–3 could not be captured")]
    assert told.facts == (("gap", "2–3"),)


def test_a_restart_is_where_the_run_changes() -> None:
    """Also across a gap; an epoch whose run is not known says nothing."""
    entries = [*captured(0, 1), Entry.gap(2), *captured(3, 4, run="second")]
    assert [(mark.kind, mark.place) for mark in marks("q", entries).drawn] == [("gap", 0.5), ("restart", 0.66667)]
    unknown = [replace(entry, run_id=None) for entry in entries]
    assert [mark.kind for mark in marks("q", unknown).drawn] == ["gap"]


def test_forks_stand_where_they_begin() -> None:
    """Of this query; what this one was forked from is told, too."""
    told = marks("q", captured(0, 1, 2), [Forked("branch", "q", 1), Forked("q", "origin", 7)])
    assert [(mark.kind, mark.place, mark.title) for mark in told.drawn] == [
        ("fork", 0.5, "Fork: branch goes its own way after epoch 1")
    ]
    assert told.facts == (("fork", "branch after 1"), ("forked from", "origin after epoch 7"))


def test_ten_thousand_epochs_stay_exact() -> None:
    """Too many marks are drawn together; together they still count every one, and none is out of place."""
    entries = [Entry.gap(epoch) if epoch % 10 == 9 else captured(epoch)[0] for epoch in range(10_000)]
    told = marks("q", entries)
    assert 2 <= len(told.drawn) <= APART
    assert sum(mark.count for mark in told.drawn) == 1_000
    assert all(0 <= mark.place <= 1 for mark in told.drawn)
    assert [mark.place for mark in told.drawn] == sorted(mark.place for mark in told.drawn)
    assert told.facts == (("gaps", "1,000, the last 9999"),)
    assert "gaps, epochs 9–" in told.drawn[0].title
