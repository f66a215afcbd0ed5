"""The address of a served page: what a reload, the back button and a copied link show again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest
from browser.stores import flights
from hypothesis import given
from hypothesis import strategies as st
from served_viewer import Tab, Visitor

from streamstate.reports import Store
from streamstate.widgets.address_fields import LONGEST, address_parts, restored
from streamstate.widgets.diffs.actions import DiffSelection
from streamstate.widgets.key_history.actions import KeySelection
from streamstate.widgets.model import SIZES
from streamstate.widgets.page import serve
from streamstate.widgets.page.address import Address
from streamstate.widgets.page.head import Catalogue, PageModel
from streamstate.widgets.page.statements import Statements
from streamstate.widgets.state_browser.actions import BrowserSelection
from streamstate.widgets.timeline.actions import TimelineSelection

SELECTIONS: dict[str, Any] = {
    "browser": BrowserSelection(),
    "diff": DiffSelection(0),
    "key": KeySelection(),
    "timeline": TimelineSelection(),
}


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """A viewer of a served store with the query ``delays``."""
    path = tmp_path_factory.mktemp("addressed") / "store"
    flights(path)
    with serve(path) as server:
        yield Visitor(server)


def test_an_address_restores_filter_order_and_page(visitor: Visitor) -> None:
    """As they were: the rows are those of the second page of the sorted matches, at the epoch."""
    at = Address("delays", "browser", epoch=3, view={"where": "flights > 3", "order_by": "flights", "descending": "1"})
    with Tab(visitor, at.text() + "&page=1") as tab:
        seen = tab.shown()
        assert (seen["epoch"], seen["page"]["offset"], seen["selection"]["order_by"]) == (3, 10, "flights")
        numbers = [int(row["cells"][2]["text"]) for row in seen["page"]["rows"]]
        assert numbers == sorted(numbers, reverse=True)
        assert 0 < seen["page"]["matching"] < seen["total"]


def test_the_address_follows_every_choice(visitor: Visitor) -> None:
    """Sorting, filtering, turning pages, and opening a row; what goes back to its default leaves the address."""
    with Tab(visitor, "?query=delays&epoch=3") as tab:
        tab.shown()
        tab.do("sort", "mean")
        assert parse_qs(tab.address("order_by=mean")[1:])["epoch"] == ["3"]
        tab.do("filter", {"column": "carrier", "text": "C0"})
        tab.do("page", 1)
        parts = parse_qs(tab.address("page=1")[1:])
        assert (parts["text"], parts["column"], parts["order_by"]) == (["C0"], ["carrier"], ["mean"])
        tab.do("filter", {"text": ""})
        assert "text" not in parse_qs(tab.address("column=carrier")[1:])


def test_going_back_undoes_a_filter(visitor: Visitor) -> None:
    """The address before had none."""
    with Tab(visitor, "?query=delays&epoch=3&where=flights+%3E+900") as tab:
        assert tab.shown()["page"]["matching"] == 0
        tab.go("?query=delays&epoch=3")
        assert tab.shown()["page"]["matching"] == 27


def test_an_address_restores_a_difference(visitor: Visitor) -> None:
    """Its two epochs, and which keys are shown."""
    with Tab(visitor, "?query=delays&section=diff&between=1-3&change=added&size=25") as tab:
        seen = tab.shown()
        assert [side["epoch"] for side in seen["sides"]] == [1, 3]
        assert {row["mark"] for row in seen["page"]["rows"]} == {"+"}


def test_another_section_begins_with_its_own_choices(store: Store) -> None:
    """A page number of the browser is none of the timeline's; the epoch stays."""
    at = Address("delays", "browser", epoch=3, view={"page": "2", "where": "flights > 3"})
    sections = PageModel(Catalogue(store, Statements(store))).drawing(at).message["sections"]
    assert sections[1]["address"] == "?query=delays&section=timeline&epoch=3"


def test_a_key_can_be_typed_on_the_key_tab(visitor: Visitor) -> None:
    """Without a key in the address there are fields and a hint, not an error; the typed key is in the address."""
    with Tab(visitor, "?query=delays&section=key") as tab:
        seen = tab.shown()
        assert [field["name"] for field in seen["fields"]] == ["carrier", "origin"]
        assert "type it here" in seen["why_empty"]
        tab.do("typed", ["C01", "JFK"])
        assert parse_qs(tab.address("key=")[1:])["key"] == ['{"carrier":"C01","origin":"JFK"}']


@given(st.sampled_from([*SELECTIONS]), st.data())
def test_parts_survive_a_round_trip(kind: str, data: st.DataObject) -> None:
    """Through the text of an address, whatever was chosen."""
    selection = restored(SELECTIONS[kind], data.draw(parts))
    text = Address("q", kind, view=address_parts(selection)).text()
    assert restored(SELECTIONS[kind], Address.read(text).view) == selection


names = sorted({name for kind in SELECTIONS.values() for name in vars(kind)})
texts = st.sampled_from(["0", "1", "2", "25", "100", "none", "all", "changed", "added", "-1", "9" * 30]) | st.text()
parts = st.dictionaries(st.sampled_from(names), texts.map(lambda text: text.encode("utf-8", "ignore").decode()))


@given(parts)
def test_invalid_parts_are_ignored(given_parts: dict[str, str]) -> None:
    """Anyone can write an address: every field is valid afterwards, and short."""
    found = restored(BrowserSelection(page=7, rows="changed"), given_parts)
    assert found.rows in ("all", "changed")
    assert found.size in SIZES
    assert all(0 <= value < 10**9 for value in (found.page, found.from_column))
    assert isinstance(found.descending, bool)
    assert found.key is None
    assert restored(BrowserSelection(), {"where": "x" * (LONGEST + 1)}).where == ""


@pytest.mark.parametrize("text", ["?page=1&page=2", "?%00=1", "?where=%ff%fe", "?__class__=x&order_by=%F0%9F%A6%86"])
def test_odd_addresses_open_the_page(visitor: Visitor, text: str) -> None:
    """With what they name validly."""
    with Tab(visitor, f"{text}&query=delays") as tab:
        assert tab.shown()["page"]["rows"]
