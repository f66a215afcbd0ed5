"""Running a range of epochs again, with other code, settings or state, and comparing what came of it."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamstate.debugger.beginning import from_nothing
from streamstate.debugger.changes import Changes
from streamstate.debugger.epoch_range import first_and_last
from streamstate.debugger.forking import fork as fork_at
from streamstate.debugger.own_folder import own_folder
from streamstate.debugger.stepper import BuildQuery, Stepper, Watermark
from streamstate.debugger.steps import Progress, Steps
from streamstate.snapshots.capture import capturer_for, catch_up
from streamstate.snapshots.checkpoint import SPREAD, Checkpoint
from streamstate.snapshots.errors import EpochGoneError, InvalidArgumentError
from streamstate.snapshots.filesystem import location
from streamstate.snapshots.forks.transfer import transfer_between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.debugger.report import StepReport
    from streamstate.snapshots.forks import Fork
    from streamstate.state_inspect import History

__all__ = ["Replay", "replay"]


@dataclass(frozen=True)
class Replay:
    """A range of epochs that was run again.

    Attributes:
        fork: the checkpoint on which it ran; for a range from epoch 0 on, one that began from nothing (epoch −1).
        steps: what was run.
        original: the original's captured epochs.
        replayed: those of the replay.
        comparison: both epoch by epoch: ``original.compare(replayed)``.
    """

    fork: Fork
    steps: StepReport
    original: History
    replayed: History
    comparison: Any
    _kept: object = field(default=None, repr=False, compare=False)

    @property
    def same(self) -> bool:
        """Whether every epoch that was run again came out as in the original."""
        return bool(self.comparison.same)

    def __repr__(self) -> str:
        return f"{self.steps!r}\n{self.comparison!r}"

    def _repr_html_(self) -> str:
        shown = getattr(self.comparison, "_repr_html_", None)
        compared = f"<p>{html.escape(repr(self.comparison))}</p>" if shown is None else shown()
        return f"{self.steps._repr_html_()}{compared}"


def replay(
    build_query: BuildQuery,
    checkpoint: str | os.PathLike[str],
    new_checkpoint: str | os.PathLike[str],
    *,
    epochs: range | tuple[int, int],
    store: str | os.PathLike[str] | None = None,
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
    partitions: int | None = None,
    edit: Any = None,
    mode: str = "update",
    watermark: Watermark | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Run a range of a query's epochs again with the same input, and compare the two histories epoch by epoch.

    A replay of the same code shows whether the query is deterministic; with changed code, settings or state it shows
    what would have been. A range from epoch 0 on begins from nothing, so that the state may have another form.

    Args:
        build_query: makes the streaming DataFrame, with the code to be tried.
        checkpoint: the original; it is only read.
        new_checkpoint: where the replay goes; it must not be there yet.
        epochs: the epochs to run again: a range, or the first and the last.
        store: where both are captured; by default a store that goes with the result.
        name: what the replay is called there; by default its folder's name.
        conf: Spark settings for the replay alone. Those that a query is pinned to by its first epoch can be given for
            a range from epoch 0 on.
        partitions: another number of partitions for the state; see :func:`streamstate.fork`.
        edit: changes to the state before the first epoch; see :func:`streamstate.fork`.
        mode: the output mode.
        watermark: see :func:`streamstate.step`.
        spark: the session; by default the running one, or an embedded one.
        progress: is told how far it is.

    Returns:
        The replay, its steps and the comparison.

    Raises:
        InvalidArgumentError: where an argument cannot be meant.
        EpochGoneError: the original does not have all these epochs.
        QueryError, NotReplayableError, ForkError: as :func:`streamstate.step`; what was run until then stays, and a
            fork on which nothing was run is taken away.

    Example:
        >>> replay = ss.replay(fixed, "checkpoints/delays", "checkpoints/fixed", epochs=(40, 60))  # doctest: +SKIP
        >>> replay.comparison.first  # doctest: +SKIP
    """
    from streamstate.spark_session import session

    active = spark or session()
    first, last = first_and_last(epochs)
    original = Checkpoint(location(os.fspath(checkpoint)), active)
    _check_there(original, first, last)
    settings = _checked_conf(conf or {}, original, first, active)
    pinned = _pinned(settings, original, partitions) if first == 0 else {}
    if first == 0 and edit is not None:
        raise InvalidArgumentError(
            "Before epoch 0 there is no state to edit.\nReplay from epoch 1 on, or leave edit out."
        )
    kept = own_folder("replay") if store is None else None
    place = location(kept.name if kept is not None else os.fspath(store or ""))
    theirs = capturer_for(original.path, place, None, active)
    catch_up(theirs)
    if first == 0:
        made = from_nothing(original.path, new_checkpoint, active)
    else:
        given: dict[str, Any] = {
            key: value for key, value in (("partitions", partitions), ("edit", edit)) if value is not None
        }
        made = fork_at(original.path, new_checkpoint, at=first - 1, spark=active, **given)
    stepper = Stepper(
        build_query,
        made.checkpoint,
        original.path,
        active,
        mode=mode,
        watermark=watermark,
        conf={key: value for key, value in settings.items() if key not in pinned},
        pinned=pinned,
    )
    changes = Changes(made.checkpoint, place, name, active)
    steps = _run(Steps(stepper, changes, capture=True, progress=progress), made, last - first + 1)
    known = changes.store
    ours, other = known[theirs.name], known[changes.name]
    return Replay(made, steps, ours, other, ours.compare(other), kept)


def _run(steps: Steps, made: Fork, epochs: int) -> StepReport:
    """Run them; a fork on which nothing was run is taken away again."""
    try:
        return steps.run(epochs)
    except BaseException:
        if steps.stepper.epoch == made.epoch:
            transfer_between(made.checkpoint, made.checkpoint, steps.stepper.spark).delete(made.checkpoint)
        raise


def _check_there(original: Checkpoint, first: int, last: int) -> None:
    original.query_id  # noqa: B018 (raises where there is no checkpoint)
    begun = original.begun()
    if not begun or first < begun[0] or last > begun[-1]:
        there = f"{begun[0]} to {begun[-1]}" if begun else "none"
        raise EpochGoneError(
            f"{original.path} does not have all of the epochs {first} to {last}; those that it has: {there}."
            "\nReplay epochs among them."
        )


def _checked_conf(conf: Mapping[str, Any], original: Checkpoint, first: int, spark: SparkSession) -> dict[str, str]:
    """The settings as Spark spells them.

    Raises:
        InvalidArgumentError: where one cannot be set for a replay.
    """
    settings = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in conf.items()}
    planned = original.planned(first)
    held = planned.conf if planned is not None else {}
    for key, value in settings.items():
        if not key.startswith("spark.sql.") or not (key in held or spark.conf.isModifiable(key)):
            raise InvalidArgumentError(
                f"{key} is fixed when Spark starts, so a replay cannot have another.\nGive settings of Spark SQL that"
                " can be changed while it runs."
            )
        if first > 0 and key in held and held[key] != value:
            raise InvalidArgumentError(
                f"The query was pinned to {key}={held[key]} by its first epoch.\n"
                "Replay from epoch 0 on to give it another value"
                + ("; or give partitions=…." if key == SPREAD else ".")
            )
    return settings


def _pinned(settings: Mapping[str, str], original: Checkpoint, partitions: int | None) -> dict[str, str]:
    """Those of the settings that the first epoch pins a query to."""
    planned = original.planned(0)
    held = planned.conf if planned is not None else {}
    spread = {} if partitions is None else {SPREAD: str(partitions)}
    return {key: value for key, value in settings.items() if key in held} | spread
