"""A watched view draws immediately after a pause, the latest selection last, and slow parts after quick ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from browser.lab import wait_until
from streamstate.snapshots.calls.html import Html
from streamstate.widgets.live.live_view import UNFINISHED, Live
from streamstate.widgets.model import Drawing, ViewModel


@dataclass(frozen=True)
class Place:
    """A selection that is a number."""

    at: int = 0


class SlowModel(ViewModel[Place]):
    """Draws the number quickly; completing the drawing takes longer."""

    kind = "browser"
    name = "slow"

    def newest(self) -> object:
        """There is never anything new."""
        return None

    def drawing(self, selection: Place) -> Drawing:
        """The complete drawing."""
        return Drawing({"at": selection.at, "whole": True})

    def quick(self, selection: Place) -> Drawing:
        """Only the number."""
        return Drawing({"at": selection.at, "whole": False}, unfinished=True)

    def acted(self, selection: Place, action: str, value: Any, kept: Any) -> Place:
        """A new number."""
        return replace(selection, at=int(value))

    def text(self, drawing: Drawing) -> str:
        """Nothing."""
        return ""

    def html(self, drawing: Drawing) -> Html:
        """Nothing."""
        return Html()


class RecordingPage:
    """A page that records the messages it receives, and when."""

    def __init__(self) -> None:
        self.handled = 0
        self.shown: list[tuple[float, int, bool]] = []

    def send(self, content: Mapping[str, Any]) -> None:
        """Record a drawing."""
        if content["kind"] == "show":
            self.shown.append((time.monotonic(), content["at"], content["whole"]))

    def close(self) -> None:
        """There is no connection to close."""

    def drawn(self) -> list[tuple[int, bool]]:
        """The recorded messages without their times."""
        return [(at, whole) for _, at, whole in self.shown]


class GonePage(RecordingPage):
    """A page whose server dropped it without a word."""

    def send(self, content: Mapping[str, Any]) -> None:
        """There is nobody any more."""
        raise AttributeError(content["kind"])


def slow_view() -> Live[Place]:
    """A view that nobody listens to."""
    return Live(SlowModel(), Place(), ended=lambda: None, chosen=lambda _: None, settled=lambda _: None)


@pytest.fixture
def watched() -> Iterator[tuple[Live[Place], RecordingPage]]:
    """A view that is shown on a page."""
    live, page = slow_view(), RecordingPage()
    live.joined(page)
    yield live, page
    live.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "streamstate-browser-slow"]


def test_the_complete_drawing_follows_the_quick_one(watched: tuple[Live[Place], RecordingPage]) -> None:
    """It is sent once, and nothing after it."""
    _, page = watched
    wait_until(lambda: len(page.shown) == 2, "both drawings")
    assert page.drawn() == [(0, False), (0, True)]


def test_the_latest_selection_is_always_drawn_and_none_queue_up(watched: tuple[Live[Place], RecordingPage]) -> None:
    """A hundred selections in a row cause a few drawings; the last one is complete and of the last selection."""
    live, page = watched
    for at in range(100):
        live.received(page, {"do": "go", "value": at})
    wait_until(lambda: page.drawn()[-1:] == [(99, True)], "the last selection")
    assert len(page.shown) < 10


def test_continuous_changes_still_get_complete_drawings() -> None:
    """After several quick drawings in a row comes a complete one, although a newer selection is waiting."""
    live, page = slow_view(), RecordingPage()
    for at in range(2 * UNFINISHED + 2):
        assert live._draw_news(at, Place(at), [(page, 0)])
    assert [at for at, whole in page.drawn() if whole] == [UNFINISHED, 2 * UNFINISHED + 1]


def test_a_page_that_is_gone_is_dropped_and_the_others_are_drawn(watched: tuple[Live[Place], RecordingPage]) -> None:
    """Its error ends neither the thread nor the drawings of another page."""
    live, page = watched
    wait_until(lambda: len(page.shown) == 2, "both drawings")
    live.left(page)
    live.joined(GonePage())
    live.joined(page)
    live.received(page, {"do": "go", "value": 5})
    wait_until(lambda: page.drawn()[-1:] == [(5, True)], "the selection after the lost page")
    live.left(page)
    assert not live.watched
