"""A failed query is restarted from its last epoch, after increasing waits, until supervision gives up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Source, letters
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import streamstate as ss
from streamstate.errors import InvalidArgumentError, QueryError, WaitTimeoutError
from streamstate.extension import unload
from streamstate.operations.supervision.restart_policy import Restarts
from streamstate.operations.supervision.supervise import supervise

THREAD = "streamstate-supervision"


def waits(restarts: Restarts, count: int, *, progressed: bool = False, step: float = 0.0) -> list[float | None]:
    """The waits after several failures, ``step`` seconds apart."""
    return [restarts.after_failure(progressed=progressed, now=step * failure) for failure in range(count)]


def test_waits_double_up_to_the_longest() -> None:
    """Each failure without a committed epoch doubles the wait."""
    restarts = Restarts(ss.BackOff(restarts=10, max_failures_without_progress=10, initial_wait=1, longest=20))
    assert waits(restarts, 7) == [1, 2, 4, 8, 16, 20, 20]


def test_an_epoch_resets_the_waits() -> None:
    """After a committed epoch, the next wait is the first of the series."""
    restarts = Restarts(ss.BackOff(restarts=10))
    assert waits(restarts, 2) == [1, 2]
    assert restarts.after_failure(progressed=True, now=0) == 1
    assert restarts.attempt == 1


def test_supervision_gives_up_without_progress() -> None:
    """The reason has the number of failures in a row without a committed epoch."""
    restarts = Restarts(ss.BackOff(max_failures_without_progress=2))
    assert waits(restarts, 3) == [1, 2, None]
    assert restarts.given_up == "it failed 3 times in a row without committing an epoch"


def test_supervision_gives_up_after_too_many_restarts() -> None:
    """Only restarts within the period count."""
    restarts = Restarts(ss.BackOff(restarts=2, within=100))
    assert waits(restarts, 3, progressed=True, step=10) == [1, 1, None]
    assert restarts.given_up == "it was restarted 2 times within 100 s"
    slow = Restarts(ss.BackOff(restarts=2, within=100))
    assert waits(slow, 5, progressed=True, step=60) == [1] * 5


@pytest.mark.parametrize(
    "limits", [{"restarts": 0}, {"max_failures_without_progress": 0}, {"initial_wait": 5, "longest": 1}, {"within": 0}]
)
def test_invalid_limits_are_refused(limits: dict[str, Any]) -> None:
    """The error is raised when the policy is created."""
    with pytest.raises(InvalidArgumentError, match=r"Invalid BackOff"):
        ss.BackOff(**limits)


@dataclass
class Clock:
    """A clock that tests set."""

    now: float = 0.0

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now


@dataclass
class UnreliableQuery:
    """A counting query that fails while a file exists."""

    source: Source
    folder: Path

    @property
    def file(self) -> Path:
        """The file that makes the query fail."""
        return self.folder / "trouble"

    def frame(self) -> DataFrame:
        """The query's streaming DataFrame."""
        file = str(self.file)

        @F.udf("string")
        def checked(k: str) -> str:
            if Path(file).exists():
                raise ValueError("no luck")
            return k

        frame: DataFrame = self.source.stream().select(checked("k").alias("k"), "v").groupBy("k").count()
        return frame

    def start(self) -> StreamingQuery:
        """Start or resume the query."""
        writer = self.frame().writeStream.format("noop").outputMode("update")
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def committed(self) -> int:
        """The number of committed epochs."""
        return sum(file.name.isdigit() for file in (self.folder / "checkpoint" / "commits").glob("*"))


@pytest.fixture
def unreliable(source: Source, tmp_path: Path) -> UnreliableQuery:
    """A query that can fail, with one epoch of input."""
    source.add(letters(0))
    return UnreliableQuery(source, tmp_path)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Check that supervision leaves no thread behind."""
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == THREAD] == []


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition."""
    never = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        never.wait(0.05)
    raise AssertionError("the condition was not met in time")


def test_a_query_continues_after_a_failure(unreliable: UnreliableQuery) -> None:
    """It resumes from its last epoch after the wait. Until then the handle shows the error and the next start."""
    clock = Clock()
    supervised = supervise(unreliable.start, clock=clock)
    try:
        until(lambda: unreliable.committed() == 1)
        assert supervised.state == "running"
        unreliable.file.touch()
        unreliable.source.add(letters(1))
        until(lambda: supervised.restarting)
        assert supervised.state == "restarting (attempt 1, in 1 s: ValueError: no luck)"
        assert "restarting (attempt 1" in repr(supervised)
        with pytest.raises(WaitTimeoutError, match="it is restarting"):
            supervised.wait(0)
        clock.now = 1
        until(lambda: supervised.next_start == "attempt 2, in 2 s")
        unreliable.file.unlink()
        clock.now = 3
        until(lambda: unreliable.committed() == 2)
        assert (supervised.state, supervised.restarts) == ("running", 2)
    finally:
        supervised.stop()
    assert supervised.state == "stopped"
    assert not supervised.query.isActive
    supervised.stop()
    supervised.wait()


def test_waiting_raises_if_supervision_gave_up(unreliable: UnreliableQuery) -> None:
    """The error has the reason and the last failure."""
    unreliable.file.touch()
    supervised = supervise(
        unreliable.start, back_off=ss.BackOff(initial_wait=0, longest=0, max_failures_without_progress=2)
    )
    with pytest.raises(QueryError, match=r"failed 3 times in a row .*Last failure: ValueError: no luck\nFix"):
        supervised.wait(120)
    assert supervised.state == "failed"
    assert "failed 3 times in a row" in repr(supervised)


def test_a_failed_start_counts_as_a_failure(unreliable: UnreliableQuery) -> None:
    """Errors of the start function count towards the limit."""
    unreliable.file.touch()
    starts: list[int] = []

    def start() -> StreamingQuery:
        starts.append(1)
        if len(starts) > 1:
            raise OSError("no disk")
        return unreliable.start()

    supervised = supervise(start, back_off=ss.BackOff(initial_wait=0, longest=0, max_failures_without_progress=2))
    with pytest.raises(QueryError, match="Last failure: no disk"):
        supervised.wait(120)
    assert len(starts) == 3


def test_stopping_ends_a_wait(unreliable: UnreliableQuery) -> None:
    """The query is not restarted."""
    unreliable.file.touch()
    supervised = supervise(unreliable.start, clock=Clock())
    until(lambda: supervised.restarting)
    supervised.stop()
    assert supervised.state == "stopped"


def test_a_query_that_is_stopped_elsewhere_has_not_failed(unreliable: UnreliableQuery) -> None:
    """Supervision ends, and the state is finished."""
    supervised = supervise(unreliable.start)
    supervised.query.stop()
    supervised.wait(60)
    assert supervised.state == "finished"


@pytest.mark.slow
def test_restart_in_a_notebook(shell: Shell, unreliable: UnreliableQuery, tmp_path: Path) -> None:
    """With --restart, a query and its capture continue after a failure. Until then the status shows the restart."""
    shell.names["frame"] = unreliable.frame()
    handle = shell.run("%%stream counted --restart=7 --stalled-after 20 --when-stalled hand-over\nframe")
    assert handle.launch.restart == ss.BackOff(restarts=7, stalled_after=20, when_stalled="hand over")
    assert handle.wait(epoch=0, timeout=300) == 0
    unreliable.file.touch()
    unreliable.source.add(letters(1))
    until(lambda: handle.state == "restarting")
    status = repr(shell.run("%stream status"))
    assert "↻ restarting (attempt" in status
    assert "no luck" in status
    unreliable.file.unlink()
    assert handle.wait(epoch=1, timeout=300) == 1
    until(lambda: handle.state == "running")
    shell.run("%stream stop counted")
    assert handle.state == "stopped"
    assert handle.capture.status.state == "stopped"


@pytest.mark.slow
def test_giving_up_in_a_notebook(shell: Shell, unreliable: UnreliableQuery) -> None:
    """The query has failed, and the message says why it is not restarted."""
    unreliable.file.touch()
    shell.names["frame"] = unreliable.frame()
    handle = shell.run("%%stream counted --restart 1\nframe")
    message = shell.fails("%stream wait counted --epoch 0", QueryError)
    assert "ValueError: no luck (not started again: it was restarted once within 600 s)" in message
    assert handle.state == "failed"


def test_a_query_that_ends_is_not_restarted(shell: Shell, unreliable: UnreliableQuery) -> None:
    """With the trigger available-now, the query finishes, and its capture stops."""
    shell.names["frame"] = unreliable.frame()
    handle = shell.run("%%stream counted --restart --trigger available-now\nframe")
    assert handle.wait(timeout=300) == 0
    assert handle.state == "finished"
    until(lambda: handle.capture.status.state == "stopped")


def test_unloading_ends_supervision(shell: Shell, unreliable: UnreliableQuery, spark: SparkSession) -> None:
    """No query is restarted afterwards."""
    unreliable.file.touch()
    shell.names["frame"] = unreliable.frame()
    shell.run("%%stream counted --restart\nframe")
    unload(shell.ipython)
    assert not spark.streams.active
