"""The query dashboard beside a query of this process: its plan, its end, its failure, and a JVM that is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Source, counts
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from synthetic import write

import streamstate as ss
from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.widgets import QueryDashboard
from streamstate.widgets.dashboard.drawing import View
from streamstate.widgets.dashboard.model import DashboardModel
from streamstate.widgets.dashboard.sample import Probe
from streamstate.widgets.dashboard.watcher import Watcher


def until(condition: Callable[[], Any], what: str, timeout: float = 60) -> Any:
    """The first true value of ``condition``."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {timeout} s for {what}"
        threading.Event().wait(0.05)
    return value


def start(frame: DataFrame, folder: Path, sink: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """A query that runs until it is stopped."""
    writer = frame.writeStream.foreachBatch(sink).outputMode("update")
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


@pytest.fixture
def fed(spark: SparkSession, tmp_path: Path) -> Source:
    """A source with two epochs of input."""
    source = Source(spark, tmp_path / "in", "k string, v long")
    for _ in range(2):
        source.add({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    return source


class Beside:
    """A handle of a query and its capture, as ``%%stream`` returns one."""

    def __init__(self, query: StreamingQuery, capture: object) -> None:
        self.query, self.capture = query, capture


@pytest.fixture
def watched() -> Iterator[list[QueryDashboard]]:
    """Dashboards that are closed afterwards, and leave no thread behind."""
    made: list[QueryDashboard] = []
    yield made
    for one in made:
        one.model.release()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("streamstate-watch-")]


def seen(dashboard: QueryDashboard) -> View:
    """What it shows now, while it is watched."""
    model = dashboard.model
    assert isinstance(model, DashboardModel)
    model.newest()
    return model.view(dashboard.selection)


def test_a_query_is_shown_while_it_runs_and_when_it_fails(
    spark: SparkSession, fed: Source, tmp_path: Path, watched: list[QueryDashboard]
) -> None:
    """Spark's operators with the state tables of the store; then its error, short, and whole beside it."""

    def sink(frame: DataFrame, epoch: int) -> None:
        frame.count()
        if epoch == 2:
            raise ValueError("no room for <b>more</b>")

    query = start(counts(fed), tmp_path, sink)
    capture = ss.follow(query, tmp_path / "store", "counts", spark=spark)
    capture.wait(1, timeout=120)
    dashboard = QueryDashboard(ss.open_store(tmp_path / "store")["counts"], Beside(query, capture))
    watched.append(dashboard)
    view = until(lambda: (now := seen(dashboard)).charts.get("rates") and now, "rates of two batches")
    assert (view.state, view.epoch, view.troubles) == ("running", 1, [])
    assert view.operators is not None
    [state] = [box for box in view.operators.boxes if box.tables]
    assert (state.label, state.tables) == ("StateStoreSave", ("op0",))
    assert state.state.startswith("2 rows of state, 2 written")
    assert [box.label.split(":")[0] for box in (view.operators.boxes[0], view.operators.boxes[-1])] == [
        "Source",
        "Sink",
    ]
    assert "epoch 1." in view.operators.note
    assert ("capture", "running") in view.facts

    before = dashboard.model.newest()
    fed.add({"k": ["c"], "v": [1]})
    until(lambda: seen(dashboard).state == "failed", "the failure")
    [trouble] = seen(dashboard).troubles
    assert trouble.what == "The query failed"
    assert trouble.short == "ValueError: no room for <b>more</b>"
    assert "Traceback" in trouble.whole
    assert dashboard.model.newest() != before
    assert "&lt;b&gt;" in dashboard.model.html(dashboard.model.drawing(dashboard.selection))
    capture.stop()


def test_a_query_that_was_stopped_is_stopped_and_calm(
    spark: SparkSession, fed: Source, tmp_path: Path, watched: list[QueryDashboard]
) -> None:
    """No trouble, its last plan, and no news any more."""
    query = start(counts(fed), tmp_path, lambda frame, _: frame.write.format("noop").mode("append").save())
    capture = ss.follow(query, tmp_path / "store", "counts", spark=spark)
    capture.wait(1, timeout=120)
    query.stop()
    capture.stop()
    dashboard = QueryDashboard(ss.open_store(tmp_path / "store")["counts"], query)
    watched.append(dashboard)
    assert repr(dashboard).startswith("counts: stopped · epoch 1")
    view = until(lambda: (now := seen(dashboard)).operators and now, "the plan")
    assert (view.state, view.troubles) == ("stopped", [])
    assert dashboard.model.newest() == dashboard.model.newest()
    write(tmp_path / "store", [{"a": 1}])  # a history of another query
    with pytest.raises(InvalidArgumentError, match="is another query than 'q'"):
        QueryDashboard(ss.open_store(tmp_path / "store")["q"], query)


class _Gone:
    """The handle of a query whose JVM has ended: every call of it fails as py4j's do."""

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        from py4j.protocol import Py4JNetworkError

        raise Py4JNetworkError("Answer from Java side is empty")


def test_a_jvm_that_is_gone_is_told_once_and_not_asked_again() -> None:
    """The loss is a state of the dashboard, not an error of it."""
    probe = Probe(_Gone())  # type: ignore[arg-type]  # a handle whose JVM is gone
    found = probe.sample()
    assert (found.state, found.problem) == ("unreachable", "Spark does not answer: Answer from Java side is empty")
    assert probe.sample() is found


class _Busy:
    """The handle of a query whose JVM does not answer until it is let."""

    def __init__(self) -> None:
        self.answers = threading.Event()

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        self.answers.wait(30)
        raise ConnectionError("gone")


def test_a_jvm_that_is_busy_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who draws goes on without an answer; the thread ends with it."""
    monkeypatch.setattr("streamstate.widgets.dashboard.watcher._PATIENCE", 0.05)
    busy = _Busy()
    watcher = Watcher(busy, None, "busy")  # type: ignore[arg-type]  # as above
    watcher.start()
    [thread] = [one for one in threading.enumerate() if one.name == "streamstate-watch-busy"]
    waiting = watcher.sample()
    assert waiting is not None
    assert waiting.state == "waiting"
    watcher.stop()
    busy.answers.set()
    thread.join(10)
    assert not thread.is_alive()
