"""``%stream promote``: replace a query of this notebook by a fork, with a short interruption."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from streamstate.errors import QueryError
from streamstate.launch.launch import Launch
from streamstate.launch.running import Running
from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.progress import CaptureProgress
from streamstate.magics.query_code import code_of, known_query
from streamstate.magics.stream_rescale import finish_epoch, restart
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.output_modes import check_mode

if TYPE_CHECKING:
    from streamstate.operations.promotion import Promotion
    from streamstate.widgets.progress import Progress

RUNNING_STATES = ("running", "restarting")
"""The states of a query that is started again afterwards."""


def _arguments(parser: MagicParser) -> None:
    parser.add("fork", metavar="FORK", completes="query", help="the fork, at the query's last epoch")
    parser.add("--over", metavar="NAME", required=True, completes="running", help="the query that it replaces")
    add_output(parser, "keep the promotion, which can be undone, in a variable")


def _promote(notebook: NotebookContext, args: argparse.Namespace) -> Promotion:
    """Stop both, promote, and start the query again with the fork's code."""
    __tracebackhide__ = True
    running, fork = notebook.query(args.over), known_query(notebook, args.fork)
    launch = _launch(running, args.fork)
    code = code_of(notebook, fork, None, None)
    promoted = replace(launch, frame=code.build(), mode=code.mode)
    check_mode(promoted.frame, promoted.mode)
    promoted.sink.check(promoted.mode)
    stays = f"{running.name} continues as before, unless the promotion is complete."
    runs = running.state in RUNNING_STATES
    with notebook.working(stays=stays, always=True) as progress:
        try:
            for stopped in (running, notebook.running.get(args.fork)):
                if stopped is not None:
                    stop_captured(notebook, stopped, progress)
            promotion = _switched(fork.checkpoint, promoted, progress)
        except BaseException:
            if runs:
                restart(notebook, launch, running)
            raise
        if runs:
            restart(notebook, promoted, running)
        else:
            running.launch = promoted
        progress.line = f"{running.name} continues after epoch {promotion.epoch} with the state of {args.fork}."
    notebook.assign(args.output, promotion)
    return promotion


def _launch(running: Running, fork: str) -> Launch:
    if running.launch is None:
        raise QueryError(
            f"{running.name} was not started by this notebook, which therefore cannot stop and restart it.\n"
            f"Stop it where it runs, call streamstate.Checkpoint(…).promote(over={running.checkpoint.path!r}) with"
            f" the checkpoint"
            f" of {fork}, and start it again there."
        )
    return running.launch


def stop_captured(notebook: NotebookContext, running: Running, progress: Progress) -> None:
    """Stop a query at a committed epoch, and capture it, before another checkpoint continues."""
    from streamstate.snapshots.capture.capture import capture

    runs = running.state in RUNNING_STATES
    running.stop(on_status=CaptureProgress(progress))
    spark, options = notebook.spark(), notebook.options(running.store)
    if runs and running.launch is not None:
        finish_epoch(running.launch, CheckpointFiles(running.checkpoint.path, spark), progress)
    capture(running.checkpoint.path, running.store, running.name, spark=spark, storage_options=options)


def _switched(fork: str, launch: Launch, progress: Progress) -> Promotion:
    from streamstate.operations.promotion import promote

    return promote(fork, over=launch.checkpoint, spark=launch.frame.sparkSession, progress=progress.of(launch.name))


PROMOTE = Verb(
    "promote", "let a fork take the place of a query, at the same epoch", _arguments, _promote, "Fork.promote"
)
