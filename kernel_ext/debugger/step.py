"""The public way to step: :func:`step`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamstate.debugger.breakpoints import ERROR, Until, breakpoint_at
from streamstate.debugger.changes import Changes
from streamstate.debugger.report import StepReport
from streamstate.debugger.sinks import Sink
from streamstate.debugger.stepper import BuildQuery, Stepper, Watermark, original_of
from streamstate.debugger.steps import Progress, Steps
from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.snapshots.filesystem import location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BuildQuery", "Progress", "Until", "step"]


def step(
    build_query: BuildQuery,
    checkpoint: str | os.PathLike[str],
    *,
    original: str | os.PathLike[str] | None = None,
    epochs: int = 1,
    until: Until = None,
    mode: str = "update",
    store: str | os.PathLike[str] | None = None,
    name: str | None = None,
    new_input: bool = False,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    sink: str = "noop",
    watermark: Watermark | None = None,
) -> StepReport:
    """Run exactly the next epoch of a fork, or the next few, one at a time, with the original's input.

    Each epoch reads what the original's epoch of the same number read, from the same source offsets, with the same
    batch boundaries and processing time. Nothing is written to the original, nor to its sink.

    Args:
        build_query: makes the streaming DataFrame; the same code as the original's, or changed code to be tried.
        checkpoint: the fork, as :func:`fork` made it: the fork itself or its path.
        original: the checkpoint that it follows; by default the one that it was forked from.
        epochs: how many epochs to run at most.
        until: stop after the epoch in which this becomes true: an SQL condition on the rows that changed
            (``"max_delay > 300"``; ``"op0_left.v > 3"`` names the table where there are several), a key that changed
            (``{"carrier": "HA"}``), a function that is given the report so far; or ``"error"``: an error in the
            query's own code is reported, not raised.
        mode: the output mode.
        store: a store to capture each epoch into.
        name: what the fork is called there; by default its folder's name.
        new_input: where the original has no further epoch, go on with what the sources have now.
        spark: the session; by default the running one, or an embedded one.
        progress: is told how far it is.
        sink: where the fork's results go: ``"noop"``, nowhere, or ``"FORMAT:PATH"``, a folder of its own
            that gets a folder ``epoch=N`` for each epoch.
        watermark: ``"own"``: what the fork's epochs made it, which changed code may change; ``"original"``: the
            original's. By default the fork's own where the query has one watermark; where it has several, the
            original's, because Spark forgets their parts when a query starts again.

    Returns:
        What was run, why it stopped, and what changed. An interrupt leaves the fork at a committed epoch.

    Raises:
        QueryError: the fork's query is running, or the query failed; the fork stands where it stood.
        NotReplayableError: what the epoch read can no longer be read; the message names the files or offsets.
        EpochGoneError: the original has purged what describes the epoch.
        ForkError: the checkpoint is no fork and no original was given, or the query or its sink does not fit.
        InvalidArgumentError: where an argument cannot be meant.

    Example:
        >>> fork = ss.fork("checkpoints/delays", "checkpoints/what_if", at=12)  # doctest: +SKIP
        >>> report = ss.step(build, fork, epochs=5, until="max_delay > 300")  # doctest: +SKIP
        >>> report.stopped, report.epoch  # doctest: +SKIP
        ('breakpoint', 15)
    """
    wanted = _checked_number(epochs)
    point = breakpoint_at(until)
    target = Sink.parse(sink)
    path = location(os.fspath(checkpoint))
    active = spark or _session()
    stepper = Stepper(
        build_query,
        path,
        original_of(path, original, active),
        active,
        mode=mode,
        sink=target,
        new_input=new_input,
        watermark=watermark,
    )
    changes = Changes(path, None if store is None else os.fspath(store), name, active)
    return Steps(stepper, changes, point, until == ERROR, store is not None, progress).run(wanted)


def _checked_number(epochs: object) -> int:
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise InvalidArgumentError(f"epochs={epochs!r} cannot be meant: a whole number from 1 on.")
    return epochs


def _session() -> SparkSession:
    from streamstate.spark_session import session

    return session()
