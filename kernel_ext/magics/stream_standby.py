"""``%stream standby``: a process that takes a query over when this notebook fails."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import seconds
from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.query_code import add_function, builder
from streamstate.operations.availability.lease import LASTS

if TYPE_CHECKING:
    from streamstate.operations.availability.standby import Standby


def _arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="running", help="the query, which runs in this notebook")
    add_function(parser)
    parser.add(
        "--lease",
        metavar="S",
        type=seconds,
        default=LASTS,
        help=f"take over after S seconds without a sign of life (default: {LASTS:g})",
    )
    add_output(parser, "keep the handle in a variable")


def _standby(notebook: NotebookContext, args: argparse.Namespace) -> Standby:
    """Start a standby, and show its handle."""
    __tracebackhide__ = True
    standby = notebook.query(args.name).standby(builder(notebook, args.code), lease=args.lease)
    notebook.assign(args.output, standby)
    return standby


STANDBY = Verb(
    "standby",
    "start a process that takes a query over when this notebook fails",
    _arguments,
    _standby,
    "Running.standby",
)
