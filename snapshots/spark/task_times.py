"""The tasks of an epoch, from the status that Spark keeps of its newest jobs for its web page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from streamstate.errors import SparkVersionError
from streamstate.snapshots.spark.connect import is_of_connect
from streamstate.snapshots.spark.private_classes import java_class, spark_class
from streamstate.snapshots.store.epoch_load import TaskLoad

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_BATCH = re.compile(r"^batch = (\d+)\)?$", re.MULTILINE)
# Jobs that are looked at: an epoch has few, and the newest epochs are asked for.
_JOBS = 24
_STATEFUL = re.compile(r"StateStore|StreamingDeduplicate|SymmetricHashJoin|FlatMapGroupsWithState|TransformWithState")
_GRAPH = "org.apache.spark.ui.scope.RDDOperationGraph"
_SORTING = "org.apache.spark.status.api.v1.TaskSorting"


def task_load(query: StreamingQuery, epoch: int) -> TaskLoad | None:
    """Return the tasks of the longest stage of one of a query's newest epochs.

    Returns:
        None if Spark does not have them, or not any more; if the query runs elsewhere, or through Spark Connect; or if
        this Spark has another interface.
    """
    if is_of_connect(query):
        return None
    from py4j.protocol import Py4JError

    try:
        java: Any = query._jsq
        context = java.sparkSession().sparkContext()
        return _Status.of(context).tasks(str(query.runId), epoch)
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

    def _stages(self, run_id: str, epoch: int) -> Iterator[Any]:
        """Yield the finished stages of an epoch."""
        ids = self.arrays.toString(self.tracker.getJobIdsForGroup(run_id))  # one call for all
        for job_id in sorted(map(int, re.findall(r"\d+", ids)), reverse=True)[:_JOBS]:
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


@lru_cache(maxsize=1)
def _status(gateway: Any, context: Any) -> _Status:
    jvm = gateway.jvm
    quantiles = gateway.new_array(jvm.double, 2)
    quantiles[0], quantiles[1] = 0.49, 1.0  # of two tasks, the median is the quicker one
    return _Status(
        context.statusTracker(),
        context.statusStore(),
        jvm.java.util.Arrays,
        spark_class(jvm, _GRAPH),
        java_class(jvm, _SORTING).getField("DECREASING_RUNTIME").get(None),
        jvm.java.util.ArrayList(),
        quantiles,
    )
