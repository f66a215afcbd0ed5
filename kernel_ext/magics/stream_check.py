"""``%stream check``: check changed code against a query's checkpoint."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import count
from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.query_code import CodeRun, add_changed_code
from streamstate.operations.checkpoint import Checkpoint

if TYPE_CHECKING:
    from streamstate.operations.code_check import CheckReport


def _arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="the query; it may be running, and is only read")
    add_changed_code(parser)
    parser.add(
        "--replay", metavar="N", type=count, default=0, help="run the last N epochs again, and compare the states"
    )
    add_output(parser, "keep the report in a variable")


def _check(notebook: NotebookContext, args: argparse.Namespace) -> CheckReport:
    """Check changed code, before the query is restarted with it."""
    __tracebackhide__ = True
    run = CodeRun.of(notebook, args, args.code)
    return run.report(
        Checkpoint.check,
        stays=f"{run.query.name} is unchanged.",
        line=lambda _: f"{run.query.name} was checked.",
        store=notebook.open(run.query.store),
        replay=args.replay,
    )


CHECK = Verb(
    "check",
    "check whether changed code can continue from the checkpoint, and means the same",
    _arguments,
    _check,
    "Checkpoint.check",
)
