"""The player of simulations in a real browser: as a page, in JupyterLab, and where scripts are off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from browser.accessible import violations
from browser.conftest import watching
from browser.lab import Lab
from streamstate.tutorials.simulation import Player, Question, Topology, explore, replay, run
from streamstate.tutorials.simulation.mutants import NotBlocking

pytestmark = pytest.mark.browser

GRAPH = explore(NotBlocking(Topology.merge(2, 1), rounds=1, crashes=0, last_covers_all=False, storage_takes_time=False))
SHORTEST = GRAPH.shortest("received ≤ sent")
assert SHORTEST is not None
TRACE = replay(GRAPH.protocol, SHORTEST.schedule)
STEPS = len(TRACE.actions)


@pytest.fixture
def page(chrome: Browser, tmp_path: Path) -> Iterator[Page]:
    """A narrow page with two players; nothing may be logged or fetched."""
    question = Question("What does C count?", ["a1", "nothing"])
    players = [Player(GRAPH, example=TRACE.schedule), Player(TRACE, at=4, question=question)]
    path = players[0].save(tmp_path / "players.html")
    path.write_text(path.read_text("utf-8").replace("</main>", f"{players[1]._repr_html_()}</main>"), "utf-8")
    context, watched = watching(chrome)
    page = context.new_page()
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(path.as_uri())
    yield page
    context.close()
    watched.assert_quiet()


def step(player: Locator, number: int, of: int | str = STEPS) -> None:
    """Expect the player to be at a step."""
    expect(player.get_by_role("status")).to_contain_text(f"Step {number} of {of}.")


def button(player: Locator, name: str) -> Locator:
    """A button by its name."""
    return player.get_by_role("button", name=name)


def test_a_reader_plays_branches_and_returns(page: Page) -> None:
    """By keyboard and mouse; the other player on the page stays where it is."""
    player, other = page.locator("figure").all()
    step(player, 0)
    button(player, "Step (right arrow)").focus()
    page.keyboard.press("ArrowRight")
    step(player, 1)
    page.keyboard.press("End")
    step(player, STEPS)
    expect(player.get_by_role("status")).to_contain_text("Broken: received ≤ sent.")
    page.keyboard.press("Home")
    step(player, 0)
    button(player, f"Violation at step {STEPS}").click()
    expect(player.locator(".checks .broken").first).to_contain_text("which has not sent it")
    page.keyboard.press("ArrowLeft")
    step(player, STEPS - 1)

    actions = player.locator(".actions button")
    chosen = actions.filter(has_not_text="→").first
    label = chosen.inner_text()
    chosen.click()
    expect(player.get_by_role("status")).to_contain_text(label)
    expect(button(player, "Violation")).to_be_hidden()
    button(player, "Back to the example").click()
    step(player, STEPS)
    expect(button(player, "Back to the example")).to_be_hidden()

    player.get_by_role("slider", name="Step").fill("3")
    step(player, 3)
    page.keyboard.press("Home")  # of the slider
    button(player, "Play").click()
    step(player, 1)
    button(player, "Pause").click()
    step(other, 4, "?")


def test_the_picture_follows(page: Page) -> None:
    """It has the texts of the state's scene, and their words for screen readers; so has every step."""
    player = page.locator("figure").first
    for number, state in enumerate(TRACE.states):
        scene = GRAPH.protocol.scene(state)
        expect(player.locator("svg")).to_have_attribute("aria-label", scene.words)
        texts = [item.text for item in scene.items if item.text]
        assert [text for text in player.locator("svg text").all_text_contents() if text] == texts
        step(player, number)
        button(player, "Step (right arrow)").press("Enter")


def test_an_answer_comes_before_the_rest(page: Page) -> None:
    """The reader can neither step on nor choose an action before committing to an answer."""
    player = page.locator("figure").nth(1)
    button(player, "Last step").focus()
    for key in ("Enter", "ArrowRight", "End", "Space"):
        page.keyboard.press(key)
    step(player, 4, "?")
    expect(player.locator(".actions button")).to_have_count(0)
    page.evaluate("addEventListener('streamstate-answer', (event) => { window.answer = event.detail.answer; })")
    player.get_by_role("radio", name="nothing").check()
    button(player, "Commit my answer").click()
    expect(player).to_contain_text("You said: nothing.")
    page.keyboard.press("ArrowRight")
    step(player, 5)
    assert page.evaluate("window.answer") == "nothing"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_player_fits_a_phone_and_is_accessible(page: Page, scheme: str) -> None:
    """No sideways scrolling, and no violation of the audit, with a violation shown."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]  # one of two texts
    button(page.locator("figure").first, "Violation").click()
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert violations(page.locator("body")) == []


def test_without_scripts_there_is_a_still(chrome: Browser, tmp_path: Path) -> None:
    """The picture, what happened last, and what the reader misses."""
    context = chrome.new_context(java_script_enabled=False)
    page = context.new_page()
    trace = run(NotBlocking.random(3), 3)
    page.goto(Player(trace, at=9).save(tmp_path / "still.html").as_uri())
    image = page.get_by_role("img")
    expect(image).to_have_attribute("alt", trace.protocol.scene(trace.states[9]).words)
    expect(page.locator(".note")).to_contain_text("This is a picture")
    assert image.evaluate("image => image.complete && image.naturalWidth > 300")
    context.close()


def test_a_script_that_runs_at_the_end_of_its_output_finds_the_player(page: Page) -> None:
    """As in VS Code, which runs a copy of each script there and removes it."""
    page.evaluate(
        """html => {
            const output = document.body.appendChild(document.createElement("div"));
            output.innerHTML = html;
            const script = document.createElement("script");
            script.text = output.querySelector("script").textContent;
            output.appendChild(script).remove();
        }""",
        Player(TRACE, at=2)._repr_html_(),
    )
    step(page.locator("figure").last, 2)


@pytest.mark.slow
def test_a_player_in_jupyterlab(lab: Lab) -> None:
    """It plays; its keys do not move the notebook's selection."""
    lab.server.write(
        "player.ipynb", "from streamstate.tutorials.simulation import *\nPlayer(run(AlignedBarriers.random(7), 7))"
    )
    lab.open("player.ipynb")
    lab.run_all()
    player = lab.page.locator("figure.streamstate-player").last
    button(player, "Step (right arrow)").click()
    lab.page.keyboard.press("ArrowRight")
    expect(player.get_by_role("status")).to_contain_text("Step 2 of")
