"""The query dashboard of a query in this process: its plan, its end, its failure, and a JVM that has exited."""

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
from streamstate.errors import InvalidArgumentError
from streamstate.widgets import QueryDashboard
from streamstate.widgets.dashboard.drawing import DashboardDrawing
from streamstate.widgets.dashboard.model import DashboardModel
from streamstate.widgets.dashboard.watcher import QueryProbe, QueryWatcher


def until(condition: Callable[[], Any], what: str, timeout: float = 300) -> Any:
    """Wait until ``condition`` returns a true value, and return that value."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {timeout} s for {what}"
        threading.Event().wait(0.05)
    return value


def start(frame: DataFrame, folder: Path, sink: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Start a query that runs until it is stopped."""
    writer = frame.writeStream.foreachBatch(sink).outputMode("update")
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


@pytest.fixture
def fed(spark: SparkSession, tmp_path: Path) -> Source:
    """A source with two epochs of input."""
    source = Source(spark, tmp_path / "in", "k string, v long")
    for _ in range(2):
        source.add({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    return source


class QueryHandle:
    """A handle of a query and its capture, like the one that ``%%stream`` returns."""

    def __init__(self, query: StreamingQuery, capture: object) -> None:
        self.query, self.capture = query, capture


@pytest.fixture
def watched() -> Iterator[list[QueryDashboard]]:
    """Dashboards to close after the test; checks that they leave no thread behind."""
    dashboards: list[QueryDashboard] = []
    yield dashboards
    for dashboard in dashboards:
        dashboard.model.release()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("streamstate-watch-")]


def seen(dashboard: QueryDashboard) -> DashboardDrawing:
    """The current drawing, while the dashboard watches the query."""
    model = dashboard.model
    assert isinstance(model, DashboardModel)
    model.newest()
    return model.view(dashboard.selection)


def test_a_query_is_shown_while_it_runs_and_when_it_fails(
    spark: SparkSession, fed: Source, tmp_path: Path, watched: list[QueryDashboard]
) -> None:
    """It shows Spark's operators with their state tables; after a failure, a short error and the full text."""

    def sink(frame: DataFrame, epoch: int) -> None:
        frame.count()
        if epoch == 2:
            raise ValueError("no room for <b>more</b>")

    query = start(counts(fed), tmp_path, sink)
    capture = ss.Checkpoint(query).follow(tmp_path / "store", "counts", spark=spark)
    capture.wait(1, timeout=300)
    dashboard = QueryDashboard(ss.open_store(tmp_path / "store")["counts"], QueryHandle(query, capture))
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


def test_a_stopped_query_shows_no_error_and_goes_on_when_it_is_started_again(
    spark: SparkSession, fed: Source, tmp_path: Path, watched: list[QueryDashboard]
) -> None:
    """The last plan stays, and nothing triggers a drawing until then; one plot has the rates of all runs."""

    def sink(frame: DataFrame, _: int) -> None:
        frame.write.format("noop").mode("append").save()

    query = start(counts(fed), tmp_path, sink)
    capture = ss.Checkpoint(query).follow(tmp_path / "store", "counts", spark=spark)
    capture.wait(1, timeout=300)
    query.stop()
    capture.stop()
    dashboard = QueryDashboard(ss.open_store(tmp_path / "store")["counts"], query)
    watched.append(dashboard)
    assert repr(dashboard).startswith("counts: stopped · epoch 1")
    view = until(lambda: (now := seen(dashboard)).operators and now, "the plan")
    assert (view.state, view.troubles) == ("stopped", [])
    assert dashboard.model.newest() == dashboard.model.newest()
    again = start(counts(fed), tmp_path, sink)
    until(lambda: seen(dashboard).state == "running", "the second run")
    fed.add({"k": ["c"], "v": [1]})
    rates = until(lambda: (now := seen(dashboard).charts["rates"].rows) and now[-1]["epoch"] == 2 and now, "its rates")
    assert {row["epoch"] for row in rates} == {0, 1, 2}
    again.stop()
    write(tmp_path / "store", [{"a": 1}])  # a history of another query
    with pytest.raises(InvalidArgumentError, match="is not the query of 'q'"):
        QueryDashboard(ss.open_store(tmp_path / "store")["q"], query)


class _ExitedJvmQuery:
    """A query handle whose JVM has exited: every call raises the error that py4j would."""

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        from py4j.protocol import Py4JNetworkError

        raise Py4JNetworkError("Answer from Java side is empty")


def test_an_exited_jvm_is_reported_and_not_called_again() -> None:
    """The loss is a state of the dashboard, not an error of it."""
    probe = QueryProbe(_ExitedJvmQuery())  # type: ignore[arg-type]  # a handle whose JVM has exited
    sample = probe.sample()
    assert (sample.state, sample.problem) == ("unreachable", "Spark does not answer: Answer from Java side is empty")
    assert probe.sample() is sample


class _BusyQuery:
    """A query handle whose JVM does not answer until the test allows it."""

    def __init__(self) -> None:
        self.answers = threading.Event()

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        self.answers.wait(30)
        raise ConnectionError("gone")


def test_a_busy_jvm_does_not_block_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing continues without an answer; the thread ends once the call returns."""
    monkeypatch.setattr("streamstate.widgets.dashboard.watcher._PATIENCE", 0.05)
    busy = _BusyQuery()
    watcher = QueryWatcher(lambda: (busy, None), "busy")  # type: ignore[arg-type, return-value]  # as above
    watcher.start()
    [thread] = [thread for thread in threading.enumerate() if thread.name == "streamstate-watch-busy"]
    waiting = watcher.sample()
    assert waiting is not None
    assert waiting.state == "waiting"
    watcher.stop()
    busy.answers.set()
    thread.join(10)
    assert not thread.is_alive()
