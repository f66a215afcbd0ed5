"""A player is one piece of HTML: a still, and a script with the data that replaces it."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from streamstate.tutorials.simulation import ChandyLamport, Player, Question, explore, run
from streamstate.tutorials.simulation.scene import Scene, fit
from teaching.lost_update import LostUpdate, Stuck

COUNTS = "every addition counts"


def data(player: Player[Any]) -> dict[str, Any]:
    """The data in the player's script."""
    found = re.search(r"play\(document.currentScript.parentElement, (.*)\);\n\}\)\(\);</script>", player._repr_html_())
    assert found is not None
    return dict(json.loads(found.group(1)))


class Tags(HTMLParser):
    """The elements of some HTML, with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.found.append((tag, dict(attrs)))


def test_the_script_is_small() -> None:
    """At most 12 kB, so that a notebook can have many players."""
    assert len(files("streamstate.tutorials.simulation").joinpath("player.js").read_bytes()) <= 12_000


def test_no_text_breaks_out() -> None:
    """Titles, captions, labels and values are texts wherever they are, and no element has an id to clash."""
    hostile = '</script><img src=x onerror="alert(1)">'
    player = Player({hostile: explore(LostUpdate())}, title=hostile, caption=hostile, parameter=hostile)
    tags = Tags(player._repr_html_()).found
    assert [tag for tag, _ in tags] == ["figure", "style", "figcaption", "strong", "div", "img", "p", "script"]
    assert not any("id" in attributes for _, attributes in tags)
    assert "Ann reads" in data(player)["texts"]
    assert "<b>Bob</b></script> reads" in data(player)["texts"]


def test_a_graph_has_every_choice() -> None:
    """The frames are the pictures of the states, and each has its actions and its broken invariants."""
    graph = explore(LostUpdate())
    film = data(Player(graph, example=[("read", 0), ("read", 1)], at=2))
    (reel,) = film["graphs"]
    for index, state in enumerate(graph.states):
        items = [film["items"][number] for number in reel["frames"][index]]
        assert items == [list(item) for item in graph.protocol.scene(state).items]
        labels = [(film["texts"][label], there) for label, _, there in reel["edges"][index]]
        assert labels == [(action.label, there) for action, there in graph.edges[index]]
        wrong = {film["invariants"][name]: film["texts"][why] for name, why in reel["broken"][index]}
        assert wrong.get(COUNTS) == graph.protocol.invariants[COUNTS](state)
    assert (reel["path"], film["at"], reel["complete"]) == ([0, 1], 2, True)
    assert len({json.dumps(item) for item in film["items"]}) == len(film["items"])


def test_a_trace_is_a_path() -> None:
    """It has what only the whole run shows, such as that it does not end."""
    trace = run(Stuck(), 1)
    (reel,) = data(Player(trace))["graphs"]
    assert [len(edges) for edges in reel["edges"]] == [1, 1, 0]
    assert [len(broken) for broken in reel["broken"]] == [0, 0, 1]


def test_the_still_is_the_picture_at_the_tick() -> None:
    """It is an image, which untrusted notebooks show too, with the picture in words."""
    trace = run(LostUpdate(), 3)
    player = Player(trace, at=2, caption="Two clerks.")
    scene = trace.protocol.scene(trace.states[2])
    image = next(attributes for tag, attributes in Tags(player._repr_html_()).found if tag == "img")
    assert image["alt"] == scene.words
    picture = b64decode((image["src"] or "").partition(",")[2]).decode()
    texts = [text.text for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [item.text for item in scene.items if item.text]
    label = trace.actions[1].label
    assert repr(player) == f"Player of lost update: step 2 of 8. {label}. {scene.words}"
    assert player._repr_mimebundle_() == {"text/plain": repr(player), "text/html": player._repr_html_()}


def test_a_parameter_chooses_between_graphs() -> None:
    """The values are shown as texts; items that are equal are there once."""
    film = data(Player({1: explore(LostUpdate(1)), 2: explore(LostUpdate(2))}, parameter="times"))
    assert film["parameter"] == {"name": "times", "values": ["1", "2"]}
    assert [len(each["frames"]) for each in film["graphs"]] == [
        len(explore(LostUpdate(times)).states) for times in (1, 2)
    ]


def test_a_question_comes_with_its_answers() -> None:
    """Without one, nothing is hidden."""
    trace = run(LostUpdate(), 3)
    film = data(Player(trace, at=2, question=Question("What is the balance?", ["1", "2"])))
    assert film["question"] == {"text": "What is the balance?", "choices": ["1", "2"]}
    assert data(Player(trace))["question"] is None


def test_a_player_is_saved_as_a_page(tmp_path: Path) -> None:
    """It needs nothing else."""
    page = Player(run(LostUpdate(), 3)).save(tmp_path / "player.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert not {"src", "href"} & {
        name
        for _, attributes in Tags(page).found
        for name, value in attributes.items()
        if not (value or "").startswith("data:")
    }


@pytest.mark.parametrize(("shown", "at"), [({}, 0), (run(LostUpdate(), 3), 9), (run(LostUpdate(), 3), -1)])
def test_what_cannot_be_shown_is_an_error(shown: Any, at: int) -> None:
    """It says what would be right."""
    with pytest.raises(ValueError, match="expected"):
        Player(shown, at=at)


def test_pictures_have_unique_names_and_room_for_all() -> None:
    """In every state of a run on a topology with circles, and of one with a record that is there twice."""
    trace = run(ChandyLamport.random(13), 13)
    for state in trace.states:
        scene = trace.protocol.scene(state)
        assert len({item.name for item in scene.items}) == len(scene.items)
        assert all(item.x >= 0 and item.x + item.width <= scene.width for item in scene.items)
        assert all(item.y + item.height <= scene.height for item in scene.items)
    twice = Scene(100)
    twice.chip("a", 20, 20, "a")
    twice.chip("a", 60, 20, "a")
    assert [item.name for item in twice.items] == ["a", "a'"]


def test_a_text_is_shortened_to_its_room() -> None:
    """It ends with an ellipsis."""
    assert fit("short", 100) == "short"
    assert fit("a text that is far too long", 60) == "a text…"
