"""``streamstate serve``: a store as a web page."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import port
from streamstate.command_line.arguments import SEEN, add_store, read_text, storage_options
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.user_code import loaded, place_of
from streamstate.errors import InvalidArgumentError, choices, require_extra

if TYPE_CHECKING:
    from streamstate.state_inspect import Store

_TOKEN = "STREAMSTATE_TOKEN"  # noqa: S105 (the variable's name)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("--port", type=port, default=0, metavar="N", help="the port (default: a free one)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine only)")
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"a file with the access token (default: the environment variable {_TOKEN}, or a random token)",
    )
    who.add_argument("--token", metavar="T", help=f"the access token on the command line, where {SEEN}")
    who.add_argument("--no-token", action="store_true", help="give everyone on this machine access")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--allow-origin", metavar="URL", help="the URL of the page behind a proxy: https://state.example.com"
    )
    parser.add_argument(
        "--code",
        action="append",
        default=[],
        type=_code,
        metavar="[QUERY=]MODULE:FUNCTION",
        help="the code of a query, for a second address on which its owner sees the input behind changes; may be"
        " repeated, and starts Spark",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="the key of the certificate (PEM)")


def _code(text: str) -> tuple[str | None, str, str]:
    """The name of a query, if it is given, and the place of its code."""
    name, equals, place = text.rpartition("=")
    return (name if equals else None, *place_of(place))


def plan_queries(store: Store, codes: Iterable[tuple[str | None, str, str]]) -> None:
    """Plan queries of a store in this process, so that their input can be read.

    Raises:
        InvalidArgumentError: the code has no name although there are several queries, or cannot be loaded.
        UnknownQueryError: the store has no such query.
        QueryError: the code is not that of the query.
    """
    from streamstate.snapshots.spark.session import session
    from streamstate.snapshots.store.query_plans.describe import plan_here
    from streamstate.snapshots.store.query_plans.plan_table import Plans
    from streamstate.snapshots.store.registry import required_query

    session()
    for given, module, function in codes:
        names = store.queries()
        if given is None and len(names) != 1:
            raise InvalidArgumentError(
                f"The store has several queries: {choices(names)}.\nName the one that the code is of:"
                f" --code QUERY={module}:{function}"
            )
        name = given or names[0]
        required_query(store.layout, name)
        recorded = Plans(store.layout, name).recorded()
        epoch = recorded[-1].since if recorded else 0
        build_query = loaded(module, function)
        try:
            plan_here(store.layout, name, build_query, mode=None, epoch=epoch)
        except InvalidArgumentError as error:  # the output mode is not known
            raise InvalidArgumentError(
                f"{error}\nRecord it first: streamstate capture CHECKPOINT --store {store.path} --code … --mode append"
            ) from None


def token(given: argparse.Namespace) -> str | None:
    """The access token; empty: none is required, None: a random one."""
    if given.no_token:
        return ""
    for where, text in (
        ("--token", given.token),
        (f"--token-file {given.token_file}", None if given.token_file is None else read_text(given.token_file).strip()),
        (_TOKEN, os.environ.get(_TOKEN)),
    ):
        if text == "":
            raise InvalidArgumentError(
                f"The token of {where} is empty.\nSet one, or leave it out for a random token; --no-token gives"
                " everyone on this machine access."
            )
        if text is not None:
            return text
    return None


def _run(given: argparse.Namespace) -> int:
    """Serve until interrupted or terminated."""
    require_extra("notebook")
    from streamstate.snapshots.capture.allocator_settings import set_plain_memory

    set_plain_memory(on=True)  # this process is ours; before deltalake and pyarrow are imported
    from streamstate.state_inspect import open_store
    from streamstate.widgets.page import serve

    access = token(given)
    store = open_store(given.store, storage_options=storage_options(given))
    if given.code:
        plan_queries(store, given.code)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with serve(
            store,
            port=given.port,
            host=given.host,
            token=access,
            open_browser=given.open,
            allow_origin=given.allow_origin,
            tls_cert=given.tls_cert,
            tls_key=given.tls_key,
            why=bool(given.code),
        ) as server:
            owner = f"With the input behind changes, for you alone:\n\n    {server.owner_url}\n\n" if given.code else ""
            print(f"Serving {store.path} at\n\n    {server.url}\n\n{owner}Press Ctrl+C to stop.", flush=True)
            server.wait()
    except KeyboardInterrupt:
        print("Stopped.")
    return FINE


SERVE = Command(
    "serve",
    "serve a store as a web page",
    "Serve a store as a web page, read-only, until interrupted or terminated.",
    """
    streamstate serve store
    streamstate serve store --code delays=jobs/delays.py:build
    streamstate serve store --port 8000 --token-file token --allow-origin https://state.example.com
    """,
    _arguments,
    _run,
    ("widgets.page.serve",),
)
