"""A view as one file: what it holds, what it leaves out, and that it keeps within its budget."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from browser.stores import HOSTILE, flights, hostile
from hypothesis import given
from hypothesis import strategies as st

import streamstate as ss
from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError
from streamstate.widgets import StateBrowser
from streamstate.widgets.browser.model import BrowserModel
from streamstate.widgets.browser.selection import Selection
from streamstate.widgets.chart import Chart
from streamstate.widgets.export.album import encoded
from streamstate.widgets.export.saving import MORE, evenly, save
from streamstate.widgets.model import Drawing

BARS = {"mark": "bar", "encoding": {"x": {"field": "epoch"}, "y": {"field": "rows"}}}


class Plotted(BrowserModel):
    """A state browser whose drawings have a plot."""

    def drawing(self, selection: Selection) -> Drawing:
        """The table, and a plot."""
        drawing = super().drawing(selection)
        chart = Chart("Rows", BARS, [{"epoch": 0, "rows": float("nan")}, {"epoch": 1, "rows": 3}])
        return Drawing({**drawing.message, "plot": chart.message()}, drawing.kept)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ss.Store:
    """``delays`` with forty epochs and a gap, and ``hostile``."""
    path = tmp_path_factory.mktemp("saved") / "store"
    flights(path, epochs=40, gap=4)
    hostile(path)
    return ss.open_store(path)


def held(path: Path) -> dict[str, Any]:
    """The data of a file."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def shown(album: dict[str, Any], tokens: list[int]) -> dict[str, Any]:
    """What the page is told for a selection, as ``saved_host.js`` puts it together."""
    fields = album["entries"][",".join(map(str, tokens))]["fields"]
    return {field: album["values"][at] for field, at in fields.items()}


def moved(tokens: list[int], patch: dict[str, int]) -> list[int]:
    """The selection after an action, as ``saved_host.js`` finds it."""
    return [patch.get(str(at), token) for at, token in enumerate(tokens)]


def test_each_epoch_is_what_the_view_shows(store: ss.Store, tmp_path: Path) -> None:
    """Choosing an epoch in the file leads to the rows that the kernel would have drawn."""
    report = StateBrowser(store["delays"]).save(tmp_path / "delays.html")
    album = held(report.path)["album"]
    model = BrowserModel(store["delays"])
    assert list(report.epochs) == list(store["delays"].captured())
    for epoch in report.epochs:
        message = shown(album, moved(album["first"], album["everywhere"][f"epoch {epoch}"]))
        wanted = json.loads(encoded(model.drawing(Selection(epoch=epoch)).message))
        assert (message["epoch"], message["page"]) == (epoch, wanted["page"])
        assert message["captured"] == [[0, 3], [5, 39]]


def test_an_action_leads_to_what_the_view_would_show(store: ss.Store, tmp_path: Path) -> None:
    """An order, a page, the changes and a key's history, at an epoch that was gone to."""
    album = held(StateBrowser(store["delays"]).save(tmp_path / "d.html", epochs=[6, 7]).path)["album"]
    at = moved(album["first"], album["everywhere"]["epoch 6"])
    actions = album["entries"][",".join(map(str, at))]["actions"]
    after = {action: shown(album, moved(at, patch)) for action, patch in actions.items()}
    model = BrowserModel(store["delays"])
    for action, selection in (
        ('sort "flights"', Selection(epoch=6, order_by="flights")),
        ("page 1", Selection(epoch=6, page=1)),
        ('rows "changed"', Selection(epoch=6, rows="changed")),
        ("key 2", Selection(epoch=6, key=model.view(Selection(epoch=6)).page.keys[2])),
    ):
        wanted = json.loads(encoded(model.drawing(selection).message))
        assert (after[action]["page"], after[action]["history"]) == (wanted["page"], wanted["history"])


def test_the_file_stays_within_its_budget_and_says_what_it_lacks(store: ss.Store, tmp_path: Path) -> None:
    """With less room there are fewer epochs, evenly chosen, the newest and the one looked at among them."""
    sizes = []
    for budget in (70_000, 100_000, 600_000):
        report = StateBrowser(store["delays"], epoch=7).save(tmp_path / f"{budget}.html", budget=budget)
        assert report.size == report.path.stat().st_size <= budget
        assert {7, 39} <= set(report.epochs)
        assert all(note.replace("'", "&#x27;") in report.path.read_text() for note in report.left_out)
        assert (len(report.epochs) < 39) == any(f"what fits into {budget:,} bytes" in note for note in report.left_out)
        sizes.append(len(report.epochs))
    assert sizes == sorted(sizes)
    assert sizes[0] < 39 <= sizes[-1]


def test_a_budget_that_holds_nothing_is_refused(store: ss.Store, tmp_path: Path) -> None:
    """With what it takes at least, and nothing written."""
    with pytest.raises(InvalidArgumentError, match="too small"):
        StateBrowser(store["delays"]).save(tmp_path / "small.html", budget=10_000)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_only_on_demand(store: ss.Store, tmp_path: Path) -> None:
    """And written where there is a folder."""
    browser = StateBrowser(store["hostile"])
    browser.save(tmp_path / "a.html")
    with pytest.raises(InvalidArgumentError, match="overwrite=True"):
        browser.save(tmp_path / "a.html")
    browser.save(tmp_path / "a.html", overwrite=True)
    with pytest.raises(InvalidArgumentError, match="no folder"):
        browser.save(tmp_path / "none" / "a.html")
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]


def test_epochs_that_are_not_there_are_refused(store: ss.Store, tmp_path: Path) -> None:
    """By number, with those that are."""
    with pytest.raises(UnknownEpochError, match=r"\[4\].*\n.*0–3, 5–39"):
        StateBrowser(store["delays"]).save(tmp_path / "a.html", epochs=[3, 4])


def test_saving_ends_soon_and_says_what_that_costs(store: ss.Store, tmp_path: Path) -> None:
    """With many epochs not everything is drawn; where the file opens, all of it is."""
    report = StateBrowser(store["delays"], epoch=20).save(tmp_path / "a.html")
    assert report.drawings <= MORE + 2 * len(report.epochs) + 1
    assert any(f"{MORE} of them at most" in note for note in report.left_out)
    album = held(report.path)["album"]
    actions = album["entries"][",".join(map(str, album["first"]))]["actions"]
    model = BrowserModel(store["delays"])
    offered = model.saved_actions(Selection(epoch=20), model.drawing(Selection(epoch=20)))
    assert len(actions) == len(list(offered))


def test_progress_is_told(store: ss.Store, tmp_path: Path) -> None:
    """From nothing to all."""
    steps: list[tuple[int, int]] = []
    StateBrowser(store["delays"]).save(tmp_path / "a.html", progress=lambda *step: steps.append(step))
    assert (steps[0][0], steps[-1]) == (0, (1, 1))
    assert all(done <= total for done, total in steps)


def test_values_cannot_leave_the_data(store: ss.Store, tmp_path: Path) -> None:
    """State that is HTML and script is data in the file, whatever it says."""
    report = StateBrowser(store["hostile"]).save(tmp_path / "hostile.html")
    assert HOSTILE not in report.path.read_text()
    assert HOSTILE in json.dumps(held(report.path))


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_encoded_is_json_that_ends_nothing(value: Any) -> None:
    """It reads back as it was and holds neither ``<`` nor a line end of JavaScript."""
    text = encoded(value)
    assert json.loads(text) == value
    assert not {"<", "\u2028", "\u2029"} & set(text)


def test_plots_are_alive_where_their_library_fits(store: ss.Store, tmp_path: Path) -> None:
    """Otherwise they are still pictures, and the file says so."""
    model = Plotted(store["delays"])
    alive = save(model, Selection(), tmp_path / "alive.html", epochs=[1, 2])
    still = save(model, Selection(), tmp_path / "still.html", epochs=[1, 2], budget=300_000)
    assert alive.size > 800_000
    assert still.size <= 300_000
    assert any(note.startswith("Live plots") for note in still.left_out)
    pictures = [value for value in held(still.path)["album"]["values"] if isinstance(value, dict) and "svg" in value]
    assert pictures[0]["svg"].startswith("<svg")


def test_some_are_spread_evenly() -> None:
    """The first and the last among them, and one that was asked for."""
    assert evenly(range(10), 4) == [0, 3, 6, 9]
    assert evenly(range(10), 2, also=4) == [0, 4, 9]
    assert evenly([3, 5], 9) == [3, 5]
