"""``%stream check``: check changed code against a query's checkpoint."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import count
from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.query_code import add_changed_code, code_of, known_query

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
    from streamstate.operations.code_check import check

    __tracebackhide__ = True
    query = known_query(notebook, args.name)
    code = code_of(notebook, query, args.code, args.mode)
    with notebook.working(stays=f"{query.name} is unchanged.") as progress:
        report = check(
            code.build,
            query.checkpoint,
            mode=code.mode,
            store=notebook.open(query.store),
            replay=args.replay,
            spark=notebook.spark(),
            progress=progress.of(query.name),
        )
        progress.line = f"{query.name} was checked."
    notebook.assign(args.output, report)
    return report


CHECK = Verb(
    "check",
    "check whether changed code can continue from the checkpoint, and means the same",
    _arguments,
    _check,
    "Checkpoint.check",
)
