"""When a watched view draws: at once after a pause, the latest last, and what is slow after what is quick."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from browser.lab import wait_until
from streamstate.widgets.live.pages import UNFINISHED, Live
from streamstate.widgets.model import Drawing, ViewModel


@dataclass(frozen=True)
class Place:
    """A number that is looked at."""

    at: int = 0


class Slow(ViewModel[Place]):
    """Shows the number; that it is whole takes longer to know."""

    kind = "browser"
    name = "slow"

    def newest(self) -> object:
        """There is never anything new."""
        return None

    def drawing(self, selection: Place) -> Drawing:
        """The whole."""
        return Drawing({"at": selection.at, "whole": True})

    def quick(self, selection: Place) -> Drawing:
        """The number alone."""
        return Drawing({"at": selection.at, "whole": False}, unfinished=True)

    def acted(self, selection: Place, action: str, value: Any, kept: Any) -> Place:
        """Another number."""
        return replace(selection, at=int(value))

    def text(self, drawing: Drawing) -> str:
        """Nothing."""
        return ""

    def html(self, drawing: Drawing) -> str:
        """Nothing."""
        return ""


class Seen:
    """A page that keeps what it was sent, and when."""

    def __init__(self) -> None:
        self.handled = 0
        self.shown: list[tuple[float, int, bool]] = []

    def send(self, content: Mapping[str, Any]) -> None:
        """Keep it."""
        self.shown.append((time.monotonic(), content["at"], content["whole"]))

    def close(self) -> None:
        """Nothing to hang up."""

    def drawn(self) -> list[tuple[int, bool]]:
        """What was sent, without the moments."""
        return [(at, whole) for _, at, whole in self.shown]


@pytest.fixture
def watched() -> Iterator[tuple[Live[Place], Seen]]:
    """A view on a page."""
    live, page = Live(Slow(), Place(), ended=lambda: None, chosen=lambda _: None), Seen()
    live.joined(page)
    yield live, page
    live.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "streamstate-browser-slow"]


def test_the_whole_follows_the_quick_drawing(watched: tuple[Live[Place], Seen]) -> None:
    """Once, and then there is nothing more to say."""
    _, page = watched
    wait_until(lambda: len(page.shown) == 2, "both drawings")
    assert page.drawn() == [(0, False), (0, True)]


def test_the_latest_always_comes_and_nothing_queues_up(watched: tuple[Live[Place], Seen]) -> None:
    """A hundred places in a row are a few drawings; the last of them is of the last place, and whole."""
    live, page = watched
    for at in range(100):
        live.received(page, {"do": "go", "value": at})
    wait_until(lambda: page.drawn()[-1:] == [(99, True)], "the last place")
    assert len(page.shown) < 10


def test_who_never_rests_sees_the_whole_now_and_then() -> None:
    """After some quick drawings in a row a whole one comes, although something newer was asked for."""
    live, page = Live(Slow(), Place(), ended=lambda: None, chosen=lambda _: None), Seen()
    for at in range(2 * UNFINISHED + 2):
        assert live._draw_news(at, Place(at), [(page, 0)])
    assert [at for at, whole in page.drawn() if whole] == [UNFINISHED, 2 * UNFINISHED + 1]
