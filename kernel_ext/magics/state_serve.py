"""``%state serve``: a store as a read-only page in the browser, served by the notebook."""

from __future__ import annotations

import argparse

from streamstate.command_line.argument_types import port
from streamstate.errors import InvalidArgumentError
from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.notebook_context import NotebookContext, ServedStore
from streamstate.magics.state_rows import split


def _arguments(parser: MagicParser) -> None:
    parser.add("store", metavar="STORE", nargs="?", completes="store", help="the store (default: the last store used)")
    parser.add("--port", metavar="N", type=port, help="the port on this machine (default: any free port)")
    parser.add("--stop", action="store_true", help="stop serving")
    add_output(parser, "keep the server in a variable")


def _serve(notebook: NotebookContext, args: argparse.Namespace) -> None:
    """Serve a store, or show where it is already served."""
    __tracebackhide__ = True
    if args.stop:
        _stop_serving(notebook)
        return
    query, _ = split(args.name)
    path = notebook.store_path(args.store, query)
    served = notebook.served
    if served is not None and (served.path != path or args.port not in (None, served.port)):
        raise InvalidArgumentError(
            f"This notebook already serves {served.path} at {served.server.url}\nStop that first: %state serve --stop"
        )
    if served is None:
        from streamstate.widgets.page import serve

        server = serve(notebook.open(args.store, query), port=args.port or 0)
        served = notebook.served = ServedStore(path, server, args.port)
    print(f"{served.path} is served at {served.server.url}")
    notebook.assign(args.output, served.server)


def _stop_serving(notebook: NotebookContext) -> None:
    if notebook.served is None:
        raise InvalidArgumentError("This notebook serves no store. %state serve [STORE] serves one.")
    path = notebook.served.path
    for line in notebook.stop_serving() or [f"{path} is no longer served."]:
        print(line)


SERVE = Verb("serve", "serve the store as a read-only page in the browser", _arguments, _serve, "widgets.page.serve")
