"""The cause of a stall, as far as Spark's status, its threads and the Python workers of this machine tell."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from streamstate.snapshots.spark.java_threads import stack_of
from streamstate.snapshots.spark.task_times import RunningStage, RunningTask, running_tasks

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

CauseKind: TypeAlias = Literal["task", "python worker", "source", "sink"]

NOT_KNOWN = "nothing is known of the cause"
_OFFSETS = "Getting offsets from "
# A task that runs so many times as long as a median one straggles; shorter ones are not compared.
_STRAGGLES, _SHORT = 5.0, 0.2
_IDLE_FOR, _IDLE_SHARE = 0.5, 0.05


class _Place(NamedTuple):
    """A cause, the calls that the query's thread is in then, and the evidence in words."""

    kind: CauseKind | None
    calls: tuple[str, ...]
    evidence: str


_PLACES = (
    _Place(
        "source",
        (
            "latestOffset(",
            ".getOffset(",
            ".getBatch(",
            "planInputPartitions(",
            "initialOffset(",
            ".constructNextBatch(",
        ),
        "the epoch is planned, in {}",
    ),
    _Place("sink", ("ForeachBatch",), "the function of foreachBatch runs, and no task of Spark does"),
    _Place(None, ("DAGScheduler.runJob(",), "none of its tasks runs, although it has a job: no core is free for it"),
    _Place(
        "sink",
        ("Sink.addBatch(", ".sinks.", "BatchWrite.commit(", "Writer.commit(", "Protocol.commitJob("),
        "the sink is in {}, and no task of Spark runs",
    ),
)


@dataclass(frozen=True)
class StallCause:
    """Why no epoch comes.

    Attributes:
        kind: ``task``: a task runs far longer than its siblings, or than all tasks did; ``python worker``: a task waits
            for a Python worker, and none uses the CPU; ``source``: the epoch is planned, or its source asked; ``sink``:
            no task runs, and a sink writes or commits; None: the metrics do not tell.
        evidence: what was seen, in words.
        straggler: whether one task runs far longer than its siblings.
        progress: counts that grow while the tasks get on; None if they are not known.
    """

    kind: CauseKind | None
    evidence: str
    straggler: bool = False
    progress: tuple[object, ...] | None = field(default=None, repr=False)


def cause_of_stall(query: StreamingQuery) -> StallCause:
    """Return why a query is busy with its present epoch. It takes up to a second.

    Spark Connect tells only of sources: the status of tasks and threads is in the server.

    Args:
        query: a query that runs.

    Returns:
        The cause; its kind is None if nothing can be told.
    """
    tasks = running_tasks(query)
    progress = None if tasks is None else tasks.progress
    if tasks is not None and tasks.stages:
        stage = max(tasks.stages, key=lambda stage: stage.running[0].seconds)
        return StallCause(*_of_tasks(query, stage), progress)
    message = str(query.status["message"])
    calls = stack_of(query, str(query.runId))
    return StallCause(*_of_thread(message, calls), progress=progress)


def _of_tasks(query: StreamingQuery, stage: RunningStage) -> tuple[CauseKind, str, bool]:
    longest, others = stage.running[0], [task.seconds for task in stage.running[1:]]
    siblings = stage.median_seconds if stage.ended else median(others) if others else None
    straggler = siblings is not None and longest.seconds >= _STRAGGLES * max(siblings, _SHORT)
    name = f"task {longest.index} of stage {stage.number}"
    if straggler:
        took = "took" if stage.ended else "run"
        evidence = f"{name} runs {_seconds(longest.seconds)}, the others {took} {_seconds(siblings or 0.0)}"
    elif stage.tasks == 1:
        evidence = f"the only task of stage {stage.number} runs {_seconds(longest.seconds)}"
    else:
        evidence = (
            f"stage {stage.number} has {len(stage.running)} of {stage.tasks} tasks left, the longest running for"
            f" {_seconds(longest.seconds)}"
        )
    if not _waits_for_python(query, longest):
        return "task", evidence, straggler
    if _python_is_idle():
        return "python worker", f"{evidence}; it waits for its Python worker, and none uses the CPU", straggler
    return "task", f"{evidence}; it waits for its Python worker, and one computes", straggler


def _waits_for_python(query: StreamingQuery, task: RunningTask) -> bool:
    """Check that a task of this JVM waits for Python; False on a cluster, whose threads are elsewhere."""
    calls = stack_of(query, f"(TID {task.task_id})")
    return any(".python." in call and "read" in call.lower() for call in calls)


def _python_is_idle() -> bool:
    """Look for half a second if the Python workers of this machine use the CPU; False if there are none."""
    import psutil

    def used() -> dict[int, float]:
        found = {}
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if any(part.startswith("pyspark.") for part in child.cmdline()[:4]):  # python -m pyspark.daemon
                    found[child.pid] = sum(child.cpu_times()[:2])
        return found

    before = used()
    time.sleep(_IDLE_FOR)
    after = used()
    return bool(after) and all(
        after[process] - seconds <= _IDLE_FOR * _IDLE_SHARE for process, seconds in before.items() if process in after
    )


def _of_thread(message: str, calls: list[str]) -> tuple[CauseKind | None, str]:
    """Return the cause from Spark's status message, and the calls that the query's own thread is in."""
    if "Waiting" in message:
        return None, f"it is idle: {message}"
    place, call = _place_of(calls)
    if message.startswith(_OFFSETS):
        source = message.removeprefix(_OFFSETS).partition("@")[0]
        name = source if "[" in source else source.rpartition(".")[2]
        return "source", f"{name} does not answer{f': {_call(call)}' if call else ''}"
    if place is not None:
        return place.kind, place.evidence.format(_call(call))
    within = f", and its thread is in {_call(calls[0])}" if calls else ""
    return None, f"{NOT_KNOWN}; Spark says: {message}{within}"


def _place_of(calls: list[str]) -> tuple[_Place | None, str]:
    """Return the first place that one of the calls is in, and the call; None if there is none."""
    for place in _PLACES:
        for call in calls:
            if any(name in call for name in place.calls):
                return place, call
    return None, ""


def _call(call: str) -> str:
    """Return a call as ``Class.method``."""
    return ".".join(call.partition("(")[0].split(".")[-2:])


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
