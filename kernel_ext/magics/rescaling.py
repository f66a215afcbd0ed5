"""``%stream rescale``: another number of partitions for a query's state, while it stands still for a moment."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from streamstate.magics.arguments import MagicParser, add_output, count
from streamstate.magics.catching_up import CatchingUp
from streamstate.magics.launch import Launch
from streamstate.magics.notebook import Notebook
from streamstate.magics.progress import Progress, working
from streamstate.magics.running import RunningQuery
from streamstate.magics.stream_cell import run_launch
from streamstate.magics.verb import Verb
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import InvalidArgumentError, QueryError

if TYPE_CHECKING:
    from streamstate.recovery.advice import RescaleAdvice
    from streamstate.recovery.report import RescaleReport

__all__ = ["RESCALE"]


def _arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", nargs="?", completes="running", help="which query (may be left out for one)")
    parser.add("--partitions", metavar="N", type=count, help="how many partitions its state is to have")
    parser.add("--advise", action="store_true", help="only say how many would do, and why")
    add_output(parser, "keep the report, or the advice, in a variable")


def _rescale(notebook: Notebook, args: argparse.Namespace) -> RescaleReport | RescaleAdvice:
    """Stop, spread anew, verify, go on; or only advise."""
    __tracebackhide__ = True
    one = notebook.only_query() if args.name is None else notebook.query(args.name)
    if args.advise and args.partitions is not None:
        raise InvalidArgumentError("Give --partitions to rescale, or --advise to be told how many; not both.")
    done = _advise(notebook, one) if args.advise else _rescaled(notebook, one, args.partitions)
    notebook.assign(args.output, done)
    return done


def _advise(notebook: Notebook, one: RunningQuery) -> RescaleAdvice:
    from streamstate.recovery.advice import rescale_advice

    return rescale_advice(notebook.open(query=one.name)[one.name], query=one.query)


def _rescaled(notebook: Notebook, one: RunningQuery, partitions: int | None) -> RescaleReport:
    __tracebackhide__ = True
    launch = _launch(one)
    if partitions is None:
        raise InvalidArgumentError(
            f"Say how many partitions: %stream rescale {one.name} --partitions 8.\n"
            f"%stream rescale {one.name} --advise says how many would do."
        )
    spark = launch.frame.sparkSession
    checkpoint = Checkpoint(one.checkpoint, spark)
    _check(launch, checkpoint, partitions)
    runs = one.state in ("running", "restarting")
    stays = f"{one.name} has its old partitions" + (" and goes on." if runs else ".")
    with working(notebook.shell, stays=stays, always=True) as progress:
        began = time.monotonic()
        one.stop(progress=CatchingUp(progress))
        try:
            report = _spread(launch, checkpoint, partitions, progress)
        except BaseException:
            if runs:
                run_launch(notebook, launch, one.store, one.every)
            raise
        if runs:
            run_launch(notebook, replace(launch, partitions=partitions), one.store, one.every)
        else:
            one.launch = replace(launch, partitions=partitions)
        still = f"; it stood still for {time.monotonic() - began:.1f} s" if runs else ""
        progress.line = f"{one.name} has {partitions} partitions{still}."
    return report


def _launch(one: RunningQuery) -> Launch:
    if one.launch is None:
        raise QueryError(
            f"{one.name} was not started by this notebook, so it cannot be stopped and started here.\n"
            f"Stop it where it runs, then streamstate.rescale({one.checkpoint!r}, N), and start it again there."
        )
    return one.launch


def _check(launch: Launch, checkpoint: Checkpoint, partitions: int) -> None:
    """Find what would be refused before the query is stopped for it."""
    from streamstate.recovery.checks import check_spreads

    committed = checkpoint.committed()
    launch.check_resumes(committed)
    if committed:
        check_spreads(checkpoint, launch.frame.sparkSession, committed[-1], partitions)


def _spread(launch: Launch, checkpoint: Checkpoint, partitions: int, progress: Progress) -> RescaleReport:
    from streamstate.recovery.rescale import rescale

    _finish(launch, checkpoint, progress)
    return rescale(
        checkpoint.path,
        partitions,
        spark=launch.frame.sparkSession,
        progress=lambda line, share: progress.say(f"{launch.name}: {line}", share, 1),
    )


def _finish(launch: Launch, checkpoint: Checkpoint, progress: Progress) -> None:
    """Have the epoch that the stop broke off committed: it may have reached the sink already."""
    if checkpoint.begun()[-1:] == checkpoint.committed()[-1:]:
        return
    progress.say(f"{launch.name}: finishing the epoch that was under way")
    query = replace(launch, trigger="once").start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


RESCALE = Verb(
    "rescale", "give a query's state another number of partitions (--advise: how many)", _arguments, _rescale
)
