"""``%stream rescale``: change the number of a query's state partitions, with a short interruption."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import count
from streamstate.errors import InvalidArgumentError
from streamstate.launch.launch import Launch
from streamstate.launch.running import RUNNING, Running
from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.interruption import own_launch
from streamstate.magics.notebook_context import NotebookContext
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


def _advise(notebook: NotebookContext, running: Running) -> RescaleAdvice:
    from streamstate.operations.rescaling.advice import rescale_advice

    return rescale_advice(notebook.open(query=running.name)[running.name], query=running.query)


def _rescaled(notebook: NotebookContext, running: Running, partitions: int | None) -> RescaleReport:
    __tracebackhide__ = True
    launch = own_launch(running, f"streamstate.Checkpoint({running.checkpoint.path!r}).rescale(N)")
    if partitions is None:
        raise InvalidArgumentError(
            f"The number of partitions is missing: %stream rescale {running.name} --partitions 8.\n"
            f"%stream rescale {running.name} --advise recommends one."
        )
    stays = f"{running.name} keeps its number of partitions" + (" and continues." if running.state in RUNNING else ".")
    with notebook.working(stays=stays, always=True) as progress:
        if running.state in RUNNING:
            report = running.rescale(partitions, progress=progress.of(running.name))
            stopped = f"; it was stopped for {report.seconds_standing:.1f} s"
        else:
            report, stopped = _rescaled_stopped(running, launch, partitions, progress), ""
        progress.line = f"{running.name} has {partitions} partitions{stopped}."
    return report


def _rescaled_stopped(running: Running, launch: Launch, partitions: int, progress: Progress) -> RescaleReport:
    from streamstate.launch.rescaling import finish_epoch

    checkpoint = CheckpointFiles(running.checkpoint.path, launch.classic_session)
    finish_epoch(launch, checkpoint, progress.say)
    callback = progress.of(launch.name)
    report = running.checkpoint.rescale(partitions, spark=launch.classic_session, progress=callback)
    running.launch = replace(launch, partitions=partitions)
    return report


RESCALE = Verb(
    "rescale",
    "change the number of state partitions (--advise: recommend one)",
    _arguments,
    _rescale,
    "Checkpoint.rescale",
)
