"""``%state NAME publish`` and ``contracts``: grant a query's state to others, and see what was granted."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamstate.command_line.share import add_terms, published
from streamstate.magics.arguments import MagicParser, Verb, add_output, add_store
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.state_rows import named_history, split

if TYPE_CHECKING:
    from streamstate.sharing.contract import Contract
    from streamstate.sharing.contract_list import ContractList


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


def _contracts_arguments(parser: MagicParser) -> None:
    add_store(parser)
    add_output(parser, "keep the contracts in a variable")


def _contracts(notebook: NotebookContext, args: argparse.Namespace) -> ContractList:
    """Return the contracts of a query, or of the whole store."""
    __tracebackhide__ = True
    query, _ = split(args.name)
    store = notebook.open(args.store, query, args.storage_options)
    found = store.contracts() if query is None else store.contracts().of_query(store[query].name)
    notebook.assign(args.output, found)
    return found


CONTRACTS = Verb(
    "contracts",
    "show what is granted to others, what they suggest, and what they read",
    _contracts_arguments,
    _contracts,
    "Store.contracts",
)
