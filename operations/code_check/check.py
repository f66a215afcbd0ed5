"""Checking changed code against a checkpoint: :func:`check`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.errors import CheckpointError, worded
from streamstate.operations.code_check.log_changes import (
    pinned_findings,
    recorded_setting_findings,
    source_findings,
    version_findings,
)
from streamstate.operations.code_check.plan_changes import code_note, name_findings, plan_findings
from streamstate.operations.code_check.rehearsal import Rehearsal
from streamstate.operations.code_check.report import CheckReport, Finding, Level
from streamstate.operations.code_check.spark_verdict import refusal, spark_verdict
from streamstate.operations.report_html import ColumnPair
from streamstate.operations.stopped_query import layout_of, recorded_plan
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.next_start import NextStart, next_start
from streamstate.snapshots.checkpoint.unfinished_epoch import ADVICE, EFFECT, WHAT, unfinished_epoch
from streamstate.snapshots.spark.catalyst import keeps_state
from streamstate.snapshots.spark.output_modes import known_mode, mode_refusals
from streamstate.snapshots.store.query_plans.query_plan import QueryPlan
from streamstate.snapshots.store.query_plans.spark_plan import plan_of_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.state_inspect import Store

_ORDER: tuple[Level, ...] = ("refused", "changed", "note")


@long_call("The query is unchanged.")
def check(
    build_query: Callable[[], DataFrame] | DataFrame,
    checkpoint: str | os.PathLike[str],
    *,
    mode: str = "update",
    store: Store | str | Path | None = None,
    replay: int = 0,
    spark: SparkSession | None = None,
    progress: ProgressCallback | None = None,
) -> CheckReport:
    """Before a deploy: whether code starts from a checkpoint, and whether the state then means the same.

    :meth:`streamstate.Checkpoint.check` describes the arguments and errors.
    """
    from streamstate.replay.stepping.query_sources import check_streaming
    from streamstate.snapshots.spark.session import given_session, running_session

    began = time.monotonic()
    known_mode(mode)
    whole_number(replay, "replay", least=0)
    build = build_query if callable(build_query) else lambda: build_query
    spark = given_session(spark or running_session())
    opened = CheckpointFiles(checkpoint, spark)
    start, committed = next_start(opened), opened.committed()
    if not committed:
        raise CheckpointError(
            f"{opened.path} has no committed epoch, so there is no state to check against.\n"
            "Check again once its query has committed one."
        )
    report = progress or silent
    report("planning the code's next epoch", 0.0)
    frame = check_streaming(build())
    findings = [*_damage_findings(start, frame), *_unfinished_findings(opened)]
    columns: Mapping[str, tuple[ColumnPair, ...]] = {}
    layout = None if store is None else layout_of(store)
    rehearsal = Rehearsal(spark, opened, build, mode, store=layout, progress=report)
    if not _refused(findings):
        recorded = recorded_plan(store, opened.query_id, committed[-1])
        checking = _Checking(spark, opened, committed[-1], mode, recorded)
        findings += checking.findings(frame)
        columns = checking.columns
    if replay and not _refused(findings):
        findings += rehearsal.findings(committed[-1], replay)
    report("done", 1.0)
    ordered = sorted(findings, key=lambda finding: _ORDER.index(finding.level))
    seconds = time.monotonic() - began
    return CheckReport(opened.path, committed[-1], tuple(ordered), tuple(rehearsal.replayed), seconds, columns)


def _damage_findings(start: NextStart, frame: DataFrame) -> Iterator[Finding]:
    """Yield a finding for each damaged file that the next start reads; code without state reads no state files."""
    stateful = keeps_state(frame)
    for damage in start.damages:
        change = f"{damage}."
        if damage.stops and (stateful or damage.file.partition("/")[0] != "state"):
            yield Finding("damaged", change, "Spark does not start, whatever the code.", damage.advice)
        else:
            effect = "Spark starts without it." if stateful else "This code keeps no state, so Spark starts without it."
            yield Finding("damaged_unread", change, effect, damage.advice)
    if start.whole is not None and stateful:
        change = f"The newest epoch whose state is whole is {start.whole}."
        advice = f"Without a backup: ss.Checkpoint(…).fork(at={start.whole}), and start the code from the fork."
        yield Finding("damaged_unread", change, "From there, the code can go on.", advice)


def _unfinished_findings(checkpoint: CheckpointFiles) -> Iterator[Finding]:
    """Yield a finding if the newest epoch has written its state and is not committed."""
    epoch = unfinished_epoch(checkpoint)
    if epoch is not None:
        yield Finding("unfinished", WHAT.format(epoch=epoch), EFFECT, ADVICE)


def _refused(findings: Sequence[Finding]) -> bool:
    return any(finding.level == "refused" for finding in findings)


@dataclass
class _Checking:
    """One check, after its arguments."""

    spark: SparkSession
    checkpoint: CheckpointFiles
    epoch: int
    mode: str
    recorded: QueryPlan | None
    columns: Mapping[str, tuple[ColumnPair, ...]] = field(default_factory=dict)
    """Once :meth:`findings` ran: the columns of the states that differ."""

    def findings(self, frame: DataFrame) -> Iterator[Finding]:
        """Yield all findings but those of a rehearsal."""
        planned = self.checkpoint.planned(self.epoch)
        conf = {} if planned is None else planned.conf
        yield from version_findings(self.spark, conf, self.recorded)
        yield from pinned_findings(self.spark, conf)
        topics = {} if self.recorded is None else self.recorded.topics
        sources = list(source_findings(frame, self.checkpoint, self.epoch, topics))
        yield from sources
        refusals = mode_refusals(frame)
        if refusals[self.mode]:
            yield _unsupported(refusals, self.mode)
            return
        verdict = spark_verdict(self.spark, frame, self.checkpoint, self.epoch, self.mode)
        self.columns = verdict.columns
        if (refused := refusal(verdict)) is not None:
            yield refused
            return
        if _refused(sources):
            return
        if verdict.after is not None and not verdict.after.operators and keeps_state(frame):
            yield _state_unchecked(self.spark.version)
        yield from name_findings(verdict, explained=self.recorded is not None)
        yield from self._against_the_record(frame)

    def _against_the_record(self, frame: DataFrame) -> Iterator[Finding]:
        plan = plan_of_frame(frame, self.mode).plan
        yield from code_note(plan)
        if self.recorded is None:
            effect = "Changed expressions and conditions leave no trace in a checkpoint, so they are not compared."
            store, replay = worded("store=…", command="--store STORE"), worded("replay=3", line="--replay 3")
            change = "There is no recorded plan to compare with."
            yield Finding("no_recorded_plan", change, effect, f"Pass {store}, or rehearse the change: {replay}.")
            return
        yield from plan_findings(self.recorded, plan)
        yield from recorded_setting_findings(frame, self.recorded, plan)


def _state_unchecked(version: str) -> Finding:
    """Return the finding for a Spark whose planning does not look at the state: before 4.0."""
    change = f"Spark {version} compares the columns of the state only when the query runs."
    effect = "It may refuse a changed key or aggregate in the first epoch."
    replay = worded("replay=3", line="--replay 3")
    return Finding(
        "state_unchecked", change, effect, f"Rehearse the change: {replay}; or check with Spark 4.0 or later."
    )


def _unsupported(refusals: dict[str, str], mode: str) -> Finding:
    accepted = [name for name, why in refusals.items() if not why]
    effect, says = "Spark does not start.", f"Spark says: {refusals[mode]}"
    if not accepted:
        return Finding("query_unsupported", says, effect, "Change the query.")
    return Finding("mode_unsupported", says, effect, f"Use mode {' or '.join(accepted)}.")
