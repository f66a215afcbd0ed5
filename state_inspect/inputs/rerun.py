"""Rows that operators below another one emitted in an epoch, which runs again for them.

It runs over a copy of the checkpoint as it was before the epoch, as far as the input of the operator in question.
Nothing is written into the checkpoint. The rows are those of Spark's physical plan: only the columns in use, and those
that an aggregation below has made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import EpochGoneError, NotReplayableError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.copying import copy_epoch, temporary_folder
from streamstate.snapshots.checkpoint.fork_contents import why_unavailable
from streamstate.snapshots.spark.catalyst import each, kind_of, number_of, walk
from streamstate.snapshots.spark.epoch_planning import EpochClock, at_time, incremental, pinned_session, state_ids
from streamstate.snapshots.spark.plan_building import dataset_of, plan_of_rows, project, renamed
from streamstate.snapshots.store.query_plans.operator_plans import STATEFUL
from streamstate.snapshots.store.query_plans.plan_inputs import stateful_nodes
from streamstate.snapshots.store.query_plans.plan_table import LivePlan
from streamstate.state_inspect.inputs.operator_inputs import (
    OperatorInput,
    operator_inputs,
    with_leaves,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def rerun(
    planned: LivePlan,
    checkpoint: CheckpointFiles,
    epoch: int,
    clocks: tuple[EpochClock | None, EpochClock],
    batches: Sequence[tuple[Any, Any]],
) -> Iterator[list[Any]]:
    """The stateful operators of an epoch, planned to run over a copy of the checkpoint, which lasts for the block.

    ``clocks`` has the times of the epoch before, if there is one, and of the epoch; ``batches`` each leaf of the plan
    with what it delivered, as a plan of a stream.

    Raises:
        EpochGoneError: Spark has purged the state of the epoch before.
        NotReplayableError: Spark's executors do not see local folders.
    """
    before, now = clocks
    spark = planned.spark
    if not str(spark.sparkContext.master).startswith("local"):
        raise NotReplayableError(
            "This operator's input comes from another stateful operator, which must run again over a copy of its state"
            " in a local folder. Executors of a cluster do not see that folder.\n"
            "Use a session with master local[*], or ask about the state table of the lower operator."
        )
    jvm: Any = spark._jvm
    with temporary_folder("input") as folder:
        if epoch:
            _copy(spark, checkpoint, epoch - 1, folder)
        session = pinned_session(spark, checkpoint, max(epoch - 1, 0), now.conf)
        made = incremental(
            session,
            at_time(jvm, with_leaves(jvm, planned.analyzed, batches), now),
            planned.plan.mode,
            epoch=epoch,
            before=before,
            now=now,
            state=f"{folder}/state",
            restart_from=state_ids(jvm, checkpoint.unique_ids(epoch - 1) if epoch else {}),
        )
        try:
            yield physical_operators(made)
        finally:
            # Otherwise Spark would continue to maintain the copy.
            java: Any = spark._jsparkSession
            java.streams().stateStoreCoordinator().deactivateInstances(made.runId())


def physical_operators(made: Any) -> list[Any]:
    """Return the physical stateful operators of an epoch, by their numbers."""
    found = {
        int(node.stateInfo().get().operatorId()): node
        for node in walk(made.executedPlan())
        if kind_of(node) in STATEFUL
    }
    return [found[number] for number in sorted(found)]


def made_inputs(planned: LivePlan, node: Any, physical: Any) -> list[OperatorInput]:
    """Return an operator's input; for sides with operators below, the rows that those emit when they run.

    The operator is given as a node of the analysed plan, and of a physical plan that can run.
    """
    jvm: Any = planned.spark._jvm
    found = operator_inputs(jvm, node, physical, planned.plan.mode)
    return [_run(jvm, came, physical) if stateful_nodes(came.plan, planned.plan.mode) else came for came in found]


def _run(jvm: Any, came: OperatorInput, physical: Any) -> OperatorInput:
    below, keys = _below(came, physical)
    session = None
    if came.session is not None:
        number = number_of(physical.sessionExpression().toAttribute())
        session = next(key for key in keys if number_of(key) == number)
        keys = [key for key in keys if key is not session]
    return replace(came, plan=_emitted(jvm, below, keys), keys=tuple(keys), session=session)


def _below(came: OperatorInput, physical: Any) -> tuple[Any, list[Any]]:
    """Return the physical node whose rows come into an operator, and the expressions of the key over these."""
    kind = kind_of(physical)
    if came.side:
        return getattr(physical, came.side)(), list(came.keys)
    if not kind.endswith("StateStoreSaveExec"):
        dedup = kind.startswith("StreamingDeduplicate")
        return physical.child(), list(each(physical.keyExpressions() if dedup else physical.groupingAttributes()))
    # An aggregation's lowest node takes the rows as they are; the ones above it merge buffers, by key.
    partial = next(
        node
        for node in walk(physical.child())
        if kind_of(node).endswith("AggregateExec") and node.requiredChildDistributionExpressions().isEmpty()
    )
    return partial.child(), list(each(partial.groupingExpressions()))


def _emitted(jvm: Any, node: Any, keys: Sequence[Any]) -> Any:
    """Return the rows of a physical node as a batch plan. They are made at once, and kept."""
    session = node.session()
    rows = plan_of_rows(session, node.execute(), node.schema(), streaming=False)
    plan = renamed(jvm, rows, each(node.output()))
    if computed := [key for key in keys if kind_of(key) == "Alias"]:
        plan = project(jvm, [*each(node.output()), *computed], plan)
    return dataset_of(jvm, session, plan).localCheckpoint().queryExecution().analyzed()


def _copy(spark: SparkSession, checkpoint: CheckpointFiles, epoch: int, folder: str) -> None:
    try:
        copy_epoch(spark, checkpoint, epoch, folder)
    except EpochGoneError as error:
        raise EpochGoneError(
            "This operator's input comes from another stateful operator, whose earlier state is needed:"
            f" that of epoch {epoch} {why_unavailable(checkpoint, epoch)}.\n"
            "Ask about the state table of the lower operator, or raise spark.sql.streaming.minBatchesToRetain before"
            " the query starts, to keep more epochs."
        ) from error
