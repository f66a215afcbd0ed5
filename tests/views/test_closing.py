"""Closing a view leaves no thread behind, however the view is shown."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from browser.stores import flights

import streamstate as ss
from streamstate.widgets import StateBrowser
from streamstate.widgets.live.component import ViewComponent, component
from streamstate.widgets.page.app import WorkQueue


def test_closing_waits_for_the_thread_that_its_widget_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The widget closes first and stops the thread without waiting; the thread still has to release its resources."""
    flights(tmp_path / "store")
    view = StateBrowser(ss.open_store(tmp_path / "store")["delays"])
    closing, ended = threading.Event(), threading.Event()
    release = view.model.release

    def slowly() -> None:
        closing.wait(10)
        release()
        ended.set()

    monkeypatch.setattr(view.model, "release", slowly)
    view.widget()._hosted.received({"from": "a page", "content": {"do": "join"}})
    threading.Timer(0.3, closing.set).start()
    view.close()
    assert ended.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("streamstate-browser")]


def test_a_closed_tab_is_cleaned_up_even_if_its_queue_is_full(tmp_path: Path) -> None:
    """A viewer sends many messages and leaves: messages may be dropped, the close is not, and no thread remains."""
    flights(tmp_path / "store")
    view = StateBrowser(ss.open_store(tmp_path / "store")["delays"])
    blocked, started = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        blocked.wait(10)

    with ThreadPoolExecutor(1) as threads:
        queue = WorkQueue(threads)
        shown = component(view._live, queue.submit)
        assert isinstance(shown, ViewComponent)
        shown._hosted.received({"from": "a page", "content": {"do": "join"}})
        queue.submit(block)
        assert started.wait(10)
        for _ in range(1_000):
            shown._handle_msg({"from": "a page", "content": {"do": "here"}})
        shown._cleanup()
        done = threading.Event()
        queue.submit(done.set, always=True)
        blocked.set()
        assert done.wait(10)
        assert not view._live.watched
    view.close()


def test_a_server_that_stops_still_closes_its_tabs() -> None:
    """Its threads take no more work; what a tab waits for, which closes its views, is done nevertheless."""
    threads = ThreadPoolExecutor(1)
    queue = WorkQueue(threads)
    stopped, closed = threading.Event(), threading.Event()

    def first() -> None:
        stopped.wait(10)

    queue.submit(first)
    queue.submit(closed.set, always=True)
    threads.shutdown(wait=False)
    stopped.set()
    threads.shutdown()
    assert closed.is_set()
