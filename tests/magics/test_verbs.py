from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from conftest import Source, counts, letters
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    NotACheckpointError,
    QueryError,
    UnknownQueryError,
    WaitTimeoutError,
)
from streamstate.launch.running import Running
from streamstate.operations.supervision.restart_policy import in_one_line
from streamstate.snapshots.spark.interrupted_calls import own_interrupt


@pytest.fixture
def running(shell: Shell, source: Source) -> Running:
    """A running query ``counts`` with two epochs of input."""
    for epoch in range(2):
        source.add(letters(epoch))
    shell.names["counted"] = counts(source)
    handle = shell.run("%%stream counts --trigger 1s\ncounted")
    assert isinstance(handle, Running)
    return handle


def test_status_is_a_table(shell: Shell, running: Running) -> None:
    """The table has the query's name, state, epoch, lag, state rows and last error, as text and as HTML."""
    running.wait(epoch=1, timeout=300)
    table = shell.run("%stream status counts")
    row = table.to_pandas().iloc[0]
    assert row[["name", "state", "epoch", "behind"]].tolist() == ["counts", "running", 1, 0]
    assert row["rows"] == 9
    assert row["last error"] is None
    assert repr(table).splitlines()[0].split("  ")[0] == "name"
    assert "<th" in table._repr_html_()
    assert repr(shell.run("%stream")).splitlines()[0] == repr(table).splitlines()[0]


def test_wait_prints_the_captured_epoch(shell: Shell, running: Running, source: Source) -> None:
    """It waits for the given epoch, or by default for all committed epochs."""
    source.add(letters(2))
    shell.run("%stream wait counts --epoch 2 --timeout 300")
    assert "captured up to epoch 2" in shell.printed
    shell.run("%stream wait")
    assert "counts is running" in shell.printed


def test_wait_times_out(shell: Shell, running: Running) -> None:
    """The query keeps running."""
    message = shell.fails("%stream wait counts --epoch 1000 --timeout 0.3", WaitTimeoutError)
    assert "did not reach epoch 1000" in message
    with pytest.raises(TimeoutError, match="still going"):
        running.wait(epoch=1000, timeout=0.1)
    assert running.state == "running"


def test_an_interrupt_ends_only_the_wait(shell: Shell, running: Running, source: Source) -> None:
    """The query keeps running, although PySpark's own handler would cancel its jobs."""
    running.wait(epoch=1, timeout=300)
    timer = threading.Timer(1.0, signal.raise_signal, [signal.SIGINT])
    timer.start()
    shell.fails("%stream wait counts --epoch 1000", KeyboardInterrupt)
    timer.join()
    assert "time.sleep" not in shell.printed
    source.add(letters(2))
    assert running.wait(epoch=2, timeout=300) >= 2
    assert running.state == "running"


def test_the_interrupt_handler_is_restored() -> None:
    """After the block, the previous handler, such as PySpark's, is installed again."""
    before = signal.getsignal(signal.SIGINT)
    with own_interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
        with pytest.raises(KeyboardInterrupt), own_interrupt():
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_stop_and_restart(shell: Shell, running: Running, source: Source) -> None:
    """Stopping captures all committed epochs, and restarting resumes the query."""
    running.wait(epoch=1, timeout=300)
    table = shell.run("%stream stop counts")
    assert table.to_pandas()[["state", "behind"]].iloc[0].tolist() == ["stopped", 0]
    source.add(letters(2))
    restarted = shell.run("%stream restart counts")
    assert "resumes after epoch 1" in shell.printed
    at_restart = ss.open_store(restarted.store)["counts"].at(1).table().count()
    assert (restarted.status().rows or 0) >= at_restart > 0  # the next epoch may have begun
    assert restarted.wait(epoch=2, timeout=300) == 2
    shell.run("%stream stop --all")
    assert running.state == "stopped"
    assert restarted.state == "stopped"


def test_a_query_started_elsewhere_is_attached(
    shell: Shell, spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """Its checkpoint is captured under a new name. Stopping ends the capture, but not the query."""
    source.add(letters(0))
    writer = counts(source).writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path / "elsewhere")).start()
    try:
        query.processAllAvailable()
        handle = shell.run(f"%stream attach {tmp_path}/elsewhere --name theirs --store mine")
        assert "--query VAR" in shell.printed  # its plan is not known
        assert handle.wait(timeout=300) == 0
        assert handle.status().rows == ss.open_store(tmp_path / "mine")["theirs"].live().table().count() > 0
        assert shell.run("%stream list").to_pandas()["state"].tolist()[0] == "followed"
        assert ss.open_store(tmp_path / "mine").queries() == ["theirs"]
        assert "already" in shell.fails(f"%stream attach {tmp_path}/elsewhere", QueryError)
        shell.run("%stream stop theirs")
        assert query.isActive
        source.add(letters(1))
        query.processAllAvailable()
        assert shell.run("%stream restart theirs").wait(epoch=1, timeout=300) == 1
    finally:
        query.stop()


def test_a_failed_query_reports_its_error(shell: Shell, source: Source) -> None:
    """The status has the error in one line, and waiting for the query raises it."""
    source.add(letters(0))
    shell.names["broken"] = source.stream().groupBy("k").agg({"v": "max"}).selectExpr("raise_error('no such carrier')")
    handle = shell.run("%%stream broken\nbroken")
    assert "broken failed: " in shell.fails("%stream wait broken --timeout 300", QueryError)
    assert handle.state == "failed"
    error = shell.run("%stream status").to_pandas()["last error"].iloc[0]
    assert "no such carrier" in error
    assert len(error.splitlines()) == 1


PYTHON_FAILED = """\
[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [PYTHON_EXCEPTION] An exception was thrown \
from the Python worker: Traceback (most recent call last):
  File "x.py", line 1, in f
    raise ValueError("late by an hour")
ValueError: late by an hour
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = a]"""
TASK_LOST = """\
Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 \
(TID 4) (localhost executor driver): java.io.IOException: disk full
\tat x.y
=== Streaming Query ==="""
DIVIDED = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n=== Streaming Query ==="


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (PYTHON_FAILED, "ValueError: late by an hour"),
        (TASK_LOST, "java.io.IOException: disk full"),
        (DIVIDED, "[DIVIDE_BY_ZERO] Division by zero."),
        ("", "no reason given"),
    ],
)
def test_a_spark_error_is_shortened_to_one_line(message: str, line: str) -> None:
    """Stack traces and plans are removed."""
    assert in_one_line(message) == line


@pytest.mark.parametrize(
    ("line", "error", "expected"),
    [
        ("%stream halt", InvalidArgumentError, "list, status, wait, stop, restart, attach"),
        ("%stream stat", InvalidArgumentError, "Did you mean status?"),
        ("%stream wait --timeout soon", InvalidArgumentError, "number of seconds"),
        ("%stream stop nope", UnknownQueryError, "nope"),
        ("%stream status nope", UnknownQueryError, "nope"),
        ("%stream stop", QueryError, "%%stream NAME"),
        ("%stream wait --epoch x", InvalidArgumentError, "expected its number"),
        ("%stream attach nowhere", NotACheckpointError, "nowhere"),
        ("%stream attach", InvalidArgumentError, "CHECKPOINT"),
    ],
)
def test_an_unknown_verb_or_name_is_refused(shell: Shell, line: str, error: type[Exception], expected: str) -> None:
    """The error names the choices, and nothing is captured."""
    assert expected in shell.fails(line, error)
    assert not shell.notebook.running


def test_an_empty_table_says_how_to_start_a_query(shell: Shell) -> None:
    """A list without queries is not an error."""
    assert "%%stream NAME" in repr(shell.run("%stream"))
    assert "%%stream NAME" in shell.run("%stream list")._repr_html_()
