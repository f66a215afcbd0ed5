"""A query that fails is started again from its last epoch, less and less eagerly, until there is no hope."""

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
from streamstate.extension import unload
from streamstate.recovery.back_off import Restarts
from streamstate.snapshots.errors import InvalidArgumentError, QueryError, WaitTimeoutError

THREAD = "streamstate-supervision"


def waits(restarts: Restarts, count: int, *, progressed: bool = False, step: float = 0.0) -> list[float | None]:
    """What follows from some failures, ``step`` seconds after each other."""
    return [restarts.after_failure(progressed=progressed, now=step * at) for at in range(count)]


def test_waits_double_up_to_the_longest() -> None:
    """Ten restarts, none of which commits anything."""
    restarts = Restarts(ss.BackOff(restarts=10, in_vain=10, first=1, longest=20))
    assert waits(restarts, 7) == [1, 2, 4, 8, 16, 20, 20]


def test_an_epoch_begins_the_waits_anew() -> None:
    """A query that got on is as good as new."""
    restarts = Restarts(ss.BackOff(restarts=10))
    assert waits(restarts, 2) == [1, 2]
    assert restarts.after_failure(progressed=True, now=0) == 1
    assert restarts.attempt == 1


def test_what_fails_again_and_again_is_given_up() -> None:
    """Without an epoch in between the same will happen again; it is said how often that was."""
    restarts = Restarts(ss.BackOff(in_vain=2))
    assert waits(restarts, 3) == [1, 2, None]
    assert restarts.given_up == "it failed 3 times in a row without committing an epoch"


def test_too_many_restarts_in_a_while_are_given_up() -> None:
    """Only those within the window count."""
    restarts = Restarts(ss.BackOff(restarts=2, within=100))
    assert waits(restarts, 3, progressed=True, step=10) == [1, 1, None]
    assert restarts.given_up == "it was started again 2 times in 100 s"
    slow = Restarts(ss.BackOff(restarts=2, within=100))
    assert waits(slow, 5, progressed=True, step=60) == [1] * 5


@pytest.mark.parametrize("wrong", [{"restarts": 0}, {"in_vain": 0}, {"first": 5, "longest": 1}, {"within": 0}])
def test_numbers_that_cannot_be_meant(wrong: dict[str, Any]) -> None:
    """They are refused when they are given."""
    with pytest.raises(InvalidArgumentError, match="cannot be meant"):
        ss.BackOff(**wrong)


@dataclass
class Clock:
    """Stands still until it is set."""

    now: float = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


@dataclass
class Trouble:
    """A counting query that fails while a file is there."""

    source: Source
    folder: Path

    @property
    def file(self) -> Path:
        """What makes it fail."""
        return self.folder / "trouble"

    def frame(self) -> DataFrame:
        """The query."""
        file = str(self.file)

        @F.udf("string")
        def checked(k: str) -> str:
            if Path(file).exists():
                raise ValueError("no luck")
            return k

        frame: DataFrame = self.source.stream().select(checked("k").alias("k"), "v").groupBy("k").count()
        return frame

    def start(self) -> StreamingQuery:
        """Start it from its checkpoint."""
        writer = self.frame().writeStream.format("noop").outputMode("update")
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def committed(self) -> int:
        """How many epochs it has committed."""
        return sum(one.name.isdigit() for one in (self.folder / "checkpoint" / "commits").glob("*"))


@pytest.fixture
def trouble(source: Source, tmp_path: Path) -> Trouble:
    """With one epoch of input."""
    source.add(letters(0))
    return Trouble(source, tmp_path)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Whatever a test does, supervision leaves no thread."""
    yield
    assert [one.name for one in threading.enumerate() if one.name == THREAD] == []


def until(there: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition."""
    passed = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if there():
            return
        passed.wait(0.05)
    raise AssertionError("it did not come")


def test_a_query_goes_on_after_a_failure(trouble: Trouble) -> None:
    """From its last epoch, once the wait is over; meanwhile the handle says what happened and what comes."""
    clock = Clock()
    supervised = ss.supervise(trouble.start, clock=clock)
    try:
        until(lambda: trouble.committed() == 1)
        assert supervised.state == "running"
        trouble.file.touch()
        trouble.source.add(letters(1))
        until(lambda: supervised.restarting)
        assert supervised.state == "restarting (attempt 1, in 1 s: ValueError: no luck)"
        assert "restarting (attempt 1" in repr(supervised)
        with pytest.raises(WaitTimeoutError, match="it is restarting"):
            supervised.wait(0)
        clock.now = 1
        until(lambda: supervised.next_start == "attempt 2, in 2 s")
        trouble.file.unlink()
        clock.now = 3
        until(lambda: trouble.committed() == 2)
        assert (supervised.state, supervised.restarts) == ("running", 2)
    finally:
        supervised.stop()
    assert supervised.state == "stopped"
    assert not supervised.query.isActive
    supervised.stop()
    supervised.wait()


def test_what_would_fail_again_is_left_alone(trouble: Trouble) -> None:
    """After so many failures without an epoch it says so, and waiting for it raises."""
    trouble.file.touch()
    supervised = ss.supervise(trouble.start, back_off=ss.BackOff(first=0, longest=0, in_vain=2))
    with pytest.raises(QueryError, match=r"failed 3 times in a row .*Last failure: ValueError: no luck\nMend"):
        supervised.wait(120)
    assert supervised.state == "failed"
    assert "failed 3 times in a row" in repr(supervised)


def test_a_start_that_fails_counts(trouble: Trouble) -> None:
    """As any failure does."""
    trouble.file.touch()
    starts: list[int] = []

    def start() -> StreamingQuery:
        starts.append(1)
        if len(starts) > 1:
            raise OSError("no disk")
        return trouble.start()

    supervised = ss.supervise(start, back_off=ss.BackOff(first=0, longest=0, in_vain=2))
    with pytest.raises(QueryError, match="Last failure: no disk"):
        supervised.wait(120)
    assert len(starts) == 3


def test_stopping_ends_a_wait(trouble: Trouble) -> None:
    """Nothing is started any more."""
    trouble.file.touch()
    supervised = ss.supervise(trouble.start, clock=Clock())
    until(lambda: supervised.restarting)
    supervised.stop()
    assert supervised.state == "stopped"


def test_a_query_that_another_stops_has_not_failed(trouble: Trouble) -> None:
    """Supervision ends with it."""
    supervised = ss.supervise(trouble.start)
    supervised.query.stop()
    supervised.wait(60)
    assert supervised.state == "finished"


def test_restart_in_a_notebook(shell: Shell, trouble: Trouble, tmp_path: Path) -> None:
    """With --restart a query goes on after a failure, its status says so meanwhile, and its capture goes on too."""
    shell.names["frame"] = trouble.frame()
    handle = shell.run("%%stream counted --restart=7\nframe")
    assert handle.launch.restart == ss.BackOff(restarts=7)
    assert handle.wait(epoch=0, timeout=120) == 0
    trouble.file.touch()
    trouble.source.add(letters(1))
    until(lambda: handle.state == "restarting")
    status = repr(shell.run("%stream status"))
    assert "↻ restarting (attempt" in status
    assert "no luck" in status
    trouble.file.unlink()
    assert handle.wait(epoch=1, timeout=120) == 1
    until(lambda: handle.state == "running")
    shell.run("%stream stop counted")
    assert handle.state == "stopped"
    assert handle.capture.status.state == "stopped"


def test_a_notebook_gives_up_too(shell: Shell, trouble: Trouble) -> None:
    """Then the query has failed, and why it is not started again is said."""
    trouble.file.touch()
    shell.names["frame"] = trouble.frame()
    handle = shell.run("%%stream counted --restart 1\nframe")
    message = shell.fails("%stream wait counted --epoch 0", QueryError)
    assert "ValueError: no luck (not started again: it was started again once in 600 s)" in message
    assert handle.state == "failed"


def test_an_end_is_an_end(shell: Shell, trouble: Trouble) -> None:
    """A query that processes what there is finishes, and its capture with it."""
    shell.names["frame"] = trouble.frame()
    handle = shell.run("%%stream counted --restart --trigger available-now\nframe")
    assert handle.wait(timeout=120) == 0
    assert handle.state == "finished"
    until(lambda: handle.capture.status.state == "stopped")


def test_unloading_ends_supervision(shell: Shell, trouble: Trouble, spark: SparkSession) -> None:
    """Nothing is left that could start a query again."""
    trouble.file.touch()
    shell.names["frame"] = trouble.frame()
    shell.run("%%stream counted --restart\nframe")
    unload(shell.ipython)
    assert not spark.streams.active
