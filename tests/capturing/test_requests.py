"""The requests of readers to an object store; each call and each drawing reads the manifest once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from synthetic import START, write

import streamstate as ss
from capturing.buckets import Bucket, bucket  # noqa: F401 (a fixture)
from streamstate.reports import History, Store
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.snapshots.store.delta import Place
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.state_inspect import store_facts

pytestmark = pytest.mark.slow

EPOCHS = 12
POLL = "HEAD bucket/store/q/_epochs/_delta_log/00000000000000000013.json"
STATES: list[dict[str, int] | None] = [{"a": epoch, "b": epoch // 5, "c": 7} for epoch in range(EPOCHS)]


def upload_store(bucket: Bucket, name: str, **queries: list[dict[str, int] | None]) -> str:
    """Write a store with the states of the queries to the bucket; returns its URI."""
    location = f"{bucket.uri}/{name}"
    files = Place(location, bucket.options).filesystem()
    with tempfile.TemporaryDirectory() as folder:
        for query, states in queries.items():
            write(Path(folder), states, keyframe_every=5, query=query)
        for path in Path(folder).rglob("*"):
            if path.is_file() and path.suffix != ".crc":
                with files.open_output_stream(str(path.relative_to(folder))) as file:
                    file.write(path.read_bytes())
    return location


@pytest.fixture(scope="module")
def store(bucket: Bucket) -> Store:
    """A store with two queries, both of which have been read once."""
    opened = ss.open_store(upload_store(bucket, "store", q=STATES, r=STATES[:-1]), storage_options=bucket.options)
    for name in opened:
        opened[name].key_history(key="a")
        assert opened[name].results() == []  # looks for plans, as views do; the next look is after a new epoch
    return opened


@pytest.fixture
def history(bucket: Bucket, store: Store) -> History:
    """A query of the store; recorded requests are cleared."""
    history = store["q"]
    bucket.requests()
    return history


def kinds(requests: list[str]) -> dict[str, int]:
    """The number of requests by method and kind of object."""
    counts: dict[str, int] = {}
    for request in requests:
        method, key = request.split(" ", 1)
        kind = "data" if key.endswith(".parquet") else "log"
        counts[f"{method} {kind}"] = counts.get(f"{method} {kind}", 0) + 1
    return counts


def test_requests_of_the_first_lookup(bucket: Bucket) -> None:
    """Each Delta log is listed once and its entries are read three times; data files are fetched once, without HEAD."""
    location = upload_store(bucket, "first", q=STATES)
    bucket.requests()
    opened = ss.open_store(location, storage_options=bucket.options)
    assert kinds(bucket.requests()) == {"LIST log": 1, "GET log": 5, "GET data": 1}
    history = opened["q"]
    assert kinds(bucket.requests()) == {"HEAD log": 1}
    assert history.live().table().lookup(key="a") == {"key": "a", "value": 11}
    entries, newest = EPOCHS + 1, 2  # data files of the log: the last keyframe, and the changes since then
    assert kinds(bucket.requests()) == {
        "LIST log": 2,
        "GET log": 2 * (3 * entries + 1),
        "GET data": EPOCHS + newest,
    }


def test_a_warm_lookup_is_one_request(bucket: Bucket, history: History) -> None:
    """The request checks for a newer manifest. A lookup in an existing snapshot makes no request."""
    table = history.live().table()
    bucket.requests()
    table.lookup(key="b")
    assert bucket.requests() == []
    history.live().table().lookup(key="c")
    assert bucket.requests() == [POLL]


def test_an_overview_of_many_queries_reads_the_newest_entry_of_each_log(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing and an entry for the manifest, and for each state table; then a look at each manifest."""
    monkeypatch.setattr(store_facts, "_FEW", 0)
    opened = ss.open_store(upload_store(bucket, "many", q=STATES, r=STATES), storage_options=bucket.options)
    bucket.requests()
    first = opened.overview()
    requests = bucket.requests()
    newest = [f"{table}/_delta_log/{EPOCHS:020}.json" for table in ("q/_epochs", "q/op0")]
    assert {request for request in requests if "GET" in request and "/q/" in request} == {
        f"GET bucket/many/{entry}" for entry in newest
    }
    assert kinds([request for request in requests if "_queries" not in request]) == {"LIST log": 4, "GET log": 4}
    assert opened.overview().equals(first)
    assert kinds(bucket.requests()) == {"HEAD log": 1 + 2}


CALLS: dict[str, Callable[[Store, Any], object]] = {
    "at": lambda _, q: q.at("live - 3").table().count(),
    "tables": lambda _, q: q.tables(),
    "repr": lambda _, q: repr(q),
    "diff": lambda _, q: q.diff(3, "live - 1").counts,
    "key_history": lambda _, q: q.key_history(key="a"),
    "first": lambda _, q: q.first("value > 3"),
    "when": lambda _, q: q.when("value > 3"),
    "growth": lambda _, q: q.growth("op0"),
    "untouched": lambda _, q: q.stale_keys(epochs=3).count,
    "heavy_keys": lambda _, q: q.heavy_keys(),
    "fingerprints": lambda _, q: q.fingerprints(),
    "compare": lambda store, q: q.compare(store["r"]),
    "sql": lambda store, _: store.sql(
        "SELECT * FROM q VERSION AS OF 3 AS a JOIN q VERSION AS OF 'live - 1' AS b USING (key)"
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_reads_the_manifest_once(bucket: Bucket, store: Store, history: History, name: str) -> None:
    """All lookups of a call use the same epochs, and indexed data is not read again."""
    CALLS[name](store, history)
    requests = bucket.requests()
    assert [request for request in requests if "/q/" in request] == [POLL]
    assert len(requests) <= 3  # the others are for the other query's manifest and the queries table


@pytest.mark.parametrize("view", ["browser", "diffs", "key_history", "timeline", "overview"])
def test_a_drawing_reads_the_manifest_once(bucket: Bucket, store: Store, history: History, view: str) -> None:
    """All parts of a view show the same epochs."""
    from streamstate import widgets

    views: dict[str, Callable[[], Any]] = {
        "browser": lambda: widgets.StateBrowser(history, epoch=7),
        "diffs": lambda: widgets.DiffView(history, 3, 7),
        "key_history": lambda: widgets.KeyHistoryView(history, "op0", {"key": "a"}),
        "timeline": lambda: widgets.Timeline(history),
        "overview": lambda: widgets.StoreOverview(store),
    }
    widget = views[view]()
    widget.model.drawing(widget.selection)
    bucket.requests()
    widget.model.drawing(widget.selection)
    requests = bucket.requests()
    assert [request for request in requests if "/q/" in request] == [POLL]
    assert len(requests) <= 3  # the others are for the other query's manifest and the queries table


def test_a_slider_move_is_one_request(bucket: Bucket, history: History) -> None:
    """Drawing another epoch checks for a newer manifest, and reads everything else from the index."""
    from streamstate.widgets.state_browser.actions import BrowserSelection
    from streamstate.widgets.state_browser.model import BrowserModel

    model = BrowserModel(history)
    model.drawing(BrowserSelection(epoch=3))
    bucket.requests()
    for epoch in (7, 6, 7):
        model.drawing(BrowserSelection(epoch=epoch))
        assert bucket.requests() == [POLL]


def add_epoch(layout: Layout, epoch: int) -> None:
    """Add an epoch without changes to ``q``."""
    manifest = Manifest(layout, "q")
    manifest.refresh()
    facts = {"op0": TableEntry(3, 0, 10)}
    entry = Entry(epoch, "captured", committed_at=START + timedelta(minutes=epoch), offsets="[0]", tables=facts)
    manifest.append([entry], "q/_epochs")


def test_requests_for_a_new_epoch_do_not_depend_on_the_length_of_the_log(bucket: Bucket) -> None:
    """An open history reads the new log entries only."""
    location = upload_store(bucket, "grows", q=STATES)
    store = ss.open_store(location, storage_options=bucket.options)
    history, layout = store["q"], Layout.at(location, bucket.options)
    history.live().table().lookup(key="a")
    add_epoch(layout, EPOCHS)
    bucket.requests()
    assert history.live().epoch == EPOCHS
    assert kinds(bucket.requests()) == {"HEAD log": 2, "LIST log": 1, "GET log": 3, "GET data": 1}


def test_a_commit_does_not_look_for_its_own_entry(bucket: Bucket) -> None:
    """A writer knows what it has committed; it asks for the entry after it, which another writer may have added."""
    location = upload_store(bucket, "written", q=STATES)
    manifest = Manifest(Layout.at(location, bucket.options), "q")
    manifest.refresh()
    facts = {"op0": TableEntry(3, 0, 10)}
    for epoch in (EPOCHS, EPOCHS + 1):
        bucket.requests()
        entry = Entry(epoch, "captured", committed_at=START + timedelta(minutes=epoch), offsets="[0]", tables=facts)
        manifest.append([entry], "q/_epochs")
    requests = bucket.requests()
    (committed,) = [request for request in requests if request.startswith("PUT ") and request.endswith(".json")]
    afterwards = requests[requests.index(committed) :]
    assert committed.replace("PUT", "HEAD") not in afterwards
    assert [entry.epoch for entry in manifest.entries][-2:] == [EPOCHS, EPOCHS + 1]


def test_a_consistent_read_does_not_see_new_epochs(tmp_path: Path) -> None:
    """All calls in the block, also in a nested block, see the same epochs. New epochs are visible after it."""
    write(tmp_path, STATES)
    history = ss.open_store(tmp_path)["q"]
    with consistent_read():
        assert history.live().epoch == EPOCHS - 1
        add_epoch(Layout.at(tmp_path), EPOCHS)
        with consistent_read():
            assert history.captured()[-1] == EPOCHS - 1
        ss.open_store(tmp_path)["q"].live()  # another reader does not change it
        assert history.live().epoch == EPOCHS - 1
    assert history.live().epoch == EPOCHS


def test_a_drawing_after_a_new_epoch_shows_it(tmp_path: Path) -> None:
    """A model does not keep the epochs of its previous drawing."""
    from streamstate.widgets.state_browser.actions import BrowserSelection
    from streamstate.widgets.state_browser.model import BrowserModel

    write(tmp_path, STATES)
    model = BrowserModel(ss.open_store(tmp_path)["q"])
    assert model.drawing(BrowserSelection()).kept.epoch == EPOCHS - 1
    add_epoch(Layout.at(tmp_path), EPOCHS)
    assert model.drawing(BrowserSelection()).kept.epoch == EPOCHS
