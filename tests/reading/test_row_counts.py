"""Numbers of rows: from the manifest where capture has counted them, otherwise counted in the index, exactly."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import State, copy_of, write

import streamstate as ss
from streamstate.reports import History
from streamstate.snapshots.store.delta.commits import commit_once, required
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.entries import TableCounts, TableEntry
from streamstate.snapshots.store.keyframes import keyframe_file, keyframe_rows, keyframes_in, marked_rows, marks_of
from streamstate.state_inspect import captured_query
from streamstate.state_inspect.store_facts import StoreFacts
from streamstate.state_inspect.temporal_index import index
from streamstate.widgets import Timeline
from streamstate.widgets.overview import OverviewDrawing
from streamstate.widgets.timeline.model import TimelineModel

STATES: list[State | None] = [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"c": 3}, {"a": 4, "c": 3}]


def known(history: History) -> list[int | None]:
    """Return the counts in the manifest and the index, without reading anything."""
    return [rows.get("op0") for rows in history.epochs()["rows"]]


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A query whose rows were counted only at its first epoch."""
    copy_of(tmp_path / "s", STATES)
    return ss.open_store(tmp_path / "s")["q"]


@pytest.fixture
def slow_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any state takes long to read."""
    monkeypatch.setattr(captured_query, "_SOON_READ", 0)


@settings(deadline=None, max_examples=12)
@given(
    states=st.lists(st.none() | st.dictionaries(st.sampled_from("abcd"), st.integers(0, 1)), min_size=2, max_size=12),
    keyframes=st.sampled_from([0, 3]),
    first=st.integers(0, 11),
)
def test_counts_are_exact(states: list[State | None], keyframes: int, first: int) -> None:
    """Keys that come, go and come back are counted once, after gaps too, whichever epoch is read first."""
    with TemporaryDirectory() as folder:
        write(Path(folder), [{}, *states], keyframe_every=keyframes, commit_every=4)
        history = ss.open_store(folder)["q"]
        expected = {epoch: len(state) for epoch, state in enumerate([{}, *states]) if state is not None}
        captured = history.captured()
        for epoch in (captured[first % len(captured)], captured[-1], captured[0]):
            assert history.at(epoch).rows() == {"op0": expected[epoch]}
            assert history.at(epoch).table().count() == expected[epoch]
        growth = history.growth()
        assert dict(zip(growth["epoch"], growth["rows"], strict=True)) == expected
        assert [count for count in known(history) if count is not None] == [*expected.values()]


def test_the_manifest_alone_does_not_count(history: History) -> None:
    """Nothing is read for the epochs' rows; once the table is read, they are counted."""
    assert known(history) == [1, None, None, None]
    assert repr(history.live()) == "<Snapshot of q at epoch 3: op0>"
    assert history.at(2).rows() == {"op0": 1}
    assert known(history) == [1, 3, 1, 2]
    assert repr(history.live()) == "<Snapshot of q at epoch 3: op0 (2 rows)>"
    assert history.growth()["delta"].tolist() == [1, 2, -2, 1]


def test_many_epochs_are_counted_in_one_statement(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running sum gives the same numbers as counting each epoch."""
    monkeypatch.setattr(index, "_FEW", 0)
    assert history.growth()["rows"].tolist() == [1, 3, 1, 2]


def test_an_overview_does_not_read_the_state(history: History) -> None:
    """It shows a dash for rows that nobody has counted, and the number once something has read them."""
    store = history.recorded.layout.root
    opened = ss.open_store(store)
    facts = StoreFacts(opened)
    [query] = facts.queries()
    assert (query.rows, query.tables[0].rows) == (None, None)
    assert "rows" not in OverviewDrawing(store, [query], opened["q"].live().committed_at).text()  # type: ignore[arg-type]
    opened["q"].live().table()
    assert facts.queries()[0].rows == 2


def test_what_is_soon_counted_is_counted(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a limit, and if it can be read; what only lists epochs goes on."""
    entries = history.recorded.entries()
    monkeypatch.setattr(captured_query, "_SOON_READ", 5)
    assert [entry.rows for entry in history.recorded.count_soon()] == [1, None, None, None]
    monkeypatch.setattr(captured_query, "_SOON_READ", 6)
    assert [entry.rows for entry in history.recorded.count_soon()] == [1, 3, 1, 2]
    assert history.recorded.newest_rows() == {"op0": 2}
    assert entries[1].rows is None


def test_a_timeline_counts_what_is_soon_counted(history: History) -> None:
    """Without being asked."""
    drawing = TimelineModel(history).view(Timeline(history).selection)
    assert [point.values["rows"] for point in drawing.points] == [1, 3, 1, 2]


@pytest.mark.usefixtures("slow_to_count")
def test_a_timeline_shows_the_rows_that_are_counted(history: History) -> None:
    """It says why others are missing, and shows them as soon as another view has read the state."""
    model = TimelineModel(history)
    drawing = model.view(Timeline(history).selection)
    assert [point.values["rows"] for point in drawing.points] == [1, None, None, None]
    assert any("have been read" in text or "has been read" in text for text in drawing.caption())
    history.at(1).table()
    drawing = model.view(Timeline(history).selection)
    assert [point.values["rows"] for point in drawing.points] == [1, 3, 1, 2]
    assert not any("has been read" in text for text in drawing.caption())


@pytest.mark.usefixtures("slow_to_count")
def test_a_timeline_counts_rows_on_request(history: History) -> None:
    """Then it reads the state, also of epochs that are captured later."""
    assert TimelineModel(history).drawing(Timeline(history).selection).message["uncounted"]
    model, selection = TimelineModel(history), Timeline(history, count_rows=True).selection
    assert model.acted(Timeline(history).selection, "count", True, None) == selection
    assert [point.values["rows"] for point in model.view(selection).points] == [1, 3, 1, 2]
    assert not model.drawing(selection).message["uncounted"]
    write(Path(history.recorded.layout.root), [*STATES, {"d": 1}])
    assert [point.values["rows"] for point in model.view(selection).points] == [1, 3, 1, 2, 1]


def test_the_most_rows_follow_from_the_last_count(history: History) -> None:
    """Every change since may have added a row."""
    counts = TableCounts(history.recorded.entries(), "op0")
    assert counts.most() == 1 + 2 + 2 + 1
    facts = history.recorded.entries().facts("op0")
    assert (facts.rows_at(0), facts.rows_at(1), facts.rows_at(9)) == (1, None, None)
    assert counts.changes_since(1) == 3
    assert (counts.counted_since(None), counts.counted_since(0), counts.counted_since(1)) == (1, 1, None)


def test_entries_without_counts_are_written_and_read(history: History) -> None:
    """A count that is missing is null in the manifest's map."""
    entries = history.recorded.entries()
    assert entries[1].tables == {"op0": TableEntry(None, 2, None)}
    assert (entries[0].rows, entries[1].rows) == (1, None)


def test_retention_counts_its_keyframes(history: History) -> None:
    """The log begins with one at the oldest kept epoch, whose rows the manifest then has."""
    store = history.recorded.layout.root
    ss.open_store(store)["q"].retain(last=2)
    kept = ss.open_store(store)["q"]
    assert (kept.captured(), known(kept)) == ([2, 3], [1, None])
    assert kept.live().rows() == {"op0": 2}


@pytest.mark.parametrize("rows", [2, 1, None])
def test_a_keyframe_beside_its_epoch_counts_if_it_is_complete(history: History, rows: int | None) -> None:
    """Its commit says how many rows it has. Without that, or if some are in other files, it is not used."""
    place = history.recorded.layout.changelog("q", "op0")
    marks = {} if rows is None else marks_of(3, rows)
    commit_once(
        place, "q/keyframes", 3, lambda table, _: keyframe_file(TableVersion(place, table), 3, None), marks=marks
    )
    version = TableVersion(place, required(place))
    assert marked_rows(version.table, 3) == rows
    assert keyframes_in(version, history.recorded.entries().facts("op0")) == ([3] if rows == 2 else [])
    assert keyframe_rows(version) == {3: 2}
    assert history.live().rows() == {"op0": 2}
