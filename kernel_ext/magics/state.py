"""``%state``: a query's state as a browser, and as data at an epoch, between two epochs, or of one key."""

from __future__ import annotations

import argparse
from typing import Any

from streamstate.magics.arguments import MagicParser, add_output, add_store
from streamstate.magics.magic import Magic
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.progress import loading
from streamstate.magics.state_inputs import INPUTS, LATE, WHY, WHY_POLICY
from streamstate.magics.state_publish import CONTRACTS, PUBLISH
from streamstate.magics.state_rows import AT, DIFF, KEY, shown_table, split
from streamstate.magics.state_serve import SERVE
from streamstate.magics.state_views import DASHBOARD, LOAD, SAVE, TIMELINE

_VERBS = (AT, KEY, DIFF, WHY, INPUTS, LATE, LOAD, WHY_POLICY, TIMELINE, DASHBOARD, SAVE, SERVE, PUBLISH, CONTRACTS)


def _parser() -> MagicParser:
    parser = MagicParser(
        "%state",
        "Explore the state of a query. Without a verb, show a browser with a slider over the epochs; without a name,\n"
        "the queries of the store. The verbs return data or show other views.",
        verbs=_VERBS,
        before="NAME[.TABLE]",
        epilog="Examples:\n"
        "  %state\n"
        "  %state delays\n"
        "  %state delays.op0                 (Spark's own columns instead of the query's)\n"
        "  %state delays at 12 --by count --limit 5\n"
        "  %state delays at live --where \"carrier = 'UA' and count > 10\"\n"
        "  %state delays key carrier=UA origin=JFK\n"
        "  %state rotations.op0_legs diff live-10 live -o changes\n"
        "  %state delays why 12 carrier=HA origin=JFK\n"
        "  %state delays late                (late rows over the newest 50 epochs)\n"
        "  %state delays load --state 10GB   (and when the state reaches 10 GB)\n"
        "  %state delays why-policy 12\n"
        "  %state delays timeline\n"
        "  %state delays publish --to partner --where \"origin = 'JFK'\"\n"
        "  %state contracts                  (of all queries)\n"
        '  late = %state delays at 12 --where "max > 60"',
    )
    parser.add("name", metavar="NAME[.TABLE]", nargs="?", completes="relation", help="a query, or one of its tables")
    add_store(parser)
    add_output(parser, "keep the view in a variable")
    return parser


def _run(notebook: NotebookContext, args: argparse.Namespace, _cell: str) -> Any:
    __tracebackhide__ = True
    from streamstate import widgets

    view: Any
    query, table = split(args.name)
    store = notebook.open(args.store, query, args.storage_options)
    with loading(notebook.shell):
        if query is None:
            view = widgets.StoreOverview(store)
        else:
            history = store[query]
            view = widgets.StateBrowser(history, shown_table(history, table))
    notebook.assign(args.output, view)
    return view


STATE = Magic("line", "state", _parser(), _run, python=("Store.overview", "widgets.StateBrowser"))
