"""``%snapshots``: what a store holds, and what can be done with a query's epochs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamstate.magics.arguments import MagicParser, VerbParser, add_output, add_store
from streamstate.magics.magic import Magic
from streamstate.magics.notebook import Notebook
from streamstate.magics.snapshots_verbs import VERBS

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.magics.table import Table
    from streamstate.state_inspect import Store

__all__ = ["SNAPSHOTS"]


def _parser() -> MagicParser:
    parser = VerbParser(
        "%snapshots",
        "The epochs captured of a query, one row each; without a name, the queries of the store.",
        verbs=[verb.parsed for verb in VERBS],
        before="NAME",
        epilog="Examples:\n  %snapshots\n  %snapshots delays -o epochs\n"
        "  %snapshots delays keep --last 1000 --every 100 --dry-run\n"
        "  %snapshots delays compact\n"
        "  %snapshots delays export exported/delays --epochs 3,5,10:20",
    )
    parser.add("name", metavar="NAME", nargs="?", completes="query", help="a query")
    add_store(parser)
    add_output(parser, "keep the table in a variable")
    return parser


def _run(notebook: Notebook, args: argparse.Namespace, _cell: str) -> pd.DataFrame | Table:
    __tracebackhide__ = True
    chosen = next((verb for verb in VERBS if verb.name == args.verb), None)
    if chosen is not None:
        shown: pd.DataFrame | Table = chosen.run(notebook, args)
        return shown
    store = notebook.open(args.store, args.name, args.storage_options)
    value = overview(store) if args.name is None else store[args.name].epochs()
    notebook.assign(args.output, value)
    return value


def overview(store: Store) -> pd.DataFrame:
    """The store's queries: how many epochs of each, which is the newest, and what is in it."""
    import pandas as pd

    rows = [_summary(name, store[name].epochs()) for name in store.queries()]
    return pd.DataFrame(rows, columns=pd.Index(["query", "epochs", "gaps", "newest", "committed_at", "rows"]))


def _summary(name: str, epochs: pd.DataFrame) -> list[Any]:
    captured = epochs[epochs["status"] == "captured"]
    gaps = len(epochs) - len(captured)
    if captured.empty:
        return [name, 0, gaps, None, None, {}]
    newest = captured.iloc[-1]
    return [name, len(captured), gaps, newest["epoch"], newest["committed_at"], newest["rows"]]


SNAPSHOTS = Magic("line", "snapshots", _parser(), _run)
