"""A view saved as one file: what it holds, what it leaves out, and that it stays within its budget."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser.stores import HOSTILE, flights, hostile
from hypothesis import given
from hypothesis import strategies as st
from sampling import sampled
from synthetic import write

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownEpochError
from streamstate.reports import History, Store
from streamstate.widgets import DiffView, KeyHistoryView, QueryDashboard, StateBrowser, Timeline
from streamstate.widgets.chart import Chart
from streamstate.widgets.export.album import encoded
from streamstate.widgets.export.document import write as write_file
from streamstate.widgets.export.saving import MORE, POSITIONS, positions, save
from streamstate.widgets.model import Drawing
from streamstate.widgets.state_browser.actions import BrowserSelection
from streamstate.widgets.state_browser.model import BrowserModel
from streamstate.widgets.view import View

BARS = {"mark": "bar", "encoding": {"x": {"field": "epoch"}, "y": {"field": "rows"}}}


class BrowserWithPlot(BrowserModel):
    """A state browser whose drawings include a plot."""

    def drawing(self, selection: BrowserSelection) -> Drawing:
        """The table and a plot."""
        drawing = super().drawing(selection)
        chart = Chart("Rows", BARS, [{"epoch": 0, "rows": float("nan")}, {"epoch": 1, "rows": 3}])
        return Drawing({**drawing.message, "plot": chart.message()}, drawing.kept)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """``delays`` with forty epochs and a gap, and ``hostile``."""
    path = tmp_path_factory.mktemp("saved") / "store"
    flights(path, epochs=40, gap=4)
    hostile(path)
    return ss.open_store(path)


LONG, GAP = 5_000, 1_234


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A query with 5,000 epochs, of which one is a gap."""
    path = tmp_path_factory.mktemp("long") / "store"
    states = [{f"k{key}": epoch - epoch % (key + 2) for key in range(20)} for epoch in range(LONG)]
    write(path, [*states[:GAP], None, *states[GAP + 1 :]], keyframe_every=100, commit_every=500)
    return ss.open_store(path)["q"]


VIEWS: dict[str, Callable[[History], View[Any]]] = {
    "timeline": Timeline,
    "browser": lambda history: StateBrowser(history, epoch=777),
    "diff": lambda history: DiffView(history, 700, 777),
    "key": lambda history: KeyHistoryView(history, "op0", {"key": "k1"}),
    "dashboard": QueryDashboard,
}


def saved_data(path: Path) -> dict[str, Any]:
    """The data embedded in a saved file."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def shown(album: dict[str, Any], tokens: list[int]) -> dict[str, Any]:
    """The message for a selection, assembled as in ``saved_host.js``."""
    fields = album["entries"][",".join(map(str, tokens))]["fields"]
    return {field: album["values"][at] for field, at in fields.items()}


def moved(tokens: list[int], patch: dict[str, int]) -> list[int]:
    """The selection after an action, computed as in ``saved_host.js``."""
    return [patch.get(str(at), token) for at, token in enumerate(tokens)]


@pytest.mark.slow
def test_each_saved_epoch_matches_the_view(store: Store, tmp_path: Path) -> None:
    """Selecting an epoch in the file shows the rows that the kernel would have drawn."""
    report = StateBrowser(store["delays"]).save(tmp_path / "delays.html")
    album = saved_data(report.path)["album"]
    model = BrowserModel(store["delays"])
    assert list(report.epochs) == list(store["delays"].captured())
    for epoch in report.epochs:
        message = shown(album, moved(album["first"], album["everywhere"][f"epoch {epoch}"]))
        expected = json.loads(encoded(model.drawing(BrowserSelection(epoch=epoch)).message))
        assert (message["epoch"], message["page"]) == (epoch, expected["page"])
        assert message["captured"] == [[0, 3], [5, 39]]


def test_a_saved_action_matches_the_view(store: Store, tmp_path: Path) -> None:
    """Sorting, paging, showing changes and opening a key's history work at another epoch."""
    album = saved_data(StateBrowser(store["delays"]).save(tmp_path / "d.html", epochs=[6, 7]).path)["album"]
    at = moved(album["first"], album["everywhere"]["epoch 6"])
    actions = album["entries"][",".join(map(str, at))]["actions"]
    after = {action: shown(album, moved(at, patch)) for action, patch in actions.items()}
    model = BrowserModel(store["delays"])
    for action, selection in (
        ('sort "flights"', BrowserSelection(epoch=6, order_by="flights")),
        ("page 1", BrowserSelection(epoch=6, page=1)),
        ('rows "changed"', BrowserSelection(epoch=6, rows="changed")),
        ("key 2", BrowserSelection(epoch=6, key=model.view(BrowserSelection(epoch=6)).page.keys[2])),
    ):
        expected = json.loads(encoded(model.drawing(selection).message))
        assert (after[action]["page"], after[action]["history"]) == (expected["page"], expected["history"])


@pytest.mark.slow
def test_the_file_stays_within_its_budget_and_says_what_it_lacks(store: Store, tmp_path: Path) -> None:
    """A smaller budget keeps fewer, evenly spaced epochs, including the newest and the selected one."""
    sizes = []
    for budget in (100_000, 140_000, 800_000):
        report = StateBrowser(store["delays"], epoch=7).save(tmp_path / f"{budget}.html", budget=budget)
        assert report.size == report.path.stat().st_size <= budget
        assert {7, 39} <= set(report.epochs)
        assert all(note.replace("'", "&#x27;") in report.path.read_text() for note in report.left_out)
        assert (len(report.epochs) < 39) == any(f"fit into {budget:,} bytes" in note for note in report.left_out)
        sizes.append(len(report.epochs))
    assert sizes == sorted(sizes)
    assert sizes[0] < 39 <= sizes[-1]


def test_a_budget_that_is_too_small_is_rejected(store: Store, tmp_path: Path) -> None:
    """The error gives the minimum, and no file is written."""
    with pytest.raises(InvalidArgumentError, match="expected at least about"):
        StateBrowser(store["delays"]).save(tmp_path / "small.html", budget=10_000)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_only_on_demand(store: Store, tmp_path: Path) -> None:
    """A file is not overwritten by default, and its folder has to exist."""
    browser = StateBrowser(store["hostile"])
    browser.save(tmp_path / "a.html")
    with pytest.raises(InvalidArgumentError, match="overwrite=True"):
        browser.save(tmp_path / "a.html")
    browser.save(tmp_path / "a.html", overwrite=True)
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        browser.save(tmp_path / "none" / "a.html")
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]


def test_unknown_epochs_are_rejected(store: Store, tmp_path: Path) -> None:
    """The error names them and lists the epochs that exist."""
    with pytest.raises(UnknownEpochError, match=r"\[4\].*\n.*0–3, 5–39"):
        StateBrowser(store["delays"]).save(tmp_path / "a.html", epochs=[3, 4])


@pytest.mark.slow
def test_saving_draws_a_limited_number_of_actions(store: Store, tmp_path: Path) -> None:
    """With many epochs, only the actions at the opening epoch are all drawn; the report says what is left out."""
    report = StateBrowser(store["delays"], epoch=20).save(tmp_path / "a.html")
    assert report.drawings <= MORE + len(report.epochs) + 1
    assert any(f"at most {MORE} of them" in note for note in report.left_out)
    album = saved_data(report.path)["album"]
    actions = album["entries"][",".join(map(str, album["first"]))]["actions"]
    model = BrowserModel(store["delays"])
    offered = model.saved_actions(BrowserSelection(epoch=20), model.drawing(BrowserSelection(epoch=20)))
    assert len(actions) == len(list(offered))


@pytest.mark.slow
def test_progress_is_reported(store: Store, tmp_path: Path) -> None:
    """Progress goes from 0 to 1."""
    steps: list[tuple[str, float | None]] = []
    StateBrowser(store["delays"]).save(tmp_path / "a.html", progress=lambda *step: steps.append(step))
    assert (steps[0][1], steps[-1]) == (0, ("done", 1))
    assert all(share is not None and 0 <= share <= 1 for _, share in steps)


def test_values_cannot_escape_the_data_element(store: Store, tmp_path: Path) -> None:
    """State that contains HTML and script stays data in the file."""
    report = StateBrowser(store["hostile"]).save(tmp_path / "hostile.html")
    assert HOSTILE not in report.path.read_text()
    assert HOSTILE in json.dumps(saved_data(report.path))


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_encoded_json_can_be_embedded_in_a_script(value: Any) -> None:
    """It decodes to the same value, and contains neither ``<`` nor a JavaScript line terminator."""
    text = encoded(value)
    assert json.loads(text) == value
    assert not {"<", "\u2028", "\u2029"} & set(text)


@pytest.mark.slow
def test_plots_are_live_if_their_library_fits(store: Store, tmp_path: Path) -> None:
    """Otherwise they are static pictures, and the file says so."""
    model = BrowserWithPlot(store["delays"])
    live = save(model, BrowserSelection(), tmp_path / "alive.html", epochs=[1, 2])
    static = save(model, BrowserSelection(), tmp_path / "still.html", epochs=[1, 2], budget=300_000)
    assert live.size > 800_000
    assert static.size <= 300_000
    assert any(note.startswith("Live plots") for note in static.left_out)
    pictures = [
        value for value in saved_data(static.path)["album"]["values"] if isinstance(value, dict) and "svg" in value
    ]
    assert pictures[0]["svg"].startswith("<svg")


@pytest.mark.slow
@pytest.mark.parametrize("kind", sampled(VIEWS, 1))
def test_a_long_history_takes_a_bounded_number_of_drawings(
    long: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Of thousands of epochs, a hundred are saved, with the selected one and those beside a gap; the file says so."""
    view = VIEWS[kind](long)
    drawn: list[Any] = []
    draw = view.model.drawing

    def drawing(selection: Any) -> Drawing:
        drawn.append(selection)
        return draw(selection)

    monkeypatch.setattr(view.model, "drawing", drawing)
    report = view.save(tmp_path / "saved.html")
    assert len(drawn) <= POSITIONS + MORE + 10
    assert report.size <= 2_000_000
    if kind in ("key", "dashboard"):
        assert report.epochs == ()  # they have no epochs to choose
        return
    assert len(report.epochs) == POSITIONS
    assert {0, GAP - 1, GAP + 1, LONG - 1} <= set(report.epochs)
    assert kind == "timeline" or 777 in report.epochs
    assert f"Saved: {POSITIONS} of {LONG - 1:,} epochs." in report.path.read_text()
    assert any("at gaps, restarts and forks" in note for note in report.left_out)


def test_the_epochs_of_a_saved_difference_can_be_chosen(store: Store, tmp_path: Path) -> None:
    """It opens at the two epochs that were shown, and the later one moves."""
    data = saved_data(DiffView(store["delays"], 10, 12).save(tmp_path / "a.html").path)
    album = data["album"]
    assert [side["epoch"] for side in shown(album, album["first"])["sides"]] == [10, 12]
    after = moved(album["first"], album["everywhere"][f"{data['epochs']['action']} 30"])
    assert [side["epoch"] for side in shown(album, after)["sides"]] == [10, 30]


def test_a_saved_difference_without_movers_does_not_search_each_column(store: Store) -> None:
    """One query finds the columns that moved."""
    with store["delays"].diff(10, 10).held() as rows:
        assert rows.moved() == set()
    with store["delays"].diff(10, 12).held() as rows:
        page = rows.page(limit=1_000, change="changed")
        deltas = [at for at, name in enumerate(page.columns) if str(name).endswith("_delta")]
        assert rows.moved() == {at for at in deltas if (page.iloc[:, at].fillna(0) != 0).any()}


def test_pages_of_a_saved_key_history_can_be_turned(long: History, tmp_path: Path) -> None:
    """Its plots show all epochs, so that there are no epochs to choose."""
    album = saved_data(KeyHistoryView(long, "op0", {"key": "k1"}).save(tmp_path / "a.html").path)["album"]
    actions = album["entries"][",".join(map(str, album["first"]))]["actions"]
    assert shown(album, moved(album["first"], actions["page 1"]))["page"]["offset"] == 10
    assert album["everywhere"] == {}


@pytest.mark.slow
def test_an_interrupt_leaves_the_file_as_it_was(store: Store, tmp_path: Path) -> None:
    """No part of a file is left, and the view can be saved again."""

    def interrupt(_message: str, share: float | None) -> None:
        if share:
            raise KeyboardInterrupt

    browser, target = StateBrowser(store["delays"]), tmp_path / "a.html"
    with pytest.raises(KeyboardInterrupt):
        browser.save(target, progress=interrupt)
    assert list(tmp_path.iterdir()) == []
    before = browser.save(target).path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        browser.save(target, overwrite=True, progress=interrupt)
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]
    assert target.read_bytes() == before


@pytest.mark.slow
def test_saving_shows_its_progress(store: Store, tmp_path: Path) -> None:
    """The messages name the epochs that are drawn."""
    lines: list[str] = []
    StateBrowser(store["delays"]).save(tmp_path / "a.html", progress=lambda line, _share: lines.append(line))
    assert lines[0].startswith("drawing epoch")
    assert hasattr(StateBrowser.save, "__wrapped__")  # a long call: without progress= a notebook shows a bar


def test_saved_epochs_are_chosen_evenly_and_at_events() -> None:
    """They include the first, the last and the selected epoch, and of the events at most half as many as fit."""
    assert positions(range(10), 4, None) == [0, 3, 7, 9]
    assert positions(range(10), 3, 4) == [0, 4, 9]
    assert positions([3, 5], 9, None) == [3, 5]
    assert {41, 42, 70} <= set(positions(range(100), 6, 70, [41, 42]))
    many = positions(range(10_000), POSITIONS, 5, range(0, 10_000, 2))
    assert len(many) == POSITIONS
    assert sum(epoch % 2 for epoch in many) > POSITIONS // 4


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_private_file_stays_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """Also while it is written again, under another name."""
    target, modes = tmp_path / "delays.html", list[int]()
    target.touch(mode)
    target.chmod(mode)
    replace = Path.replace

    def seen(staged: Path, to: Path) -> Path:
        modes.append(staged.stat().st_mode & 0o777)
        return replace(staged, to)

    monkeypatch.setattr(Path, "replace", seen)
    write_file(target, "again")
    assert (modes, target.stat().st_mode & 0o777, target.read_text()) == ([mode], mode, "again")
