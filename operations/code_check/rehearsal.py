"""A rehearsal: the code runs the last epochs again in a fork, and its states are compared with the original's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamstate.errors import CheckpointError, EpochGoneError, NotReplayableError, QueryError, first_line, worded
from streamstate.operations.code_check.report import Finding, migrate_call
from streamstate.replay.forks.make_fork import fork_for_now
from streamstate.replay.stepping.fork_capture import ForkCapture
from streamstate.replay.stepping.fork_runner import ForkRunner
from streamstate.replay.stepping.step import EpochLoop
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.calls.progress_callback import ProgressCallback
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.copying import temporary_folder
from streamstate.snapshots.checkpoint.damage.epochs import EpochDamage
from streamstate.snapshots.spark.failures import failures, innermost
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.snapshots.store.layout import Layout

_SHOWN = 2


class Rehearsal:
    """Runs the last epochs of a query again with changed code.

    Attributes:
        replayed: the epochs that were run.
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: CheckpointFiles,
        build: BuildQuery,
        mode: str,
        *,
        store: Layout | None,
        progress: ProgressCallback,
    ) -> None:
        self._spark, self._checkpoint, self._build, self._mode = spark, checkpoint, build, mode
        self._store, self._progress = store, progress
        self.replayed: list[int] = []

    def findings(self, last: int, epochs: int) -> Iterator[Finding]:
        """Run the epochs up to the last one; the first epoch whose state differs ends the rehearsal."""
        first, why = self._first(last, epochs)
        if first == last:
            raise EpochGoneError(
                f"{self._checkpoint.path} has only epoch {last}, so no epoch can be rehearsed. {why}\n"
                "Check without replay, or once the query has committed another epoch."
            )
        if last - first < epochs:
            change = f"Only {last - first} of {epochs} epochs can be rehearsed."
            yield Finding("replay_shorter", change, why, "Nothing.")
        with temporary_folder("rehearsal") as folder:
            target = f"{folder}/fork"
            fork_for_now(self._checkpoint.path, target, at=first, partitions=None, spark=self._spark)
            for epoch in range(first + 1, last + 1):
                self._progress(f"rehearsing epoch {epoch}", (epoch - first - 1) / (last - first))
                found = list(self._run(target, epoch))
                yield from found
                if any(finding.kind != "input_uncertain" for finding in found):
                    return

    def _first(self, last: int, epochs: int) -> tuple[int, str]:
        """Return the epoch to begin at, and why at no earlier one: it and all later ones must have a whole state."""
        damage = EpochDamage(self._checkpoint)
        committed = self._checkpoint.committed()
        for epoch in range(last, max(last - epochs, committed[0]) - 1, -1):
            if (found := damage.of_state(epoch)) is not None:
                why = "Spark has purged it" if damage.purged(epoch) else str(found)
                return epoch + 1, f"The state of epoch {epoch} cannot be read: {why}."
        return max(last - epochs, committed[0]), "The checkpoint holds no earlier epoch to begin at."

    def _step(self, target: str) -> str | None:
        """Run the next epoch; return why it may have read fewer records than the original, if it may."""
        runner = ForkRunner(self._build, target, self._checkpoint.path, self._spark, mode=self._mode, store=self._store)
        report = EpochLoop(runner, ForkCapture(target, None, None, self._spark)).run(1)
        return next((run.doubt for run in report.epochs), None)

    def _run(self, target: str, epoch: int) -> Iterator[Finding]:
        try:
            doubt = self._step(target)
        except QueryError as error:
            change = f"Epoch {epoch}, run again with this code, failed: {first_line(error)}"
            yield Finding("replay_failed", change, "The query would fail in the same way.", "Change the code.")
            return
        except NotReplayableError as error:
            change, advice = f"Epoch {epoch} cannot be rehearsed. {first_line(error)}", str(error).partition("\n")[2]
            yield Finding("input_gone", change, "The code may still be right: nothing speaks against it.", advice)
            return
        self.replayed.append(epoch)
        if doubt is not None:
            effect = "A state that differs may differ for that reason."
            yield Finding("input_uncertain", f"Epoch {epoch}: {doubt}.", effect, "Nothing.")
        states = StateAt(self._checkpoint.path, epoch), StateAt(target, epoch)
        try:
            differences = state_differences(self._spark, *states, limit=_SHOWN)
        except failures() as error:
            raise CheckpointError(
                f"The state of epoch {epoch} of {self._checkpoint.path} cannot be read: {innermost(error)}\n"
                "Check without replay; streamstate doctor says what is damaged."
            ) from error
        fork = worded("Checkpoint.fork", magic="%stream fork")
        for difference in differences:
            rows = [f"was {row}" for row in difference.of_one] + [f"now {row}" for row in difference.of_other]
            examples = f" For example: {'; '.join(rows)}." if rows else ""
            yield Finding(
                "replay_differs",
                f"In epoch {epoch}, run again with this code, {difference.table} differs: {difference.why}.",
                f"From the same input the code makes another state.{examples}",
                f"If it is meant, {migrate_call()} can convert the old state; {fork} keeps both apart.",
            )
