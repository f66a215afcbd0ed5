"""Store overviews without a browser: facts, forks, sizes, errors, and static forms."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import synthetic
from synthetic import write

import streamstate as ss
from browser.epochs import entry, eventful, record
from browser.stores import HOSTILE, START, Written, flights, hostile
from streamstate.snapshots.store.delta.table_size import TableSize
from streamstate.snapshots.store.registry import Branch, Lineage
from streamstate.state_inspect.overview import QueryFacts, as_tree
from streamstate.widgets import Focus, StoreOverview
from streamstate.widgets.overview import ROWS, OverviewDrawing, OverviewModel, OverviewSelection


def facts(model: OverviewModel) -> dict[str, QueryFacts]:
    """The facts of each query."""
    kept = model.drawing(OverviewSelection()).kept
    assert isinstance(kept, OverviewDrawing)
    return {query.name: query for query in kept.queries}


def on_disk(table: Path) -> int:
    """The bytes of a table's data files, if none was ever replaced."""
    return sum(file.stat().st_size for file in table.glob("*.parquet"))


def test_the_facts_match_the_store(tmp_path: Path) -> None:
    """Epochs, gaps, rows of state and bytes equal those counted in the state and on disk."""
    flights(tmp_path)
    hostile(tmp_path)
    store = ss.open_store(tmp_path)
    found = facts(OverviewModel(store))
    assert list(found) == ["delays", "hostile"]
    delays = found["delays"]
    assert (delays.captured, delays.gaps, delays.epoch) == (6, 1, 6)
    assert delays.committed == START + dt.timedelta(minutes=6)
    for name, query in found.items():
        live = store[name].live()
        assert {table.name: table.rows for table in query.tables} == {
            table: live.table(table).count() for table in live.tables()
        }
        assert {table.name: table.bytes for table in query.tables} == {
            table: on_disk(tmp_path / name / table) for table in live.tables()
        }
        assert query.bytes == sum(on_disk(folder) for folder in (tmp_path / name).iterdir())


def test_rows_are_counted_after_the_rest_is_shown(tmp_path: Path) -> None:
    """Capture has counted only the first epoch: a quick drawing comes without rows, the next one with them."""
    write(tmp_path, [{"a": 1}, {"a": 1, "b": 2}])
    model = OverviewModel(ss.open_store(tmp_path))
    quick = model.quick(OverviewSelection())
    assert quick.unfinished
    assert [query.rows for query in quick.kept.queries] == [None]
    assert facts(model)["q"].rows == 2
    assert not model.quick(OverviewSelection()).unfinished


def test_forks_are_listed_below_their_parents(tmp_path: Path) -> None:
    """They are sorted by fork epoch; the parent is resolved whether it is recorded by name or by id."""
    eventful(tmp_path)
    record(tmp_path, "again", [], fork_of=("id of trips", 12))
    record(tmp_path, "apart", [])
    record(tmp_path, "deeper", [], fork_of=("trial", 44))
    found = facts(OverviewModel(ss.open_store(tmp_path)))
    assert [(name, query.depth) for name, query in found.items()] == [
        ("apart", 0),
        ("trips", 0),
        ("again", 1),
        ("trial", 1),
        ("deeper", 2),
    ]
    assert (found["again"].branch.parent, found["again"].branch.parent_epoch) == ("trips", 12)


def test_an_invalid_lineage_hides_no_query() -> None:
    """Queries with a missing parent, and queries that are each other's parents, are still listed."""
    branches = [Branch("a", "1", "", "b", 1), Branch("b", "2", "", "a", 1), Branch("c", "3", "", "gone", 1)]
    assert sorted(node.name for node, _ in as_tree(branches)) == ["a", "b", "c"]


def test_one_broken_query_does_not_hide_the_others(tmp_path: Path) -> None:
    """It shows its error, and recovers when the store does."""
    flights(tmp_path)
    record(tmp_path, "bad", [entry(0)])
    model = OverviewModel(ss.open_store(tmp_path))
    before = model.newest()
    log = tmp_path / "bad" / "_epochs" / "_delta_log"
    broken = log / f"{len(list(log.glob('*.json'))):020}.json"
    broken.write_text("no JSON")
    assert model.newest() != before
    found = facts(model)
    assert "bad" in found["bad"].problem
    assert (found["delays"].problem, found["delays"].epoch) == ("", 6)
    shown = model.drawing(OverviewSelection())
    assert "1 cannot be read" in shown.message["facts"]
    assert "Cannot be read" in model.html(shown)
    broken.unlink()
    assert facts(model)["bad"].problem == ""
    assert model.newest() == before


def test_a_missing_changelog_is_reported(tmp_path: Path) -> None:
    """The facts from the manifest are still shown."""
    written = flights(tmp_path)
    log = tmp_path / "delays" / "op0" / "_delta_log"
    for file in log.iterdir():
        file.unlink()
    found = facts(OverviewModel(ss.open_store(tmp_path)))["delays"]
    assert (found.epoch, found.rows) == (6, len(written.newest()["op0"]))
    assert "op0" in found.problem


def test_a_size_is_computed_once_per_version(tmp_path: Path) -> None:
    """An unchanged table returns the same object; a commit changes the size."""
    written = flights(tmp_path)
    size = TableSize(ss.open_store(tmp_path).layout.changelog("delays", "op0"))
    before = size.now()
    assert size.now() is before
    written.add({"op0": {}})
    assert size.now().files == before.files + 1


def test_a_lineage_is_read_when_it_changes(tmp_path: Path) -> None:
    """The same object is returned until a new query is registered."""
    record(tmp_path, "first", [])
    lineage = Lineage(ss.open_store(tmp_path).layout)
    before = lineage.branches()
    assert lineage.branches() is before
    record(tmp_path, "second", [], fork_of=("first", 3))
    assert [branch.name for branch in lineage.branches()] == ["first", "second"]
    assert [fork.name for fork in lineage.forks("first")] == ["second"]


def test_the_overview_is_redrawn_only_for_new_epochs_or_queries(tmp_path: Path) -> None:
    """``newest`` compares equal as long as there is no new epoch and no new query."""
    written = flights(tmp_path)
    model = OverviewModel(ss.open_store(tmp_path))
    before = model.newest()
    model.drawing(OverviewSelection())
    assert model.newest() == before
    written.add(None)
    grown = model.newest()
    assert grown != before
    record(tmp_path, "other", [])
    assert model.newest() != grown


def test_a_selected_query_is_the_focus(tmp_path: Path) -> None:
    """A query is selected by its row and deselected by selecting it again; invalid actions are ignored."""
    flights(tmp_path)
    hostile(tmp_path)
    model = OverviewModel(ss.open_store(tmp_path))
    kept = model.drawing(OverviewSelection()).kept
    chosen = model.acted(OverviewSelection(), "query", 1, kept)
    assert model.focus(chosen) == Focus(query="hostile")
    assert [table["name"] for table in model.drawing(chosen).message["chosen"]["tables"]] == ["op0", "op1_left"]
    assert model.acted(chosen, "query", 1, kept) == OverviewSelection()
    for action, value in (("query", 99), ("query", "delays"), ("drop", 1), ("page", None)):
        assert model.acted(chosen, action, value, kept) == chosen
    assert model.focused(OverviewSelection(), Focus(query="delays")).query == "delays"
    assert model.focused(chosen, Focus(query="unknown")) == chosen
    assert model.focused(chosen, Focus(epoch=3)) == chosen


def test_many_queries_are_paged(tmp_path: Path) -> None:
    """One page of rows is sent; a page beyond the end shows the last page."""
    for number in range(ROWS + 3):
        record(tmp_path, f"q{number:02}", [])
    model = OverviewModel(ss.open_store(tmp_path))
    first, last = (model.drawing(OverviewSelection(page=page)).message for page in (0, 9))
    assert (len(first["rows"]), len(last["rows"]), last["total"]) == (ROWS, 3, ROWS + 3)
    assert model.focused(OverviewSelection(), Focus(query="q26")).page == 1


def test_names_in_the_overview_are_escaped(tmp_path: Path) -> None:
    """A fork's parent may have any name; there is no script in the table."""
    record(tmp_path, "q", [entry(0)], fork_of=(HOSTILE, 1))
    overview = StoreOverview(ss.open_store(tmp_path))
    html = overview._repr_mimebundle_()[0]["text/html"]
    assert HOSTILE not in html
    assert "<script" not in html
    assert "fork of" in html


def test_the_overview_has_a_text_form(tmp_path: Path) -> None:
    """Each query is described in a few words."""
    flights(tmp_path)
    Written(tmp_path, "young", {})
    text = repr(StoreOverview(ss.open_store(tmp_path)))
    assert "2 queries" in text
    assert "delays: epoch 6, 1 gap, 27 rows, " in text
    assert text.endswith("young: no epoch captured yet")
    waiting = QueryFacts(Branch("young", "id", "there"), backlog=4)
    assert OverviewDrawing("store", [waiting], START).text().endswith("young: no epoch captured yet, 4 behind")


def test_a_dropped_epoch_is_not_counted(tmp_path: Path) -> None:
    """After retention, the overview shows only what remains."""
    synthetic.write(tmp_path, [{"a": n} for n in range(12)], query="q")
    model = OverviewModel(ss.open_store(tmp_path))
    assert facts(model)["q"].captured == 12
    ss.open_store(tmp_path)["q"].retain(last=4)
    assert facts(model)["q"].captured == 4


def test_a_store_without_queries_says_so(tmp_path: Path) -> None:
    """An empty store is not drawn as an error."""
    shown = OverviewDrawing("store", [], START)
    assert shown.facts() == ["0 queries", "0 B"]
    assert "<table" in shown.html()
