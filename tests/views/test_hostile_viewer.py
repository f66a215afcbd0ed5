"""One viewer of a served page cannot block it for the others."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
from browser.lab import wait_until
from served_viewer import Tab, Visitor
from synthetic import write
from websocket import WebSocketException

from streamstate.state_inspect.temporal_index.query_interrupts import time_limit
from streamstate.widgets.page import Server, serve
from streamstate.widgets.state_browser import rows

SLOW = " OR ".join(["sha256(" * 35 + f"left(key, {number})" + ")" * 35 + " = 'x'" for number in range(100, 112)])
"""A valid condition that takes many seconds over all keys."""
PATIENCE = 20.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A served query with two epochs of many keys."""
    path = tmp_path_factory.mktemp("many") / "store"
    many = {f"k{number}": number for number in range(100_000)}
    write(path, [many, many | {"k0": -1}])
    with serve(path) as server:
        yield server


def drawing_threads() -> list[str]:
    """The names of the threads that draw state browsers."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("streamstate-browser")]


def test_a_slow_condition_is_cancelled(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view reports the timeout and shows all rows."""
    monkeypatch.setattr(rows, "_CONDITION", 0.3)
    with Tab(Visitor(server), "?query=q") as tab:
        seen = tab.shown(tab.do("filter", {"where": SLOW}), PATIENCE)
        assert seen["problem"] == "The condition took longer than 0.3 s and was stopped."
        assert seen["page"]["matching"] == 100_000


@pytest.fixture
def slow_query_started(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set when a condition starts to run, with a time limit of minutes."""
    event = threading.Event()

    @contextlib.contextmanager
    def limit(seconds: float, what: str) -> Iterator[None]:
        with time_limit(seconds, what):
            event.set()
            yield

    monkeypatch.setattr(rows, "_CONDITION", 600.0)
    monkeypatch.setattr(rows, "time_limit", limit)
    return event


def test_the_latest_request_wins(server: Server, slow_query_started: threading.Event) -> None:
    """A query whose result is no longer needed is cancelled, long before its time limit."""
    with Tab(Visitor(server), "?query=q") as tab:
        tab.do("filter", {"where": SLOW})
        assert slow_query_started.wait(PATIENCE)
        assert tab.shown(tab.do("filter", {"where": "value = 7"}), PATIENCE)["page"]["matching"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["keeps asking", "leaves", "goes elsewhere", "hangs up"])
def test_a_hostile_viewer_does_not_block_the_others(
    server: Server, slow_query_started: threading.Event, behaviour: str
) -> None:
    """While one viewer's slow query runs, and while its tab closes, another viewer's slider responds."""
    with Tab(Visitor(server), "?query=q") as viewer:
        viewer.shown()
        hostile = Tab(Visitor(server), "?query=q")
        hostile.do("filter", {"where": SLOW})
        assert slow_query_started.wait(PATIENCE)
        if behaviour == "keeps asking":
            for number in range(20):
                hostile.do("filter", {"where": f"{SLOW} OR value = {number}"})
        elif behaviour == "leaves":
            hostile.say(hostile.view, {"do": "leave"})
        elif behaviour == "goes elsewhere":
            for number in range(20):
                hostile.go(f"?query=q&section=browser&epoch={number % 2}&key={{%22key%22:%22k{number}%22}}")
        else:
            hostile.close()
        for epoch in (0, 1, 0):
            assert viewer.shown(viewer.do("epoch", epoch), PATIENCE)["epoch"] == epoch
        hostile.close()


@pytest.mark.exhaustive
def test_a_flooding_viewer_is_disconnected(server: Server) -> None:
    """The other viewers are not affected."""
    with Tab(Visitor(server), "?query=q") as viewer, Tab(Visitor(server), "?query=q") as hostile:
        with contextlib.suppress(OSError):  # the server closes the connection
            for _ in range(5_000):
                hostile.say(hostile.view, {"do": "here"})
        hostile.wait_for_the_end()
        assert viewer.shown(viewer.do("epoch", 0), PATIENCE)["epoch"] == 0


REFUSED: list[Callable[[Tab], object]] = [
    lambda tab: tab._send("NO-SUCH", {"x": "y" * 10_000}),
    lambda tab: tab._line.send("{x" * 1_000),
    lambda tab: tab._line.send("[]"),
    lambda tab: tab._send("PATCH-DOC", {"events": [{"kind": "Nope", "x": "y" * 10_000}]}),
    lambda tab: tab._send("PATCH-DOC", {}),
    lambda tab: tab.say("p9999", {"do": "x" * 10_000}),
    lambda tab: tab._event({"type": "event", "name": "nothing", "values": {"type": "map", "entries": []}}),
    lambda tab: tab._event({"type": "object", "name": "bokeh.models.X"}),
    lambda tab: tab._line.send_binary(b"\xff"),
]


def test_refused_messages_leave_a_short_log(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """The first are logged, shortened; of the others, a line says how many there were."""
    for send in REFUSED:
        with (
            Tab(Visitor(server), "?query=q") as hostile,
            contextlib.suppress(OSError, WebSocketException),  # the server may close the connection
        ):
            for _ in range(80):
                send(hostile)
            hostile.shown(hostile.do("epoch", 0), PATIENCE)
    with Tab(Visitor(server), "?query=q") as viewer:
        viewer.shown(viewer.do("epoch", 0), PATIENCE)
    logged = [record for record in caplog.records if record.name.startswith("bokeh")]
    assert any("error handling message" in record.getMessage() for record in logged)
    assert not any(record.exc_info for record in logged)
    assert sum(len(record.getMessage()) for record in logged) < 60_000


@pytest.mark.slow
def test_no_threads_remain_after_the_tabs_close(server: Server) -> None:
    """The threads and queries of all the tests above have ended."""
    wait_until(lambda: not server.viewers, "the tabs to close")
    wait_until(lambda: not drawing_threads(), "the drawing threads to end")
