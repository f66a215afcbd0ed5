"""What ``%state`` can do beside showing: serve a store as a page."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from streamstate.magics.arguments import MagicParser, add_output, port
from streamstate.magics.notebook import Notebook
from streamstate.magics.verb import Verb
from streamstate.snapshots.errors import InvalidArgumentError

__all__ = ["VERBS"]


def _serve_arguments(parser: MagicParser) -> None:
    parser.add("store", metavar="STORE", nargs="?", completes="store", help="the store (default: the last store used)")
    parser.add("--port", metavar="N", type=port, help="the port on this machine (default: one that is free)")
    parser.add("--stop", action="store_true", help="stop serving")
    add_output(parser, "keep the server in a variable")


def _serve(notebook: Notebook, args: argparse.Namespace) -> Any:
    """Serve a store, or say where it is served already."""
    __tracebackhide__ = True
    if args.stop:
        return _stop(notebook)
    path = notebook.store_path(args.store)
    served = notebook.served
    if served is not None and (served.path != path or args.port not in (None, served.port)):
        raise InvalidArgumentError(
            f"This notebook serves {served.path} already, at {served.server.url}\nStop that first: %state serve --stop"
        )
    if served is None:
        page: Any = importlib.import_module("streamstate.widgets.page")  # slow to load
        served = notebook.serving(path, page.serve(notebook.open(args.store), port=args.port or 0), args.port)
    print(f"{served.path} is served at {served.server.url}")
    notebook.assign(args.output, served.server)
    return None


def _stop(notebook: Notebook) -> None:
    if notebook.served is None:
        raise InvalidArgumentError("This notebook serves nothing: %state serve [STORE] begins to.")
    path = notebook.served.path
    for line in notebook.stop_serving() or [f"{path} is no longer served."]:
        print(line)


VERBS = (Verb("serve", "serve the store as a page in the browser, read-only", _serve_arguments, _serve),)
