"""Spark's own verdict: the code's next epoch, planned over a copy of the state's metadata. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.errors import QueryError, first_line
from streamstate.operations.code_check.report import Finding, migrate_call
from streamstate.operations.code_check.schema_changes import (
    SchemaChange,
    StateSchemas,
    compared_columns,
    schema_changes,
    schemas_or_none,
)
from streamstate.operations.new_checkpoint.log_texts import milliseconds
from streamstate.operations.report_html import ColumnPair
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.copying import bring, temporary_folder
from streamstate.snapshots.checkpoint.filesystem import files_for
from streamstate.snapshots.checkpoint.fork_contents import described
from streamstate.snapshots.checkpoint.logs import PlannedEpoch
from streamstate.snapshots.spark.catalyst import each, kind_of
from streamstate.snapshots.spark.connect import errors_of_spark
from streamstate.snapshots.spark.epoch_planning import EpochClock, at_time, incremental, pinned_session, state_ids
from streamstate.snapshots.spark.failures import innermost, worker_was_late
from streamstate.snapshots.spark.plan_building import renamed
from streamstate.snapshots.spark.private_classes import private_calls
from streamstate.snapshots.spark.source_plans import no_files
from streamstate.state_inspect.inputs.operator_inputs import with_leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESTORE = "Change the code, or start over with another checkpoint."
_ATTEMPTS = 3
_BRACKETED = re.compile(r"\[([A-Z][A-Z_.]+)\]")
_OF_CLASS = {
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE": "key_schema",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE": "value_schema",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION": "value_schema",
    "STATE_STORE_VALUE_SCHEMA_EVOLUTION_THRESHOLD_EXCEEDED": "value_schema",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA": "operators",
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE": "variable_kind",
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART": "processor_setting",
}


@dataclass(frozen=True)
class SparkVerdict:
    """Spark's verdict on the code's next epoch."""

    error: BaseException | None
    """Why Spark would not plan it; None if it would."""
    before: StateSchemas | None
    """The state of the checkpoint; None if it cannot be read without Spark."""
    after: StateSchemas | None
    """The state that the code would make in an empty checkpoint; None if Spark cannot plan that either."""

    @property
    def changes(self) -> list[SchemaChange]:
        """The differences between the columns of the two."""
        if self.before is None or self.after is None:
            return []
        return list(schema_changes(self.before, self.after))

    @property
    def columns(self) -> dict[str, tuple[ColumnPair, ...]]:
        """The columns of the states that differ, side by side."""
        if self.before is None or self.after is None:
            return {}
        return compared_columns(self.before, self.after)


def spark_verdict(
    spark: SparkSession, frame: DataFrame, checkpoint: CheckpointFiles, epoch: int, mode: str
) -> SparkVerdict:
    """Plan the epoch after a checkpoint's epoch, and the first epoch of an empty checkpoint, in temporary folders."""
    planned = checkpoint.planned(epoch)
    assert planned is not None
    with temporary_folder("check") as folder:
        copy, empty = CheckpointFiles(f"{folder}/copy"), CheckpointFiles(f"{folder}/empty")
        _copy(spark, checkpoint, epoch, copy.path)
        before = schemas_or_none(copy, epoch)
        with private_calls(spark):
            session = pinned_session(spark, checkpoint, epoch, planned.conf)
        planner = _Planner(session, frame, mode, planned)
        error = planner.error(epoch + 1, f"{copy.path}/state", state_ids(spark._jvm, checkpoint.unique_ids(epoch)))
        files = files_for(None, empty.path)
        files.write(f"{empty.path}/offsets/0", files.text(f"{copy.path}/offsets/{epoch}") or "")
        after = None
        if planner.error(0, f"{empty.path}/state", state_ids(spark._jvm, {})) is None:
            after = schemas_or_none(empty, 0)
    return SparkVerdict(error, before, after)


def _copy(spark: SparkSession, checkpoint: CheckpointFiles, epoch: int, target: str) -> None:
    """Copy what describes the state, and plan the next epoch as a query that restarts would have by then."""
    files = files_for(spark, checkpoint.path, target)
    bring(described(checkpoint, files, epoch), checkpoint, epoch, target, files=files)
    text = files.text(f"{checkpoint.path}/offsets/{epoch}")
    assert text is not None
    files.write(f"{target}/offsets/{epoch + 1}", text)


@dataclass(frozen=True)
class _Planner:
    """Plans the first epoch after a restart.

    Args:
        session: one with the settings that the query is pinned to.
        planned: the newest committed epoch.
    """

    session: SparkSession
    frame: DataFrame
    mode: str
    planned: PlannedEpoch

    def error(self, epoch: int, state: str, ids: Any) -> Exception | None:
        """Return Spark's reason not to plan an epoch over a state with some unique ids; None if it plans it.

        Raises:
            QueryError: Spark fails for another reason, several times.
        """
        attempt = 1
        while (error := self._planned(epoch, state, ids)) is not None and not is_verdict(error):
            if attempt == _ATTEMPTS:
                raise QueryError(
                    f"Spark failed to plan the next epoch, which says nothing about the code: {innermost(error)}\n"
                    "Check again. If it remains so, please report this message."
                ) from error
            attempt += 1
        return error

    def _planned(self, epoch: int, state: str, ids: Any) -> Exception | None:
        """Plan an epoch, and return the error if that fails."""
        jvm: Any = self.session._jvm
        java: Any = self.session._jsparkSession
        planned = self.planned
        clock = EpochClock(milliseconds(planned.watermark), milliseconds(planned.began_at), planned.conf)
        analyzed = at_time(jvm, with_empty_batches(jvm, self.frame._jdf.queryExecution().analyzed()), clock)
        before = clock if epoch else None
        with private_calls(self.session):
            made = incremental(
                self.session, analyzed, self.mode, epoch=epoch, before=before, now=clock, state=state, restart_from=ids
            )
        try:
            made.executedPlan()
        except errors_of_spark() as error:
            return error
        finally:
            # Otherwise Spark would keep maintaining the copy.
            java.streams().stateStoreCoordinator().deactivateInstances(made.runId())
        return None


def is_verdict(error: Exception) -> bool:
    """Return whether an error is what Spark says of the code: an exception that it names, not a failure on the way."""
    from pyspark.errors import PySparkException

    return not worker_was_late(error) and (isinstance(error, PySparkException) or bool(_condition(error)))


def refusal(verdict: SparkVerdict) -> Finding | None:
    """Return the finding that says why Spark refuses the code; None if it does not."""
    if verdict.error is None:
        return None
    says = f"Spark says: {first_line(verdict.error)}".rstrip(".") + "."
    kind = _OF_CLASS.get(_condition(verdict.error), "refused_by_spark")
    changes = [change for change in verdict.changes if kind.startswith(change.part)]
    if kind == "operators":
        advice = f"Keep the stateful operators and their order. Otherwise {_migrate()}"
        return Finding(
            kind, _operators(verdict), "Spark does not start: each operator has to find its own state.", advice
        )
    if changes and all(change.kind == "nullability" for change in changes):
        advice = f"{migrate_call()} carries the state over into a new checkpoint, without a mapping."
        return Finding(
            "nullability", sentences(changes), f"Spark does not start, although all rows fit. {says}", advice
        )
    change = sentences(changes) if changes else says
    effect = "Spark does not start." if change == says else f"Spark does not start. {says}"
    advice = _RESTORE if kind == "refused_by_spark" else _migrate()
    return Finding(kind, change, effect, advice)


def _migrate() -> str:
    return f"{migrate_call()} carries the state over into a new checkpoint; or start over with another one."


def sentences(changes: Sequence[object]) -> str:
    """Differences as sentences."""
    return " ".join(f"{str(change)[0].upper()}{str(change)[1:]}." for change in changes)


def _condition(error: BaseException) -> str:
    """Spark's name of an error; of its cause, if the error itself has none."""
    condition = getattr(error, "getCondition", lambda: None)()
    found = _BRACKETED.search(str(error))
    return str(condition or (found[1] if found else ""))


def _operators(verdict: SparkVerdict) -> str:
    if verdict.before is None or verdict.after is None:
        return "The stateful operators differ."
    names = [
        ", ".join(schemas.operators[number] for number in sorted(schemas.operators)) or "none"
        for schemas in (verdict.before, verdict.after)
    ]
    return f"The checkpoint has the stateful operators {names[0]}; the code has {names[1]}."


def with_empty_batches(jvm: Any, analyzed: Any) -> Any:
    """Return the plan over empty batches of its sources."""
    leaves = [leaf for leaf in each(analyzed.collectLeaves()) if kind_of(leaf) == "StreamingRelation"]
    return with_leaves(jvm, analyzed, [(leaf, _projected(jvm, leaf)) for leaf in leaves])


def _projected(jvm: Any, leaf: Any) -> Any:
    """Return a batch under the columns of the source, as Spark projects it."""
    columns = list(each(leaf.output()))
    batch = no_files(jvm, leaf.dataSource()) if str(leaf.sourceName()).startswith("FileSource") else leaf.newInstance()
    if len(columns) != batch.output().size():  # it also has the column _metadata
        batch = leaf.newInstance()
    return renamed(jvm, batch, columns)
