"""A user's program beside Spark Connect in which much goes wrong; prints what the user saw, as JSON.

Arguments: the folder of a query, and an empty folder.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import psutil

import streamstate as ss
from connect.user_calls import building
from connect.user_program import session


def failure(call: Callable[[], object]) -> str:
    """The error of a call."""
    try:
        return f"no error: {call()!r}"
    except BaseException as error:  # noqa: BLE001 (an interrupt is an outcome too)
        return f"{type(error).__name__}: {error}"


def children() -> list[psutil.Process]:
    """The processes that this one has started, and those of these, Spark's Python workers left aside."""
    found = psutil.Process().children(recursive=True)
    ended = psutil.STATUS_ZOMBIE
    return [child for child in found if child.status() != ended and "pyspark.daemon" not in child.cmdline()]


def main(folder: str, made: str) -> None:
    """Make the calls."""
    spark = session("nowhere")
    build = building(spark, Path(folder, "input"))
    checkpoint = ss.Checkpoint(Path(folder, "checkpoint"))
    seen: dict[str, Any] = {}

    messages: list[str] = []
    fork = checkpoint.fork(Path(made, "fork"), at=1)
    fork.step(build, progress=lambda message, _share: messages.append(message))
    seen["progress"] = messages
    worker = psutil.Process().children()

    def talking() -> Any:
        print("from build_query")  # noqa: T201 (the user's)
        warnings.warn("mind the gap", UserWarning, stacklevel=1)
        return build()

    with redirect_stdout(StringIO()) as printed, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        checkpoint.check(talking)
    seen["printed"], seen["warned"] = printed.getvalue(), [str(each.message) for each in warned]

    class OwnError(Exception):
        pass

    def failing() -> Any:
        raise OwnError("not today")

    lock, frame = threading.Lock(), spark.readStream.format("rate").load()
    seen["own error"] = failure(lambda: checkpoint.check(failing))
    try:
        checkpoint.check(failing)
    except OwnError:
        seen["its class"] = "the user's"
    except Exception as error:  # noqa: BLE001 (reported)
        seen["its class"] = f"{type(error)} from {error.__cause__!r}"
    seen["a frame outside"] = failure(lambda: checkpoint.check(lambda: frame.groupBy().count()))
    seen["a frame"] = failure(lambda: checkpoint.check(frame))
    seen["a lock"] = failure(lambda: checkpoint.check(lambda: (lock, build())[1]))
    seen["no checkpoint"] = failure(lambda: ss.Checkpoint(made).check(build))

    before = children()
    for _ in range(50):
        failure(lambda: ss.Checkpoint(made).check(build))
    for _ in range(50):
        failure(lambda: checkpoint.check(failing))
    seen["started by 100 failed calls"] = len(set(children()) - set(before))

    seen["interrupt"] = interrupted(lambda: checkpoint.fork(Path(made, "long"), at=0).step(waiting(build, made)), made)
    seen["after it"] = ss.Checkpoint(Path(made, "long")).step(build).epoch

    report = fork.step(build)
    # In the call's own progress callback: a worker that died before the call is replaced, and nothing fails.
    seen["killed"] = failure(lambda: fork.step(build, progress=lambda _message, _share: worker[0].kill()))
    seen["an object of the killed one"] = failure(lambda: report.epoch)
    seen["after the kill"] = fork.step(build).epoch
    seen["a source of the server"] = failure(lambda: checkpoint.check(lambda: _kafka(spark)))
    seen["a table of the server"] = failure(lambda: checkpoint.check(lambda: spark.readStream.table("only_there")))
    seen["left"] = [child.pid for child in children()]
    print(json.dumps(seen), flush=True)  # noqa: T201 (read by the parent process)
    atexit.unregister(spark.client._on_exit)  # PySpark waits minutes for the server that there is not


def _kafka(spark: Any) -> Any:
    return spark.readStream.format("kafka").option("subscribe", "flights").load()


def waiting(build: Callable[[], Any], made: str) -> Callable[[], Any]:
    """A build_query that says that it runs, and then takes long."""

    def build_query() -> Any:
        Path(made, "runs").touch()
        time.sleep(120)
        return build()

    return build_query


def interrupted(call: Callable[[], object], made: str) -> Any:
    """The error of a call that is interrupted while it runs, and the seconds until it ends."""
    at: list[float] = []

    def interrupt() -> None:
        while not Path(made, "runs").exists():
            time.sleep(0.05)
        at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    error = failure(call)
    thread.join()
    return [error, time.monotonic() - at[0]]


if __name__ == "__main__":
    main(*sys.argv[1:])
