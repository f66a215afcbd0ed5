"""The process that a drill runs: ``python -m streamstate.operations.drill.drilled_process TASK EVENTS``."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from streamstate.operations.drill.task import Task, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

_POLL_SECONDS = 0.05

Report: TypeAlias = Callable[..., None]


def main(task_file: str, events_file: str, *, run: Callable[[Task, Report], None] | None = None) -> int:
    """Run the task; returns the exit status."""
    say = partial(report, Path(events_file))
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        (run or _run)(Task(**json.loads(Path(task_file).read_text(encoding="utf-8"))), say)
    except Exception as error:  # noqa: BLE001 - the process that started this one raises it
        say("failed", kind=type(error).__name__, message=str(error))
        return 1
    return 0


def _exit_with_parent() -> None:
    """Exit when the parent process ends, which breaks the pipe."""
    sys.stdin.buffer.read()
    os._exit(1)


def _run(task: Task, say: Report) -> None:
    from streamstate.operations.drill.drilled_query import DrilledQuery
    from streamstate.snapshots.spark.session import session

    drilled = DrilledQuery(**(task.drilled or {"folder": "", "build_query": task.build_query}))
    build_query = drilled.user_function()
    say("began")
    spark = session(**task.settings)
    say("spark")
    writer = drilled.frame(build_query).writeStream.format("noop").outputMode(task.mode)
    if task.drilled is not None:
        writer = writer.foreachBatch(drilled.write)
    query = writer.option("checkpointLocation", task.checkpoint).trigger(availableNow=True).start()
    say("started")
    _follow(query, task, say)
    say("ended")
    if task.compare_with is not None:
        say("compared", **_compared(spark, task, task.compare_with))
    if task.compare_later is not None:
        while not Path(task.compare_later).with_name("compare").exists():
            time.sleep(_POLL_SECONDS)
        say("compared", **_compared(spark, replace(task, checkpoint=task.compare_later), task.checkpoint))


def _follow(query: StreamingQuery, task: Task, say: Report) -> None:
    """Wait until the query ends or has run the requested epochs; report each epoch that is seen."""
    newest = -1
    last = None if task.epochs is None else Path(task.checkpoint, "commits", str(task.epochs - 1))
    while query.isActive:
        time.sleep(_POLL_SECONDS)
        newest = _report_epoch(query, newest, say)
        if last is not None and last.exists():
            query.stop()
    _report_epoch(query, newest, say)
    query.awaitTermination()  # raises the query's error, if it failed


def _report_epoch(query: StreamingQuery, newest: int, say: Report) -> int:
    """Report the latest epoch if it is later than ``newest``; returns the later of the two."""
    progress = query.lastProgress
    if progress is None or "addBatch" not in progress["durationMs"] or progress["batchId"] <= newest:
        return newest
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    say("epoch", epoch=progress["batchId"], began=began, loading_ms=_loading_ms(progress["stateOperators"]))
    return int(progress["batchId"])


def _loading_ms(operators: list[Any]) -> int | None:
    """Return the seconds that all tasks took to load state; None if the state store provider does not report it."""
    times = [operator["customMetrics"].get("rocksdbLoadLatencyMs") for operator in operators]
    return sum(times) if times and all(time is not None for time in times) else None


def _compared(spark: SparkSession, task: Task, undisturbed: str) -> dict[str, Any]:
    """Compare the final states of the two runs; if they differ, find the epoch in which they diverge."""
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
    from streamstate.snapshots.spark.state_comparison import StateAt, TableDifference, state_differences

    @cache
    def differences_at(epoch: int) -> list[TableDifference]:
        return state_differences(spark, StateAt(undisturbed, epoch), StateAt(task.checkpoint, epoch))

    left, right = CheckpointFiles(undisturbed, spark), CheckpointFiles(task.checkpoint, spark)
    left_epochs, right_epochs = _epochs(left, task.epochs), _epochs(right, task.epochs)
    ends = StateAt(left.path, left_epochs[-1]), StateAt(right.path, right_epochs[-1])
    aligned = left_epochs[-1] == right_epochs[-1] and same_batches(left, right, left_epochs[-1])
    differences, first = state_differences(spark, *ends), None
    if differences and aligned:
        shared = sorted({*left_epochs} & {*right_epochs})
        # The last is known to differ.
        at = bisect_left(shared, True, hi=len(shared) - 1, key=lambda epoch: bool(differences_at(epoch)))  # noqa: FBT003
        first, differences = shared[at], differences_at(shared[at])
    return {
        "compared_at": right_epochs[-1],
        "aligned": aligned,
        "first_difference": first,
        "differences": [asdict(difference) for difference in differences],
    }


def same_batches(left: CheckpointFiles, right: CheckpointFiles, last: int) -> bool:
    """Check that all epochs that both checkpoints still record read the same input."""
    return all(a == b for a, b in zip(_batches(left, last), _batches(right, last), strict=True))


def _batches(checkpoint: CheckpointFiles, last: int) -> Iterator[tuple[object, object] | None]:
    """Yield the end offsets of each epoch, and the files behind the offsets of a file source."""
    sources = None
    for epoch in range(last + 1):
        planned = checkpoint.planned(epoch)
        if planned is not None:
            sources = checkpoint.sources(planned, sources)
        yield None if planned is None else (planned.sources, sources)


def _epochs(checkpoint: CheckpointFiles, count: int | None) -> list[int]:
    return [epoch for epoch in checkpoint.committed() if count is None or epoch < count]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
