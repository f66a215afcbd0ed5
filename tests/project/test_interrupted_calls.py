"""An interrupt ends the current call into the JVM only. Classes of py4j are unchanged."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
from pyspark.sql import SparkSession

from streamstate.snapshots.capture.background import BackgroundThread


class TimeLimit(BaseException):
    """An error raised by a signal handler, like that of pytest's time limit."""


@contextmanager
def interrupts(error: type[BaseException]) -> Iterator[Callable[[], None]]:
    """Provide a function that raises an error in the main thread, through a signal, after 0.1 seconds."""

    def handler(*_: Any) -> NoReturn:
        raise error

    before = signal.signal(signal.SIGINT, handler)
    timers: list[threading.Timer] = []

    def later() -> None:
        timers.append(threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]))
        timers[-1].start()

    try:
        yield later
    finally:
        for timer in timers:
            timer.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.param(TimeLimit, marks=pytest.mark.exhaustive)])
def test_the_next_call_has_its_own_result(spark: SparkSession, error: type[BaseException]) -> None:
    """The result of an interrupted call is dropped, even while its traceback is kept, as in IPython."""
    jvm: Any = spark._jvm
    java = jvm.java.lang
    kept = []
    with interrupts(error) as later:
        for number in range(5):
            later()
            with pytest.raises(error) as raised:
                java.Thread.sleep(300)
            kept.append(raised)
            assert java.Math.abs(-number) == number
            threading.Event().wait(0.35)  # the JVM has returned the result of the interrupted call
            assert [java.Math.abs(value) for value in (-5, -6)] == [5, 6]


def test_calls_of_other_threads_continue(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """Threads keep their connections, and nothing is logged."""
    jvm: Any = spark._jvm
    java = jvm.java.lang
    gateway: Any = spark.sparkContext._gateway
    client = gateway._gateway_client
    started: queue.Queue[None] = queue.Queue()

    def connection() -> Any:
        java.Math.abs(-1)
        return client.get_thread_connection()

    def slow() -> int:
        started.put(None)
        java.Thread.sleep(600)
        return int(java.Math.abs(-8))

    with ThreadPoolExecutor(1) as idle, ThreadPoolExecutor(1) as busy, interrupts(KeyboardInterrupt) as later:
        before = idle.submit(connection).result(), busy.submit(connection).result()
        future = busy.submit(slow)
        started.get()
        later()
        with pytest.raises(KeyboardInterrupt):
            java.Thread.sleep(2_000)
        assert future.result() == 8
        after = idle.submit(connection).result(), busy.submit(connection).result()
    assert [old is new for old, new in zip(before, after, strict=True)] == [True, True]
    assert caplog.text == ""


def test_no_class_of_py4j_is_changed(spark: SparkSession) -> None:
    """Only the embedded session has its own client; other sessions have py4j's."""
    from py4j.clientserver import ClientServerConnection, JavaClient
    from py4j.java_gateway import GatewayClient

    client: Any = spark.sparkContext._gateway
    assert type(client._gateway_client) is not JavaClient
    assert isinstance(client._gateway_client, JavaClient)
    assert JavaClient.send_command is GatewayClient.send_command
    assert ClientServerConnection.send_command.__module__ == "py4j.clientserver"
    assert not hasattr(ClientServerConnection.send_command, "__wrapped__")


def test_a_thread_can_be_joined_after_an_interrupted_join() -> None:
    """The second join returns when the thread has ended."""
    release = threading.Event()
    thread = BackgroundThread(release.wait, "test")
    thread.start()
    # A thread that waits for a lock is interrupted only by signals sent to it.
    interrupt = threading.Timer(0.1, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    try:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            thread.join()
        thread.join(timeout=0.1)
        assert thread.is_alive()
    finally:
        release.set()
    thread.join()
    assert not thread.is_alive()
