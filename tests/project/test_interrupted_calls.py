"""An interrupt ends the call into the JVM that it strikes, and nothing else."""

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


class Struck(BaseException):
    """What is raised in the midst of a call, as pytest's time limit is."""


@contextmanager
def struck_by(error: type[BaseException]) -> Iterator[Callable[[], None]]:
    """A function that has a signal strike the main thread a little later."""

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


@pytest.mark.parametrize("error", [KeyboardInterrupt, Struck])
def test_the_next_call_is_told_its_own_answer(spark: SparkSession, error: type[BaseException]) -> None:
    """The answer to the one that was cut short is nobody's, even where its traceback is kept, as IPython does."""
    jvm: Any = spark._jvm
    java = jvm.java.lang
    kept = []
    with struck_by(error) as later:
        for number in range(5):
            later()
            with pytest.raises(error) as raised:
                java.Thread.sleep(300)
            kept.append(raised)
            assert java.Math.abs(-number) == number
            threading.Event().wait(0.35)  # the JVM has answered the call that nobody waits for
            assert [java.Math.abs(each) for each in (-5, -6)] == [5, 6]


def test_calls_of_other_threads_go_on(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """Their connections are the ones they had, and nothing is logged."""
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

    with ThreadPoolExecutor(1) as idle, ThreadPoolExecutor(1) as busy, struck_by(KeyboardInterrupt) as later:
        before = idle.submit(connection).result(), busy.submit(connection).result()
        answer = busy.submit(slow)
        started.get()
        later()
        with pytest.raises(KeyboardInterrupt):
            java.Thread.sleep(2_000)
        assert answer.result() == 8
        after = idle.submit(connection).result(), busy.submit(connection).result()
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, True]
    assert caplog.text == ""
