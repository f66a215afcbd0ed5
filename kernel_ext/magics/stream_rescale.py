"""``%stream rescale``: change the number of a query's state partitions, with a short interruption."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import count
from streamstate.errors import InvalidArgumentError, QueryError
from streamstate.launch.launch import Launch
from streamstate.launch.running import Running
from streamstate.launch.starting import start_launch
from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.progress import CaptureProgress
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from streamstate.operations.rescaling.advice import RescaleAdvice
    from streamstate.operations.rescaling.rescale import RescaleReport
    from streamstate.widgets.progress import Progress


def _arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", nargs="?", completes="running", help="the query (default: the only one)")
    parser.add("--partitions", metavar="N", type=count, help="the new number of partitions")
    parser.add("--advise", action="store_true", help="only recommend a number, and explain it")
    add_output(parser, "keep the report, or the advice, in a variable")


def _rescale(notebook: NotebookContext, args: argparse.Namespace) -> RescaleReport | RescaleAdvice:
    """Stop, repartition, verify, restart; or only advise."""
    __tracebackhide__ = True
    running = notebook.query(args.name)
    if args.advise and args.partitions is not None:
        raise InvalidArgumentError("--partitions and --advise cannot be combined: rescale, or only ask for advice.")
    result = _advise(notebook, running) if args.advise else _rescaled(notebook, running, args.partitions)
    notebook.assign(args.output, result)
    return result


def restart(notebook: NotebookContext, launch: Launch, running: Running) -> Running:
    """Start a query of this notebook again from its checkpoint."""
    options = notebook.options(running.store)
    return start_launch(
        launch, running.store, notebook.running, every=running.every, storage_options=options, say=print
    )


def _advise(notebook: NotebookContext, running: Running) -> RescaleAdvice:
    from streamstate.operations.rescaling.advice import rescale_advice

    return rescale_advice(notebook.open(query=running.name)[running.name], query=running.query)


def _rescaled(notebook: NotebookContext, running: Running, partitions: int | None) -> RescaleReport:
    __tracebackhide__ = True
    launch = _launch(running)
    if partitions is None:
        raise InvalidArgumentError(
            f"The number of partitions is missing: %stream rescale {running.name} --partitions 8.\n"
            f"%stream rescale {running.name} --advise recommends one."
        )
    checkpoint = CheckpointFiles(running.checkpoint.path, launch.frame.sparkSession)
    _check(launch, checkpoint, partitions)
    runs = running.state in ("running", "restarting")
    stays = f"{running.name} keeps its number of partitions" + (" and continues." if runs else ".")
    with notebook.working(stays=stays, always=True) as progress:
        began = time.monotonic()
        running.stop(on_status=CaptureProgress(progress))
        try:
            report = _repartition(launch, checkpoint, partitions, progress)
        except BaseException:
            if runs:
                restart(notebook, launch, running)
            raise
        rescaled = replace(launch, partitions=partitions)
        if runs:
            restart(notebook, rescaled, running)
        else:
            running.launch = rescaled
        paused = f"; it was stopped for {time.monotonic() - began:.1f} s" if runs else ""
        progress.line = f"{running.name} has {partitions} partitions{paused}."
    return report


def _launch(running: Running) -> Launch:
    if running.launch is None:
        raise QueryError(
            f"{running.name} was not started by this notebook, which therefore cannot stop and restart it.\n"
            f"Stop it where it runs, call streamstate.Checkpoint({running.checkpoint.path!r}).rescale(N), and start"
            f" it again"
            " there."
        )
    return running.launch


def _check(launch: Launch, checkpoint: CheckpointFiles, partitions: int) -> None:
    """Find what would be refused before the query is stopped for it."""
    from streamstate.replay.repartition import check_repartitionable

    committed = checkpoint.committed()
    launch.check_resumes(committed)
    if committed:
        check_repartitionable(checkpoint, launch.frame.sparkSession, committed[-1], partitions)


def _repartition(launch: Launch, checkpoint: CheckpointFiles, partitions: int, progress: Progress) -> RescaleReport:
    from streamstate.operations.rescaling.rescale import rescale

    finish_epoch(launch, checkpoint, progress)
    return rescale(checkpoint.path, partitions, spark=launch.frame.sparkSession, progress=progress.of(launch.name))


def finish_epoch(launch: Launch, checkpoint: CheckpointFiles, progress: Progress) -> None:
    """Commit the epoch that the stop interrupted: its results may have reached the sink already."""
    if checkpoint.begun()[-1:] == checkpoint.committed()[-1:]:
        return
    progress.say(f"{launch.name}: finishing the interrupted epoch")
    query = replace(launch, trigger="once").start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


RESCALE = Verb(
    "rescale",
    "change the number of state partitions (--advise: recommend one)",
    _arguments,
    _rescale,
    "Checkpoint.rescale",
)
