"""``%state NAME publish``: grant a query's state to others."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamstate.command_line.share import add_terms, published
from streamstate.magics.arguments import MagicParser, Verb, add_output, add_store
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.state_rows import named_history

if TYPE_CHECKING:
    from streamstate.sharing.contract import Contract


def _arguments(parser: MagicParser) -> None:
    add_terms(parser.add)
    add_store(parser)
    add_output(parser, "keep the contract in a variable")


def _publish(notebook: NotebookContext, args: argparse.Namespace) -> Contract:
    """Make a contract, or change its terms."""
    __tracebackhide__ = True
    history, table = named_history(notebook, args)
    if table is not None and args.table is None:
        args.table = [table]
    contract = published(history, args)
    notebook.assign(args.output, contract)
    return contract


PUBLISH = Verb("publish", "grant it to others, by a contract", _arguments, _publish, "History.publish")
