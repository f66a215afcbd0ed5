"""Rescaling: change the number of partitions of a stopped query's state, verify every key, or roll back.

Repartitioning itself is Spark's work, called in :mod:`streamstate.replay.repartition`.

Partitioned operator state is one of the primitives of SEEP ("Integrating Scale Out and Fault Tolerance in Stream
Processing using Operator State Management", SIGMOD 2013): state that can be split by key can be scaled out and in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from streamstate.errors import NoStateError, RescaleError
from streamstate.operations.rescaling.rollback import Unfinished, recover_rescale
from streamstate.operations.stopped_query import check_stopped, settled_epoch
from streamstate.replay.repartition import check_repartitionable, repartition
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.calls.html import listed
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.server_copy import refuse_copy
from streamstate.snapshots.spark.session import given_session
from streamstate.snapshots.spark.state_comparison import StateAt, compare_states
from streamstate.snapshots.spark.state_rewriting import require_state_writing


@long_call("The checkpoint is as it was before.")
def rescale(
    checkpoint: str | Path,
    partitions: int,
    *,
    spark: SparkSession | None = None,
    progress: ProgressCallback | None = None,
    then: Callable[[], object] = lambda: None,
) -> RescaleReport:
    """Repartition the state of a stopped query, into more or fewer partitions.

    :meth:`streamstate.Checkpoint.rescale` describes the arguments and errors. ``then`` starts the verified query; if it
    raises, the rescale is rolled back.
    """
    began = time.monotonic()
    whole_number(partitions, "partitions")
    refuse_copy(str(checkpoint), "be rescaled")
    spark = given_session(spark)
    require_state_writing(spark, "Repartitioning state")
    files = CheckpointFiles(checkpoint, spark)
    check_stopped([files], spark, "rescaled", "%stream rescale NAME --partitions N")
    recover_rescale(files, spark)
    _check_state(files)
    epoch = settled_epoch(files, "rescale")
    before = check_repartitionable(files, spark, epoch, partitions)
    return _Rescaling(files, spark, epoch, before, partitions, progress or silent, began).run(then)


def _check_state(checkpoint: CheckpointFiles) -> None:
    if not checkpoint.has_state():
        raise NoStateError(
            f"The query of {checkpoint.path} keeps no state, so there is nothing to repartition.\n"
            "Set spark.sql.shuffle.partitions before you start it to change how it shuffles."
        )


@dataclass(frozen=True)
class _Rescaling:
    """One rescale, after all checks."""

    checkpoint: CheckpointFiles
    spark: SparkSession
    epoch: int
    before: int
    partitions: int
    progress: ProgressCallback
    began: float

    def run(self, then: Callable[[], object]) -> RescaleReport:
        """Repartition, verify and start the query; restore the checkpoint if any of it fails."""
        self.progress("listing the checkpoint's files", 0.0)
        checked = time.monotonic()
        try:
            unfinished = Unfinished.begin(self.checkpoint, self.spark, self.epoch, self.before, self.partitions)
            listed = time.monotonic()
            report = self._repartition()
            phases = {"checking": checked - self.began, "listing files": listed - checked}
            report = replace(report, phases={**phases, **report.phases})
            self.progress("done", 1.0)
            unfinished.verified(self.checkpoint, self.spark)
            then()
        except BaseException as error:
            self.progress("restoring the checkpoint", 0.0)
            recover_rescale(self.checkpoint, self.spark)
            if isinstance(error, Exception) and not isinstance(error, RescaleError):
                raise RescaleError.rolled_back(self.checkpoint.path, self.before, error) from error
            raise
        unfinished.done(self.checkpoint, self.spark)
        return report

    def _repartition(self) -> RescaleReport:
        self.progress(f"repartitioning the state into {self.partitions} partitions", 0.05)
        started = time.monotonic()
        epoch = repartition(self.spark, self.checkpoint, self.epoch, self.partitions)
        repartitioned = time.monotonic()
        self.progress("comparing the state before and after, key by key", 0.5)
        path = self.checkpoint.path
        comparison = compare_states(self.spark, StateAt(path, self.epoch), StateAt(path, epoch))
        if comparison.differences:
            raise RescaleError.differs(path, self.before, comparison.differences)
        verified = time.monotonic()
        return RescaleReport(
            checkpoint=path,
            partitions=(self.before, self.partitions),
            epoch=epoch,
            rows={name: sum(rows) for name, rows in comparison.other_spread.items()},
            spread_before=comparison.spread,
            spread_after=comparison.other_spread,
            seconds_spreading=repartitioned - started,
            seconds_verifying=verified - repartitioned,
            seconds=verified - self.began,
            phases={"repartitioning": repartitioned - started, "verifying": verified - repartitioned},
        )


@dataclass(frozen=True)
class RescaleReport:
    """The result of :meth:`streamstate.Checkpoint.rescale`.

    Example:
        >>> report = checkpoint.rescale(4)
        >>> report.partitions, report.epoch, report.rows
        ((2, 4), 62, {'op0': 5})
    """

    checkpoint: str
    """The query's checkpoint."""
    partitions: tuple[int, int]
    """The number of partitions before and after."""
    epoch: int
    """The epoch that repartitioned the state. It read no input; the query continues with the next epoch."""
    rows: Mapping[str, int]
    """Rows of each state table; the same before and after."""
    spread_before: Mapping[str, Sequence[int]] = field(repr=False)
    """Rows of each partition of each state table, before."""
    spread_after: Mapping[str, Sequence[int]] = field(repr=False)
    """Rows of each partition of each state table, after."""
    seconds_spreading: float
    """Seconds that Spark took to repartition the state."""
    seconds_verifying: float
    """Seconds that it took to read and compare both states, key by key."""
    seconds: float
    """Seconds from the call until the query could continue."""
    seconds_standing: float | None = None
    """Seconds from the last commit before the rescale to the first one after it; None if the query was not running."""
    phases: Mapping[str, float] = field(default_factory=dict, repr=False)
    """The seconds of each step, in their order; of a running query, from ``stopping`` to ``first epoch``."""

    @property
    def skew(self) -> tuple[float, float]:
        """Rows of the fullest partition divided by the rows of an average one, before and after; 1 is even."""
        return _skew(self.spread_before), _skew(self.spread_after)

    def __repr__(self) -> str:
        lines = [f"RescaleReport: {self._headline}", *(f"  {line}" for line in self._tables)]
        return "\n".join([*lines, f"  {self._times}"])

    def _repr_html_(self) -> str:
        return listed(self._headline, (*self._tables, self._times))

    @property
    def _headline(self) -> str:
        before, after = self.partitions
        return (
            f"from {before} to {after} partitions in epoch {self.epoch}; all rows of the state verified"
            f" ({sum(self.rows.values()):,})"
        )

    @property
    def _tables(self) -> list[str]:
        return [
            f"{name}: rows {rows:,}, in the fullest partition {max(self.spread_before[name], default=0):,}"
            f" → {max(self.spread_after[name], default=0):,}"
            for name, rows in self.rows.items()
        ]

    @property
    def _times(self) -> str:
        return (
            f"{self.seconds:.1f} s: {self.seconds_spreading:.1f} s repartitioning,"
            f" {self.seconds_verifying:.1f} s verifying"
        )


def _skew(spread: Mapping[str, Sequence[int]]) -> float:
    """Return the skew of all tables together, because one task processes the same partition of all of them."""
    sums = [sum(rows) for rows in zip(*spread.values(), strict=False)]
    return max(sums) * len(sums) / sum(sums) if sum(sums) else 1.0
