"""Running a range of epochs again, with other code, settings or state, and comparing the result with the original."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from streamstate.errors import EpochGoneError, InvalidArgumentError
from streamstate.replay.forks import NewFork
from streamstate.replay.forks.make_fork import fork, fork_before_first_epoch
from streamstate.replay.stepping.fork_capture import ForkCapture
from streamstate.replay.stepping.fork_runner import ForkRunner, Watermark
from streamstate.replay.stepping.step import EpochLoop
from streamstate.replay.stepping.step_report import StepReport
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.calls.epoch_range import epoch_span
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.copying import temporary_folder
from streamstate.snapshots.checkpoint.filesystem import files_for, location
from streamstate.snapshots.checkpoint.logs import SHUFFLE_PARTITIONS
from streamstate.snapshots.spark.session import given_session
from streamstate.snapshots.store.layout import Layout
from streamstate.state_inspect import Comparison, History

if TYPE_CHECKING:
    from streamstate.operations.fork import Fork


@dataclass(frozen=True)
class Replay:
    """A range of epochs that was run again.

    Attributes:
        steps: the report of the epochs that were run.
        original: the original's captured epochs.
        replayed: the replay's captured epochs.
        comparison: the two compared epoch by epoch: ``original.compare(replayed)``.
    """

    _made: NewFork = field(repr=False)
    steps: StepReport
    original: History
    replayed: History
    comparison: Comparison
    _temporary: object = field(default=None, repr=False, compare=False)

    @property
    def fork(self) -> Fork:
        """The checkpoint it ran on. A replay that starts at epoch 0 runs on a fork without any epoch (epoch −1)."""
        from streamstate.operations.fork import Fork

        return Fork(self._made)

    @property
    def same(self) -> bool:
        """True if every replayed epoch has the same state as in the original."""
        return self.comparison.same

    def __repr__(self) -> str:
        return f"{self.steps!r}\n{self.comparison!r}"

    def _repr_html_(self) -> str:
        return f"{self.steps._repr_html_()}{self.comparison._repr_html_()}"


@long_call("The replay ended at its last complete epoch.")
def replay(
    build_query: BuildQuery,
    checkpoint: str | os.PathLike[str],
    new_checkpoint: str | os.PathLike[str] | None = None,
    *,
    epochs: range | tuple[int, int] | str,
    store: str | os.PathLike[str] | None = None,
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
    partitions: int | None = None,
    edit: Any = None,
    mode: str = "update",
    watermark: Watermark | None = None,
    shared: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    progress: ProgressCallback | None = None,
) -> Replay:
    """Run a range of a query's epochs again with the same input, and compare the two histories epoch by epoch.

    :meth:`streamstate.Checkpoint.replay` describes the arguments and errors.
    """
    active = given_session(spark)
    original = CheckpointFiles(location(os.fspath(checkpoint)), active)
    first, last = _span(original, epochs)
    settings, pinned = _settings(conf or {}, original, first, partitions, active)
    if first == 0 and edit is not None:
        raise InvalidArgumentError(
            "Before epoch 0 there is no state to edit.\nReplay from epoch 1 on, or leave edit out."
        )
    temporary = temporary_folder("replay")
    store_path = f"{temporary.name}/store" if store is None else os.fspath(store)
    target = f"{temporary.name}/replay" if new_checkpoint is None else new_checkpoint
    recorded = ForkCapture(original.path, store_path, None, active)
    recorded.catch_up()
    if first == 0:
        made = fork_before_first_epoch(original.path, target, active)
    else:
        made = fork(original.path, target, at=first - 1, partitions=partitions, edit=edit, spark=active)
    runner = ForkRunner(
        build_query,
        made.path,
        original.path,
        active,
        mode=mode,
        watermark=watermark,
        conf=settings,
        shared=dict(shared or {}),
        pinned=pinned,
        store=None if store is None else Layout.at(store_path),
    )
    capture = ForkCapture(made.path, store_path, name, active)
    steps = _run(EpochLoop(runner, capture, capture_each=True, progress=progress), made, last - first + 1)
    captured = capture.store
    before, after = captured[recorded.name], captured[capture.name]
    return Replay(made, steps, before, after, before.compare(after), temporary)


def _run(loop: EpochLoop, made: NewFork, epochs: int) -> StepReport:
    """Run the epochs; a fork on which nothing was run is deleted again."""
    try:
        return loop.run(epochs)
    except BaseException:
        if loop.runner.epoch == made.epoch:
            files_for(loop.runner.spark, made.path).remove_tree(made.path)
        raise


def _span(original: CheckpointFiles, epochs: range | tuple[int, int] | str) -> tuple[int, int]:
    original.query_id  # noqa: B018 (raises if there is no checkpoint)
    begun = original.begun()
    first, last = epoch_span(epochs, begun)
    if not begun or first < begun[0] or last > begun[-1]:
        available = f"{begun[0]} to {begun[-1]}" if begun else "none"
        raise EpochGoneError(
            f"{original.path} does not have all of the epochs {first} to {last}.\nIt has these epochs: {available}."
        )
    return first, last


def _settings(
    conf: Mapping[str, Any], original: CheckpointFiles, first: int, partitions: int | None, spark: SparkSession
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of a replay's runs, as Spark spells them, and those that its first epoch fixes."""
    settings = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in conf.items()}
    planned = original.planned(first)
    fixed = planned.conf if planned is not None else {}
    for key, value in settings.items():
        if not key.startswith("spark.sql.") or not (key in fixed or spark.conf.isModifiable(key)):
            raise InvalidArgumentError(
                f"{key} is fixed when Spark starts, so a replay cannot change it.\nOnly settings of Spark SQL that can"
                " be changed at runtime are supported."
            )
        if first > 0 and key in fixed and fixed[key] != value:
            raise InvalidArgumentError(
                f"The query's first epoch fixed {key}={fixed[key]}.\nReplay from epoch 0 to give it another value"
                + ("; or pass partitions=…." if key == SHUFFLE_PARTITIONS else ".")
            )
    if first > 0:
        return settings, {}
    own_partitions = {} if partitions is None else {SHUFFLE_PARTITIONS: str(partitions)}
    pinned = {key: value for key, value in settings.items() if key in fixed} | own_partitions
    return {key: value for key, value in settings.items() if key not in pinned}, pinned
