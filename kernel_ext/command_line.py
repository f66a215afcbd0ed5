"""The command ``streamstate``: ``streamstate serve STORE``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from streamstate.snapshots.errors import StreamStateError

__all__ = ["main"]

_LAST_PORT = 65_535


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: what stands after ``streamstate``; by default what the shell gave.

    Returns:
        0; 1 where it failed, with the reason on standard error; 2 where the arguments make no sense.

    Example:
        >>> main(["serve", "no such store", "--port", "0"])  # doctest: +SKIP
        1
    """
    given = _parser().parse_args(arguments)
    try:
        _serve(given)
    except StreamStateError as error:
        print(f"streamstate: {error}", file=sys.stderr)  # noqa: T201 (a command speaks to its terminal)
        return 1
    except KeyboardInterrupt:
        print("Stopped.")  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="streamstate", description="Explore the state of Spark streaming queries.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve", help="show a store as a page in the browser", description="Show a store as a page, read-only."
    )
    serve.add_argument("store", metavar="STORE", help="the folder or URI of the store")
    serve.add_argument("--port", type=_port, default=0, metavar="N", help="the port (default: one that is free)")
    serve.add_argument("--host", default="127.0.0.1", help="the address to serve at (default: this machine only)")
    who = serve.add_mutually_exclusive_group()
    who.add_argument("--token", metavar="T", help="what viewers must know (default: one that is made up)")
    who.add_argument("--no-token", action="store_true", help="let everyone on this machine look")
    serve.add_argument("--open", action="store_true", help="open a browser at the page")
    serve.add_argument(
        "--storage-option",
        action="append",
        default=[],
        type=_option,
        metavar="K=V",
        help="how to reach an object store, such as AWS_REGION=eu-central-1; may be given several times",
    )
    return parser


def _port(text: str) -> int:
    if text.isdecimal() and int(text) <= _LAST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to {_LAST_PORT}, 0 for any that is free")


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if name and equals:
        return name, value
    raise argparse.ArgumentTypeError(f"{text!r} is not K=V, such as AWS_REGION=eu-central-1")


def _serve(given: argparse.Namespace) -> None:
    """Serve until the terminal or the system says stop."""
    from streamstate.state_inspect import open_store
    from streamstate.widgets.page import serve

    store = open_store(given.store, storage_options=dict(given.storage_option) or None)
    token = "" if given.no_token else given.token
    signal.signal(signal.SIGTERM, _stop)
    with serve(store, port=given.port, host=given.host, token=token, open_browser=given.open) as server:
        print(f"{store.path} is served at\n\n    {server.url}\n\nCtrl+C stops it.", flush=True)  # noqa: T201
        server.wait()


def _stop(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
