"""The tasks of an epoch, from the status that Spark keeps of its newest jobs for its web page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from streamstate.errors import SparkVersionError
from streamstate.snapshots.spark.connect import is_of_connect
from streamstate.snapshots.spark.private_classes import java_class, spark_class
from streamstate.snapshots.store.epoch_load import TaskLoad

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_T = TypeVar("_T")
_BATCH = re.compile(r"^batch = (\d+)\)?$", re.MULTILINE)
# Jobs that are looked at: an epoch has few, and the newest epochs are asked for.
_JOBS = 24
_STATEFUL = re.compile(r"StateStore|StreamingDeduplicate|SymmetricHashJoin|FlatMapGroupsWithState|TransformWithState")
_RUNNING_TASKS = 64
_GRAPH = "org.apache.spark.ui.scope.RDDOperationGraph"
_SORTING = "org.apache.spark.status.api.v1.TaskSorting"
_TASK_STATUS = "org.apache.spark.status.api.v1.TaskStatus"


@dataclass(frozen=True)
class RunningTask:
    """A task that runs: its place in its stage, Spark's id, the seconds since its start, and the rows it has read."""

    index: int
    task_id: int
    seconds: float
    rows: int


@dataclass(frozen=True)
class RunningStage:
    """A stage of a query with tasks that run, the longest first; ``median_seconds`` is that of those that ended."""

    number: int
    tasks: int
    ended: int
    median_seconds: float | None
    running: tuple[RunningTask, ...]


@dataclass(frozen=True)
class RunningTasks:
    """The tasks of a query at one moment; two that are equal show no progress."""

    newest_job: int
    stages: tuple[RunningStage, ...]

    @property
    def progress(self) -> tuple[object, ...]:
        """The counts that grow while tasks get on; rows are counted at the executors' heartbeats, every 10 seconds."""
        return self.newest_job, *(
            (stage.number, stage.ended, sum(task.rows for task in stage.running)) for stage in self.stages
        )


def task_load(query: StreamingQuery, epoch: int) -> TaskLoad | None:
    """Return the tasks of the longest stage of one of a query's newest epochs.

    Returns:
        None if Spark does not have them, or not any more; if the query runs elsewhere, or through Spark Connect; or if
        this Spark has another interface.
    """
    return _asked(query, lambda status: status.tasks(str(query.runId), epoch))


def running_tasks(query: StreamingQuery) -> RunningTasks | None:
    """Return the tasks of a query that run now; None as for :func:`task_load`."""
    return _asked(query, lambda status: status.running(str(query.runId)))


def _asked(query: StreamingQuery, ask: Callable[[_Status], _T]) -> _T | None:
    if is_of_connect(query):
        return None
    from py4j.protocol import Py4JError

    try:
        java: Any = query._jsq
        return ask(_Status.of(java.sparkSession().sparkContext()))
    except (Py4JError, SparkVersionError, AttributeError, TypeError, ValueError, OSError):
        return None  # the session is ending, or the interface is another one


@dataclass(frozen=True)
class _Status:
    """Spark's status of its jobs, with the objects that asking takes: py4j looks each name up by several calls."""

    tracker: Any
    store: Any
    arrays: Any
    graphs: Any
    longest_first: Any
    any_status: Any
    now: Callable[[], int]
    by_id: Any
    is_running: Any
    quantiles: Any

    @classmethod
    def of(cls, context: Any) -> _Status:
        """Return the status of a Spark application."""
        from pyspark import SparkContext

        return _status(SparkContext._gateway, context)  # noqa: SLF001 (no public way)

    def tasks(self, run_id: str, epoch: int) -> TaskLoad | None:
        """Return the tasks of the longest stage of an epoch; None if it has none."""
        longest = max(self._stages(run_id, epoch), key=lambda stage: int(stage.executorRunTime()), default=None)
        return None if longest is None else self._tasks_of(longest)

    def running(self, run_id: str) -> RunningTasks:
        """Return the running tasks of a run."""
        jobs = self._jobs(run_id)
        numbers = {
            int(number)
            for job in map(self.store.job, jobs)
            if job.status().toString() == "RUNNING"
            for number in re.findall(r"\d+", str(job.stageIds().toString()))
        }
        stages = map(self.store.lastStageAttempt, sorted(numbers))
        running = (self._running_of(stage) for stage in stages if stage.status().toString() == "ACTIVE")
        return RunningTasks(max(jobs, default=-1), tuple(stage for stage in running if stage.running))

    def _running_of(self, stage: Any) -> RunningStage:
        number, attempt = stage.stageId(), stage.attemptId()
        found = self.store.taskSummary(number, attempt, self.quantiles)
        listed = self.store.taskList(number, attempt, 0, _RUNNING_TASKS, self.by_id, self.is_running)
        now = self.now()
        tasks = [_running_task(listed.apply(at), now) for at in range(listed.size())]
        return RunningStage(
            int(number),
            int(stage.numTasks()),
            int(stage.numCompleteTasks()),
            found.get().executorRunTime().apply(0) / 1000 if found.isDefined() else None,
            tuple(sorted(tasks, key=lambda task: -task.seconds)),
        )

    def _jobs(self, run_id: str) -> list[int]:
        """Return the newest jobs of a run, the newest first."""
        ids = self.arrays.toString(self.tracker.getJobIdsForGroup(run_id))  # one call for all
        return sorted(map(int, re.findall(r"\d+", ids)), reverse=True)[:_JOBS]

    def _stages(self, run_id: str, epoch: int) -> Iterator[Any]:
        """Yield the finished stages of an epoch."""
        for job_id in self._jobs(run_id):
            job = self.store.job(job_id)
            batch = _BATCH.search(str(job.description().toString()))
            if batch is None or int(batch[1]) > epoch:
                continue
            if int(batch[1]) < epoch:
                return
            for stage_id in re.findall(r"\d+", str(job.stageIds().toString())):
                stage = self.store.lastStageAttempt(int(stage_id))
                if stage.status().toString() == "COMPLETE":
                    yield stage

    def _tasks_of(self, stage: Any) -> TaskLoad | None:
        number, attempt = stage.stageId(), stage.attemptId()
        found = self.store.taskSummary(number, attempt, self.quantiles)
        slowest = self.store.taskList(number, attempt, 0, 1, self.longest_first, self.any_status)
        if not found.isDefined() or not slowest.size():
            return None
        summary, task = found.get(), slowest.apply(0)
        metrics, times = task.taskMetrics().get(), summary.executorRunTime()
        read = (summary.shuffleReadMetrics().readRecords(), summary.inputMetrics().recordsRead())
        graph = str(self.graphs.makeDotFile(self.store.operationGraphForStage(number)))
        return TaskLoad(
            int(stage.numCompleteTasks()),
            times.apply(0) / 1000,
            times.apply(1) / 1000,
            int(task.partitionId()),
            int(metrics.shuffleReadMetrics().recordsRead()) + int(metrics.inputMetrics().recordsRead()),
            int(sum(rows.apply(0) for rows in read)),
            _STATEFUL.search(graph) is not None,
        )


def _running_task(task: Any, now: int) -> RunningTask:
    rows = 0
    if task.taskMetrics().isDefined():
        metrics = task.taskMetrics().get()
        rows = int(metrics.shuffleReadMetrics().recordsRead()) + int(metrics.inputMetrics().recordsRead())
    return RunningTask(int(task.index()), int(task.taskId()), (now - task.launchTime().getTime()) / 1000, rows)


@lru_cache(maxsize=1)
def _status(gateway: Any, context: Any) -> _Status:
    jvm = gateway.jvm
    quantiles = gateway.new_array(jvm.double, 2)
    quantiles[0], quantiles[1] = 0.49, 1.0  # of two tasks, the median is the quicker one
    sorting, running = java_class(jvm, _SORTING), jvm.java.util.ArrayList()
    running.add(java_class(jvm, _TASK_STATUS).getField("RUNNING").get(None))
    return _Status(
        context.statusTracker(),
        context.statusStore(),
        jvm.java.util.Arrays,
        spark_class(jvm, _GRAPH),
        sorting.getField("DECREASING_RUNTIME").get(None),
        jvm.java.util.ArrayList(),
        jvm.java.lang.System.currentTimeMillis,
        sorting.getField("ID").get(None),
        running,
        quantiles,
    )
