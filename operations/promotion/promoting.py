"""Promoting: a fork takes the place of a stopped query, and can give it back until it has run an epoch."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streamstate.errors import InvalidArgumentError, PromotionError
from streamstate.operations.promotion.requirements import check_promotable, check_stopped
from streamstate.operations.promotion.switch import SWITCHING, Switch, has_run, promotion_of, recover_promotion
from streamstate.operations.rescaling.rollback import recover_rescale
from streamstate.operations.stopped_query import newest_epoch
from streamstate.replay.forks.make_fork import ForkBuilder, never_overwriting
from streamstate.replay.stepping.fork_folder import stepping
from streamstate.replay.stepping.next_epoch import with_own_conf
from streamstate.snapshots.calls.html import listed
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import files_for, location
from streamstate.snapshots.checkpoint.fork_record import FORK_FILE, PromotionRecord
from streamstate.snapshots.checkpoint.server_copy import refuse_copy
from streamstate.snapshots.spark.session import given_session
from streamstate.snapshots.spark.state_comparison import (
    StateAt,
    StateComparison,
    compare_states,
    require_state_reader,
)
from streamstate.snapshots.spark.worker.forwarding import classic_spark


@long_call("Either the promotion is complete, or the query is as it was before.")
def promote(
    fork: str | os.PathLike[str],
    *,
    over: str | os.PathLike[str],
    sink: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: ProgressCallback | None = None,
) -> Promotion:
    """Let a fork take the place of a stopped query, after an epoch that both have committed.

    :meth:`streamstate.Checkpoint.promote` describes the arguments and errors.
    """
    refuse_copy(path := location(over), "be replaced by a fork")
    written = None if sink is None else _table_of(sink, storage_options)
    spark, say = given_session(spark), progress or silent
    fork_path = location(os.fspath(fork))
    with SWITCHING:
        require_state_reader(spark, "Promoting a fork")
        recover_promotion(path, spark)
        source, target = CheckpointFiles(fork_path, spark), CheckpointFiles(path, spark)
        check_stopped([source, target], spark)
        recover_rescale(target, spark)
        with stepping(fork_path, spark):
            epoch = check_promotable(source, target, spark, written)
            say("comparing the two states", 0.1)
            both = newest_epoch(target)
            compared = compare_states(spark, StateAt(path, both), StateAt(fork_path, both), limit=0)
            record = _record(source, epoch, compared)
            say("preparing the checkpoint", 0.5)
            _Promoting(source, target, Switch(path, "promote", record, spark), spark, both).run()
    say("done", 1.0)
    return Promotion(path, record, spark)


@dataclass(frozen=True)
class _Promoting:
    """One promotion, after all checks."""

    fork: CheckpointFiles
    over: CheckpointFiles
    switch: Switch
    spark: SparkSession
    committed: int
    """The newest epoch of the old checkpoint; the promotion's is one later if only the sink has that."""

    def run(self) -> None:
        """Make the new checkpoint beside the old one, then let them change places."""
        epoch = self.switch.record.epoch
        try:
            self.switch.begin()
            self._stage()
            check_stopped([self.fork, self.over], self.spark)
            self._check_idle(self.over, epoch)
            # An epoch may begin between the check and the exchange, in a process that cannot be seen.
            self.switch.exchange(lambda old: self._check_idle(CheckpointFiles(old, self.spark), epoch))
            self.switch.keep()
        except BaseException:
            recover_promotion(self.over.path, self.spark)
            raise

    def _stage(self) -> None:
        """The fork's last epoch as a checkpoint of the query, with the next epoch planned."""
        staged, record = self.switch.staged, self.switch.record
        files = files_for(self.spark, self.fork.path, staged)
        with never_overwriting():
            builder = ForkBuilder(self.fork, staged, files, self.spark, stays=False, home=self.over.path)
            builder.build(record.epoch, "files")
        files.remove(f"{staged}/{FORK_FILE}")
        plan, commit = (files.text(f"{staged}/{log}/{record.epoch}") for log in ("offsets", "commits"))
        files.write(f"{staged}/offsets/{record.epoch + 1}", _without_input(plan or "", commit))
        files.write(f"{staged}/metadata", record.metadata(self.over.query_id), replace=True)

    def _check_idle(self, checkpoint: CheckpointFiles, epoch: int) -> None:
        if checkpoint.committed()[-1:] != [self.committed] or checkpoint.begun()[-1:] != [epoch]:
            raise PromotionError(
                f"{self.over.path} began epoch {epoch + 1} during the promotion: its query runs in another process.\n"
                "The promotion was reversed. Stop the query there, step the fork to its last epoch, and try again."
            )


def _table_of(sink: str, storage_options: Mapping[str, str] | None) -> DeltaTable:
    """Return the table of a sink.

    Raises:
        InvalidArgumentError: it is not one of Delta, or there is no table.
    """
    format_, _, path = sink.partition(":")
    if format_ == "delta" and DeltaTable.is_deltatable(path, dict(storage_options or {})):
        return DeltaTable(path, storage_options=dict(storage_options or {}))
    raise InvalidArgumentError(
        f"Invalid sink={sink!r}: expected 'delta:PATH', the Delta table that the query writes to."
    )


def _record(fork: CheckpointFiles, epoch: int, compared: StateComparison) -> PromotionRecord:
    tables = {*compared.spread, *compared.other_spread}
    differences = dict.fromkeys(sorted(tables), (0, 0))
    for found in compared.differences:
        alike = found.only_one or found.only_other
        counts = (found.only_one, found.only_other) if alike else (found.rows or 0, found.other_rows or 0)
        differences[found.table] = counts
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return PromotionRecord(uuid.uuid4().hex, fork.path, fork.query_id, epoch, now, differences)


def _without_input(plan: str, commit: str | None) -> str:
    """Return the plan of a next epoch that reads nothing, with the watermark that Spark would use."""
    version, head, *offsets = with_own_conf(plan, plan, commit, own_watermark=True, pinned={}).split("\n")
    metadata = {**json.loads(head), "batchTimestampMs": time.time_ns() // 1_000_000}
    return "\n".join([version, json.dumps(metadata, separators=(",", ":")), *offsets])


@dataclass(frozen=True, repr=False)
class Promotion:
    """The result of :meth:`streamstate.Checkpoint.promote`, and the way back.

    Example:
        >>> fork = checkpoint.fork("checkpoints/zero", edit="UPDATE op0 SET max = 0 WHERE carrier = 'HA'")
        >>> promotion = fork.promote(over=checkpoint)
        >>> promotion.differences
        {'op0': (1, 1)}
        >>> promotion.undo()
    """

    checkpoint: str
    """The checkpoint that holds the fork's state now."""
    _record: PromotionRecord
    _spark: SparkSession | None = field(compare=False)

    @classmethod
    def of(cls, checkpoint: str | os.PathLike[str], spark: SparkSession | None = None) -> Promotion:
        """Return the newest promotion of a checkpoint, for example to undo it in another process.

        Args:
            checkpoint: the checkpoint that a fork took over.
            spark: a session, needed if the checkpoint is not on the local disk.

        Raises:
            PromotionError: no fork has taken it over.
        """
        path = location(os.fspath(checkpoint))
        recover_promotion(path, spark)
        record = promotion_of(path, spark)
        if record is None:
            raise PromotionError(
                f"No fork has taken the place of {path}.\nss.Checkpoint(fork).promote(over=…) does that."
            )
        return cls(path, record, spark)

    @property
    def fork(self) -> str:
        """The fork's own checkpoint, which stays as it is."""
        return self._record.fork

    @property
    def epoch(self) -> int:
        """The last epoch that the query and the fork had both committed; the promoted query runs the one after it."""
        return self._record.epoch

    @property
    def kept(self) -> str:
        """The path of the old checkpoint."""
        return Switch(self.checkpoint, "undo", self._record, self._spark).kept

    @property
    def differences(self) -> Mapping[str, tuple[int, int]]:
        """For each state table, how many rows only the old state had, and how many only the fork's.

        A row whose value differs counts in both. Where the columns differ, all rows count.
        """
        return self._record.differences

    @classic_spark()
    def undo(self, *, spark: SparkSession | None = None) -> None:
        """Give the place back to the old checkpoint, which is then as before, to the byte. The fork stays.

        Args:
            spark: the session to use; by default the one that promoted, the running one, or an embedded one.

        Raises:
            QueryError: the query is running.
            PromotionError: it has run since, or the promotion is no longer the newest one.
        """
        spark = given_session(spark or self._spark)
        with SWITCHING:
            recover_promotion(self.checkpoint, spark)
            switch = Switch(self.checkpoint, "undo", self._record, spark)
            if not switch.is_promoted:
                raise PromotionError(
                    f"{self.checkpoint} no longer holds this promotion: it was undone, or another one followed.\n"
                    "ss.Checkpoint(…).promotion() is the newest one."
                )
            check_stopped([CheckpointFiles(self.checkpoint, spark)], spark)
            if has_run(self.checkpoint, self.epoch, spark):
                raise PromotionError(
                    f"{self.checkpoint} has run epoch {self.epoch + 1} since the promotion, so its results may be in"
                    f" the sink.\nTo go back to the old state, fork it: ss.Checkpoint({self.kept!r}).fork(…)."
                )
            switch.begin()
            switch.give_back()

    def __repr__(self) -> str:
        return "\n".join([f"Promotion: {self._headline}", *(f"  {line}" for line in self._lines)])

    def _repr_html_(self) -> str:
        return listed(self._headline, self._lines)

    @property
    def _headline(self) -> str:
        return f"{self.checkpoint} goes on after epoch {self.epoch} with the state of {self.fork}"

    @property
    def _lines(self) -> list[str]:
        lines = [
            f"{table}: rows only in the old state {old:,}, only in the new {new:,}" if old or new else f"{table}: same"
            for table, (old, new) in self.differences.items()
        ]
        return [*lines, f"old checkpoint: {self.kept}; undo() brings it back until the query runs"]
