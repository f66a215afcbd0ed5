"""Audits of whether a query is deterministic: :func:`audit`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamstate.errors import EpochGoneError, InvalidArgumentError, choices
from streamstate.replay.audit.report import Audit, AuditDivergence, AuditedReplay, with_ranked_suspects
from streamstate.replay.forks.make_fork import fork_before_first_epoch, fork_for_now
from streamstate.replay.stepping.fork_capture import ForkCapture
from streamstate.replay.stepping.fork_runner import ForkRunner
from streamstate.replay.stepping.query_sources import built, check_replayable, sources_of
from streamstate.replay.stepping.step import EpochLoop
from streamstate.snapshots.calls.checks import BuildQuery, whole_number
from streamstate.snapshots.calls.epoch_range import epoch_span
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.bindings import binding_in
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.copying import temporary_folder
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.checkpoint.fork_contents import nearest_epochs, why_unavailable
from streamstate.snapshots.checkpoint.logs import SHUFFLE_PARTITIONS
from streamstate.snapshots.spark.session import given_session
from streamstate.snapshots.spark.state_reader import no_state
from streamstate.snapshots.store.layout import Layout
from streamstate.state_inspect import Comparison, History
from streamstate.state_inspect.branches.comparison import BranchDivergence
from streamstate.state_inspect.suspects.plan_suspects import suspects_of
from streamstate.state_inspect.suspects.python_suspects import suspects_in
from streamstate.state_inspect.suspects.suspect import Suspect, SuspectKind

# This many epochs are run, captured in one pass and compared before the next.
_CHUNK = 25
_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_MAX_KEYS = 100


@long_call("The query is unchanged, and the replays were deleted.")
def audit(
    build_query: BuildQuery,
    checkpoint: str | os.PathLike[str],
    *,
    epochs: range | tuple[int, int] | str | None = None,
    replays: int = 2,
    partitions: int | None = None,
    store: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    mode: str = "update",
    spark: SparkSession | None = None,
    progress: ProgressCallback | None = None,
) -> Audit:
    """Check whether a query is deterministic: run its epochs again, and compare every state with the recorded one.

    :meth:`streamstate.Checkpoint.audit` describes the arguments and errors.
    """
    active = given_session(spark)
    original = CheckpointFiles(location(os.fspath(checkpoint)), active)
    span = _span(original, epochs)
    recorded = _partitions(original, span)
    of_replays = [*[recorded] * whole_number(replays, "replays"), _other_partitions(partitions, recorded)]
    frame = built(build_query)
    check_replayable(sources_of(frame) or ())
    with _folder(directory) as folder:
        history = ForkCapture(original.path, folder if store is None else os.fspath(store), None, active).history
        for epoch in span:
            history.at(epoch)  # raises in a gap
        report, count, keep = progress or silent, len(of_replays), directory is not None
        given = None if store is None else Layout.at(os.fspath(store))
        run = _AuditRun(build_query, original, span, folder, active, mode, history, report, count, keep, given)
        replayed = tuple(run.replay(number, partitions, recorded) for number, partitions in enumerate(of_replays, 1))
        suspects = [*_suspects(build_query, frame), *_unbound_reads(original, span)]
        return Audit(
            original.path,
            original.query_id,
            mode,
            span,
            recorded,
            tuple(history.tables()),
            with_ranked_suspects(replayed, suspects, recorded),
            tuple(suspects),
            run.doubts,
        )


@dataclass
class _AuditRun:
    """The replays of one audit."""

    build_query: BuildQuery
    original: CheckpointFiles
    span: range
    folder: str
    spark: SparkSession
    mode: str
    recorded: History
    progress: ProgressCallback
    count: int
    keep: bool
    store: Layout | None
    doubts: dict[int, str] = field(default_factory=dict)
    """The reasons for which epochs may have read fewer records than the original, by epoch."""

    def replay(self, number: int, partitions: int, recorded: int) -> AuditedReplay:
        """Run one replay, up to where it diverges."""
        began = time.monotonic()
        checkpoint = f"{self.folder}/replay-{number}"
        repartitioned = partitions != recorded
        if self.span[0] == 0:
            fork_before_first_epoch(self.original.path, checkpoint, self.spark)
        else:
            changed = partitions if repartitioned else None
            fork_for_now(self.original.path, checkpoint, at=self.span[0] - 1, partitions=changed, spark=self.spark)
        # The query's plan may take the number from the session, so it is set there too.
        setting = {SHUFFLE_PARTITIONS: str(partitions)}
        runner = ForkRunner(
            self.build_query,
            checkpoint,
            self.original.path,
            self.spark,
            mode=self.mode,
            conf=setting,
            pinned=setting if repartitioned and self.span[0] == 0 else {},
            store=self.store,
        )
        capture = ForkCapture(checkpoint, f"{self.folder}/replay-{number}-store", f"replay_{number}", self.spark)
        upto, comparison = self._run(number, runner, capture)
        first = comparison.first
        return AuditedReplay(
            number,
            partitions,
            upto,
            None if first is None else _divergence(first, number),
            comparison.epochs(),
            None if first is None else comparison.keys(first.epoch, first.table, limit=_MAX_KEYS),
            time.monotonic() - began,
            checkpoint if self.keep else None,
            comparison.left_out,
        )

    def _run(self, number: int, runner: ForkRunner, capture: ForkCapture) -> tuple[int, Comparison]:
        chunk = max(1, min(_CHUNK, int(self.spark.conf.get(_RETAIN, "100") or 100) - 2))
        first = self.span[0]
        while True:
            last = min(first + chunk - 1, self.span[-1])
            steps = EpochLoop(runner, capture, progress=self._progress_of(number, runner)).run(last - first + 1)
            self.doubts |= {epoch.epoch: epoch.doubt for epoch in steps.epochs if epoch.doubt is not None}
            capture.catch_up()
            comparison = self.recorded.compare(capture.history, epochs=range(self.span[0], last + 1))
            if last == self.span[-1] or not comparison.same:
                return last, comparison
            first = last + 1

    def _progress_of(self, number: int, runner: ForkRunner) -> ProgressCallback:
        def report(_message: str, _share: float | None) -> None:
            epoch = runner.epoch + 1
            done = (number - 1) * len(self.span) + epoch - self.span[0]
            self.progress(f"Replay {number} of {self.count}: epoch {epoch}", done / (self.count * len(self.span)))

        return report


def _divergence(first: BranchDivergence, replay: int) -> AuditDivergence:
    column = next(iter(first.columns), None) if first.kind == "differing" else None
    pair: tuple[Any, Any] = first.columns[column] if column is not None else (None, None)
    if column is None:
        values = {name: here if here is not None else there for name, (here, there) in first.columns.items()}
        row = {name: value for name, value in values.items() if value is not None}
        pair = (row, None) if first.kind == "only here" else (None, row)
    return AuditDivergence(first.epoch, first.table, first.key, column, *pair, first.columns, replay)


def _span(original: CheckpointFiles, epochs: range | tuple[int, int] | str | None) -> range:
    """Return the epochs to replay, all of them committed and still described by the checkpoint."""
    original.query_id  # noqa: B018 (raises if there is no checkpoint)
    committed = original.committed()
    if committed and not original.has_state():
        raise no_state(original)
    described = [epoch for epoch in committed if original.planned(epoch) is not None and not original.skipped(epoch)]
    replayable = described if described[:1] == [0] else described[1:]
    if not replayable:
        raise EpochGoneError(f"{original.path} has no epoch that can be replayed.\nRun its query for two more epochs.")
    if epochs is None:
        return range(replayable[0], replayable[-1] + 1)
    first, last = epoch_span(epochs, replayable)
    missing = [epoch for epoch in range(first, last + 1) if epoch not in replayable]
    if missing:
        why = why_unavailable(original, missing[0])
        if missing[0] == committed[0]:
            why = "is the oldest in the checkpoint, and the state before it is gone"
        raise EpochGoneError(
            f"Epochs of {original.path} that cannot be replayed: {choices(map(str, missing))}. Epoch {missing[0]}"
            f" {why}.\n"
            f"Epochs {replayable[0]} to {replayable[-1]} can be replayed; {nearest_epochs(replayable, missing[0])}."
        )
    return range(first, last + 1)


def _partitions(original: CheckpointFiles, span: range) -> int:
    """Return the number of partitions of the state, in all of the epochs."""
    repartitioned = [epoch for epoch in span if epoch > 0 and original.repartitioned(epoch)]
    if repartitioned:
        raise InvalidArgumentError(
            f"Epoch {repartitioned[0]} of {original.path} only repartitioned the state, and cannot be audited.\n"
            f"Audit the epochs before it, or those from {repartitioned[0] + 1} on."
        )
    return original.partitions(span[0]) or 1


def _other_partitions(partitions: object, recorded: int) -> int:
    count = recorded + 1 if partitions is None else whole_number(partitions, "partitions")
    if count == recorded:
        raise InvalidArgumentError(
            f"Invalid partitions={partitions!r}: the query's own state already has {recorded} partitions.\n"
            "Pass another number, or leave it out."
        )
    return count


@contextmanager
def _folder(directory: str | os.PathLike[str] | None) -> Iterator[str]:
    """Provide a folder for the replays; delete it afterwards unless a directory was given."""
    if directory is None:
        with temporary_folder("audit") as folder:
            yield folder
        return
    place = Path(directory)
    if place.exists() and any(place.iterdir()):
        raise InvalidArgumentError(f"{place} exists and is not empty.\nChoose a folder that does not exist yet.")
    place.mkdir(parents=True, exist_ok=True)
    yield str(place.resolve())


def _suspects(build_query: BuildQuery, frame: DataFrame) -> list[Suspect]:
    """Everything that may be nondeterministic in the plan, in its Python functions, and in build_query."""

    def place(suspect: Suspect) -> tuple[str, str]:
        return suspect.what, suspect.where.rsplit("(", 1)[-1]

    found = suspects_of(frame._jdf.queryExecution().analyzed())
    known = {place(suspect) for suspect in found}
    return [*found, *(suspect for suspect in suspects_in(build_query, "build_query") if place(suspect) not in known)]


def _unbound_reads(original: CheckpointFiles, span: range) -> list[Suspect]:
    """Return the shared variables that operators read outside of the epoch."""
    planned = original.planned(span[-1])
    binding = None if planned is None else binding_in(planned.offsets)
    versions = {} if binding is None else binding.versions
    return [
        Suspect(
            f"shared variable {name}",
            "its reads",
            "its consistency is latest: each read sees the newest version, which may be another one in a replay",
            "declare it with consistency='epoch', which binds each epoch to a version",
            SuspectKind.OUTSIDE,
        )
        for name, version in versions.items()
        if version is not None and version.number is None
    ]
