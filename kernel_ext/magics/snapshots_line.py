"""``%snapshots``: what a store holds."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamstate.magics.arguments import MagicParser, identifier
from streamstate.magics.magic import Magic
from streamstate.magics.notebook import Notebook

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.state_inspect import Store

__all__ = ["SNAPSHOTS"]


def _parser() -> MagicParser:
    parser = MagicParser(
        "%snapshots",
        "The epochs captured of a query, one row each; without a name, the queries of the store.",
        epilog="Examples:\n  %snapshots\n  %snapshots delays -o epochs",
    )
    parser.add("name", metavar="NAME", nargs="?", completes="query", help="a query")
    parser.add("--store", metavar="DIR", completes="path", help="the store to read (default: the last store used)")
    parser.add("-o", dest="output", metavar="VAR", type=identifier, help="keep the table in a variable")
    return parser


def _run(notebook: Notebook, args: argparse.Namespace, _cell: str) -> pd.DataFrame:
    __tracebackhide__ = True
    store = notebook.open(args.store, args.name)
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
