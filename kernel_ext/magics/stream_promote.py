"""``%stream promote``: replace a query of this notebook by a fork, with a short interruption."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.interruption import interruption, own_launch, stop_captured
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.query_code import code_of, known_query
from streamstate.operations.checkpoint import Checkpoint
from streamstate.snapshots.spark.output_modes import check_mode

if TYPE_CHECKING:
    from streamstate.operations.promotion import Promotion


def _arguments(parser: MagicParser) -> None:
    parser.add("fork", metavar="FORK", completes="query", help="the fork, at the query's last epoch")
    parser.add("--over", metavar="NAME", required=True, completes="running", help="the query that it replaces")
    add_output(parser, "keep the promotion, which can be undone, in a variable")


def _promote(notebook: NotebookContext, args: argparse.Namespace) -> Promotion:
    """Stop both, promote, and start the query again with the fork's code."""
    __tracebackhide__ = True
    running, fork = notebook.query(args.over), known_query(notebook, args.fork)
    over = running.checkpoint
    launch = own_launch(running, f"streamstate.Checkpoint({fork.checkpoint!r}).promote(over={over.path!r})")
    code = code_of(notebook, fork, None, None)
    promoted = replace(launch, frame=code.build(), mode=code.mode)
    check_mode(promoted.frame, promoted.mode)
    promoted.sink.check(promoted.mode)
    stays = f"{running.name} continues as before, unless the promotion is complete."
    with interruption(notebook, running, stays=stays) as stopped:
        for query in (running, notebook.running.get(args.fork)):
            if query is not None:
                stop_captured(notebook, query, stopped.progress)
        promotion = Checkpoint(fork.checkpoint).promote(
            over=over, spark=launch.classic_session, progress=stopped.progress.of(launch.name)
        )
        stopped.then = promoted
        stopped.line = f"{running.name} continues after epoch {promotion.epoch} with the state of {args.fork}"
    if promoted.sink.at_least_once:
        print(f"{running.name} writes each row at least once: its {promoted.sink.format} sink may get rows again.")
    notebook.assign(args.output, promotion)
    return promotion


PROMOTE = Verb(
    "promote", "let a fork take the place of a query, at the same epoch", _arguments, _promote, "Fork.promote"
)
