"""The command ``streamstate``: ``streamstate serve STORE``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from streamstate.errors import InvalidArgumentError, StreamStateError, require_extra

_LAST_PORT = 65_535
_TOKEN = "STREAMSTATE_TOKEN"  # noqa: S105 (the variable's name)
_SEEN = "other users of this machine can see it in the list of processes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of the process or the one given; returns 1 if it failed, with the reason on standard error."""
    given = _parser().parse_args(arguments)
    try:
        _serve(given)
    except StreamStateError as error:
        print(f"streamstate: {error}", file=sys.stderr)  # noqa: T201 (a command prints)
        return 1
    except KeyboardInterrupt:
        print("Stopped.")  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="streamstate", description="Explore the state of Spark streaming queries.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve", help="serve a store as a web page", description="Serve a store as a web page, read-only."
    )
    serve.add_argument("store", metavar="STORE", help="the folder or URI of the store")
    serve.add_argument("--port", type=_port, default=0, metavar="N", help="the port (default: a free one)")
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine only)")
    who = serve.add_mutually_exclusive_group()
    who.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"a file with the access token (default: the environment variable {_TOKEN}, or a random token)",
    )
    who.add_argument("--token", metavar="T", help=f"the access token on the command line, where {_SEEN}")
    who.add_argument("--no-token", action="store_true", help="give everyone on this machine access")
    serve.add_argument("--open", action="store_true", help="open the page in a browser")
    serve.add_argument(
        "--allow-origin", metavar="URL", help="the URL of the page behind a proxy: https://state.example.com"
    )
    serve.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate (PEM)")
    serve.add_argument("--tls-key", metavar="FILE", help="the key of the certificate (PEM)")
    serve.add_argument(
        "--storage-options-file",
        metavar="FILE",
        help="options for an object store, one K=V per line; AWS_… can also be environment variables",
    )
    serve.add_argument(
        "--storage-option",
        action="append",
        default=[],
        type=_option,
        metavar="K=V",
        help=f"an option such as AWS_REGION=eu-central-1; can be repeated. Not for secrets: {_SEEN}",
    )
    return parser


def _port(text: str) -> int:
    if text.isdecimal() and int(text) <= _LAST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"invalid port {text!r}: expected a number from 0 to {_LAST_PORT}; 0 chooses a free one"
    )


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if name and equals:
        return name, value
    # The text may be a secret, so the message does not repeat it.
    raise argparse.ArgumentTypeError("expected K=V, such as AWS_REGION=eu-central-1")


def _token(given: argparse.Namespace) -> str | None:
    """The access token; empty: none is required, None: a random one."""
    if given.no_token:
        return ""
    for where, token in (
        ("--token", given.token),
        (f"--token-file {given.token_file}", None if given.token_file is None else _read(given.token_file).strip()),
        (_TOKEN, os.environ.get(_TOKEN)),
    ):
        if token == "":
            raise InvalidArgumentError(
                f"The token of {where} is empty.\nSet one, or leave it out for a random token; --no-token gives"
                " everyone on this machine access."
            )
        if token is not None:
            return token
    return None


def _storage_options(given: argparse.Namespace) -> dict[str, str] | None:
    """Options for an object store, from the file and from the command line."""
    lines = [] if given.storage_options_file is None else _read(given.storage_options_file).splitlines()
    options = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not (name and equals):
            raise InvalidArgumentError(
                f"Invalid line {number} of {given.storage_options_file}: expected K=V, such as AWS_REGION=eu-central-1."
            )
        options[name] = value
    return {**options, **dict(given.storage_option)} or None


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error}") from error


def _serve(given: argparse.Namespace) -> None:
    """Serve until interrupted or terminated."""
    require_extra("notebook")
    from streamstate.snapshots.memory import set_plain_memory

    set_plain_memory(on=True)  # this process is ours; before deltalake and pyarrow are imported
    from streamstate.state_inspect import open_store
    from streamstate.widgets.page import serve

    token = _token(given)
    store = open_store(given.store, storage_options=_storage_options(given))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with serve(
        store,
        port=given.port,
        host=given.host,
        token=token,
        open_browser=given.open,
        allow_origin=given.allow_origin,
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
    ) as server:
        print(f"Serving {store.path} at\n\n    {server.url}\n\nPress Ctrl+C to stop.", flush=True)  # noqa: T201
        server.wait()
