"""``%stream handover``: let a new process run new code of a query from the next epoch on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.query_code import add_function, builder

if TYPE_CHECKING:
    from streamstate.operations.availability.handover import HandoverReport


def _arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="running", help="the query, which runs in this notebook")
    add_function(parser)
    parser.add("--changed", action="store_true", help="also if the check finds that the state or the results change")
    add_output(parser, "keep the report in a variable")


def _hand_over(notebook: NotebookContext, args: argparse.Namespace) -> HandoverReport:
    """Check, warm up, hand over, and show the report."""
    __tracebackhide__ = True
    running, code = notebook.query(args.name), builder(notebook, args.code)
    with notebook.working(stays=f"{running.name} runs here as before.", always=True) as progress:
        report = running.hand_over(code, changed=args.changed, progress=progress.of(running.name))
        progress.line = f"{running.name} runs in process {report.owner.process.pid}."
    notebook.assign(args.output, report)
    return report


HANDOVER = Verb(
    "handover",
    "let a new process run new code of a query from the next epoch on",
    _arguments,
    _hand_over,
    "Running.hand_over",
)
