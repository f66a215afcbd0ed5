"""What a drill runs in a process of its own: ``python -m streamstate.recovery.drill.child TASK EVENTS``."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from streamstate.recovery.drill.sending import BuildQuery
from streamstate.recovery.drill.task import Task, tell
from streamstate.snapshots.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_LOOK_EVERY_SECONDS = 0.05

Tell: TypeAlias = Callable[..., None]


def main(task_file: str, events_file: str) -> int:
    """Do the task; returns the exit status."""
    say = partial(tell, Path(events_file))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _run(Task.read(Path(task_file)), say)
    except Exception as error:  # noqa: BLE001 - whatever it is, the process that started this one raises it
        say("failed", kind=type(error).__name__, message=str(error))
        return 1
    return 0


def _end_with_parent() -> None:
    """The pipe breaks when the process that holds its other end is gone, and then nobody waits for this one."""
    sys.stdin.buffer.read()
    os._exit(1)


def _run(task: Task, say: Tell) -> None:
    from pyspark import cloudpickle

    from streamstate.spark_session import session

    build_query = cloudpickle.loads(Path(task.build_query).read_bytes())
    say("began")
    spark = session(**task.settings)
    say("spark")
    writer = _built(build_query).writeStream.format("noop").outputMode(task.mode)
    query = writer.option("checkpointLocation", task.checkpoint).trigger(availableNow=True).start()
    say("started")
    _follow(query, task, say)
    say("ended")
    if task.compare_with is not None:
        say("compared", **_compared(spark, task, task.compare_with))


def _built(build_query: BuildQuery) -> DataFrame:
    from pyspark.sql import DataFrame

    frame: object = build_query()
    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        raise InvalidArgumentError(
            f"build_query returned a {type(frame).__name__} that is no streaming DataFrame.\n"
            "Return what readStream gives after all transformations, without starting it."
        )
    return frame


def _follow(query: StreamingQuery, task: Task, say: Tell) -> None:
    """Wait until the query ends, or has run as many epochs as it is to run; tell of each epoch that is seen."""
    told = -1
    last = None if task.epochs is None else Path(task.checkpoint, "commits", str(task.epochs - 1))
    while query.isActive:
        time.sleep(_LOOK_EVERY_SECONDS)
        told = _tell_epoch(query, told, say)
        if last is not None and last.exists():
            query.stop()
    _tell_epoch(query, told, say)
    query.awaitTermination()  # raises what it failed of, if it did


def _tell_epoch(query: StreamingQuery, told: int, say: Tell) -> int:
    """Tell of the newest epoch where that was not yet; returns its number."""
    progress = query.lastProgress
    if progress is None or "addBatch" not in progress["durationMs"] or progress["batchId"] <= told:
        return told
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    say("epoch", epoch=progress["batchId"], began=began, loading_ms=_loading(progress["stateOperators"]))
    return int(progress["batchId"])


def _loading(operators: list[Any]) -> int | None:
    """How long tasks took to load state, all of them together; None where the provider does not say."""
    known = [one["customMetrics"].get("rocksdbLoadLatencyMs") for one in operators]
    return sum(known) if known and all(one is not None for one in known) else None


def _compared(spark: SparkSession, task: Task, undisturbed: str) -> dict[str, Any]:
    from streamstate.recovery.drill.comparing import compare

    return asdict(compare(spark, undisturbed, task.checkpoint, task.epochs))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
