"""``streamstate share``: publish state to others, look after contracts and tokens, and serve them."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from streamstate.command_line.argument_types import count, epoch, port
from streamstate.command_line.arguments import add_json, add_query, add_store, storage_options
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_rows
from streamstate.errors import InvalidArgumentError, require_extra

if TYPE_CHECKING:
    from streamstate.sharing.contract import Contract
    from streamstate.sharing.metering import Reading
    from streamstate.sharing.suggestion import Suggestion
    from streamstate.state_inspect import History, Store

_READ = ("rows", "epochs", "newest", "read_at", "cost")
_LISTED = (
    *("contract", "to", "state", "version", "query", "tables", "since", "until", "freshness", "keep", "price", "at"),
    *("suggestion", "number", "suggested", *_READ),
)
_FOR_PEOPLE = ("contract", "to", "state", "version", "tables", "until", "suggestion", *_READ)
_TERMS = ("table", "columns", "where", *_READ)


def _arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB", dest="verb")
    add = verbs.add_parser("add", help="publish a query's state to a recipient, or change the terms")
    add_store(add)
    add_query(add)
    add_terms(add.add_argument)
    _profile(add, required=False)
    ls = verbs.add_parser("ls", help="list the contracts, with what was read and what is suggested")
    add_store(ls)
    add_json(ls, f"an object for each contract: {', '.join(_LISTED)}")
    show = verbs.add_parser("show", help="show the terms of a contract, what was read, and what is suggested")
    _contract(show)
    add_json(show, f"an object for each granted table: {', '.join(_TERMS)}")
    for verb, what in (("accept", "put the terms into force that"), ("refuse", "refuse the terms that")):
        answer = verbs.add_parser(verb, help=f"{what} the recipient suggests")
        _contract(answer)
        answer.add_argument(
            "--suggestion", type=count, metavar="N", help="only if the open suggestion has this number, as `show` says"
        )
    revoke = verbs.add_parser("revoke", help="end a contract at once, or all tokens of a recipient")
    _contract(revoke, nargs="?")
    revoke.add_argument("--tokens", action="store_true", help="end the tokens of --to, and keep its contracts")
    rotate = verbs.add_parser("rotate", help="issue another token to a recipient")
    add_store(rotate)
    rotate.add_argument("to", metavar="RECIPIENT", help="the recipient")
    rotate.add_argument("--overlap", default="24h", metavar="T", help="how long the old token stays valid (24h)")
    _profile(rotate, required=True)
    serve = verbs.add_parser("serve", help="serve what a store shares, until interrupted or terminated")
    add_store(serve)
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine only)")
    serve.add_argument("--port", type=port, metavar="N", help="the port (default: 8720)")
    serve.add_argument("--url", metavar="URL", help="the endpoint as recipients reach it, such as that of a proxy")
    serve.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate (PEM)")
    serve.add_argument("--tls-key", metavar="FILE", help="the key of the certificate (PEM)")
    serve.add_argument("--rate", type=float, default=50.0, metavar="N", help="requests a second and recipient (50)")
    serve.add_argument("--rows-a-day", type=count, metavar="N", help="rows a day and recipient (default: any number)")


def add_terms(add: Callable[..., object]) -> None:
    """Add the terms of a contract to a command, or to a magic."""
    add("--to", required=True, metavar="RECIPIENT", help="who may read it")
    add("--contract", metavar="NAME", help="the contract's name (default: the query's)")
    add("--table", action="append", metavar="T", help="a state table to grant (default: the result); may be repeated")
    add("--columns", metavar="C,C", help="the granted columns (default: all)")
    add("--where", metavar="SQL", help="a condition on the granted rows")
    add("--result", action="store_true", help="grant the result beside the tables that are named")
    add("--since", type=epoch, metavar="N", help="the first granted epoch (default: all)")
    add("--until", metavar="T", help="when the contract ends: 30d, or a time with its zone")
    add("--freshness", metavar="T", help="within how long an epoch is promised to be visible: 5m")
    add("--keep", metavar="T", help="for how long an epoch is granted: 30d")
    add("--price", type=float, metavar="X", help="the price of a million rows")


def published(history: History, given: argparse.Namespace) -> Contract:
    """Publish a query's state under the terms that were given."""
    return history.publish(
        given.to,
        name=given.contract,
        tables=given.table,
        columns=None if given.columns is None else given.columns.split(","),
        where=given.where,
        result=given.result or None,
        since=given.since,
        until=given.until,
        freshness=given.freshness,
        keep=given.keep,
        price=given.price,
    )


def _contract(parser: argparse.ArgumentParser, **how: Any) -> None:
    add_store(parser)
    parser.add_argument("name", metavar="CONTRACT", help="the contract", **how)
    parser.add_argument("--to", metavar="RECIPIENT", help="its recipient, if several have one of that name")


def _profile(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--profile", required=required, metavar="FILE", help="write a profile with a new token, which opens the share"
    )
    parser.add_argument(
        "--endpoint", metavar="URL", help="the server's URL in the profile, as the recipient reaches it"
    )
    parser.add_argument("--lasts", default="90d", metavar="T", help="how long the token is valid (90d)")


def _run(given: argparse.Namespace) -> int:
    if given.verb == "serve":
        from streamstate.snapshots.capture.allocator_settings import set_plain_memory

        set_plain_memory(on=True)  # this process is ours; before deltalake and pyarrow are imported
    from streamstate.state_inspect import open_store

    store = open_store(given.store, storage_options=storage_options(given))
    _VERBS[given.verb](given, store)
    return FINE


def _add(given: argparse.Namespace, store: Store) -> None:
    contract = published(store[given.name], given)
    print(contract)
    if given.profile is not None:
        contract.profile(_endpoint(given), given.profile, lasts=given.lasts)
        print(f"{given.profile} opens it. Send it to {given.to} on a safe way: its token is shown nowhere else.")


def _endpoint(given: argparse.Namespace) -> str:
    if given.endpoint is not None:
        return str(given.endpoint)
    from streamstate.sharing.server import ENDPOINT, PORT

    return f"http://127.0.0.1:{PORT}{ENDPOINT}"


def _ls(given: argparse.Namespace, store: Store) -> None:
    contracts = store.contracts()
    found, names = contracts.readings(), _LISTED if given.json else _FOR_PEOPLE
    rows = [_listed(contract, found.get((contract.to, contract.name))) for contract in contracts]
    print_rows(names, [[row[name] for name in names] for row in rows], as_json=given.json)


def _listed(contract: Contract, reading: Reading | None) -> dict[str, Any]:
    terms, suggestion = contract.terms, contract.suggestion
    return {
        "contract": contract.name,
        "to": contract.to,
        "state": contract.state,
        "version": contract.version,
        "query": terms.query,
        "tables": [table.name for table in terms.tables],
        "at": contract.at,
        **{name: getattr(terms, name) for name in ("since", "until", "freshness", "keep", "price")},
        "suggestion": None if suggestion is None else suggestion.state,
        "number": None if suggestion is None else suggestion.number,
        "suggested": None if suggestion is None else json.loads(suggestion.terms.to_json()),
        **dict(zip(_READ, _read(reading), strict=True)),
    }


def _read(reading: Reading | None) -> list[Any]:
    """Return what was read: rows, epochs, the newest of these, when last, and the cost."""
    return [0, 0, None, None, 0.0] if reading is None else [*asdict(reading).values()]


def _show(given: argparse.Namespace, store: Store) -> None:
    from streamstate.sharing.metering import Reading, readings

    contract = _of(given, store)
    key, by_table = (contract.to, contract.name), readings(store.layout, by=("recipient", "contract", "table"))
    found = {table: reading for (to, name, table), reading in by_table.items() if (to, name) == key}
    granted = {table.name: [list(table.columns), table.where] for table in contract.terms.tables}
    rows = [
        [name, *granted.get(name, [None, None]), *_read(found.get(name))] for name in dict.fromkeys([*granted, *found])
    ]
    print_rows(_TERMS, rows, as_json=given.json)
    if not given.json:
        reading = store.contracts().readings().get(key, Reading())
        print(f"{contract}\nGranted so far: {reading.rows:,} rows of {reading.epochs:,} epochs.")
        if contract.suggestion is not None:
            print(_suggested(contract, contract.suggestion, given.store))


def _suggested(contract: Contract, suggestion: Suggestion, store: str) -> str:
    """Return what the recipient suggests, and how to accept it."""
    from streamstate.sharing.contract_list import change_texts

    texts = "".join(f"\n  {text}" for text in change_texts(suggestion.terms, contract if suggestion.is_open else None))
    about = f"Suggestion {suggestion.number} of {contract.to}, {suggestion.state}:{texts}"
    if not suggestion.is_open:
        return about
    line = f"{shlex.quote(store)} {contract.name} --to {contract.to} --suggestion {suggestion.number}"
    return f"{about}\nAccept it: streamstate share accept {line}"


def _answer(given: argparse.Namespace, store: Store) -> None:
    contract = _of(given, store)
    number = None if contract.suggestion is None else contract.suggestion.number
    if given.suggestion is not None and given.suggestion != number:
        raise InvalidArgumentError(
            f"The newest suggestion of {contract.to} is {'none' if number is None else f'number {number}'}.\n"
            f"Look at it: streamstate share show {shlex.quote(given.store)} {contract.name} --to {contract.to}"
        )
    print(contract.accept() if given.verb == "accept" else contract.refuse())


def _of(given: argparse.Namespace, store: Store) -> Contract:
    from streamstate.sharing.contracts import Contracts

    return Contracts(store.layout).of(given.name, given.to)


def _revoke(given: argparse.Namespace, store: Store) -> None:
    if given.tokens == (given.name is not None) or (given.tokens and given.to is None):
        raise InvalidArgumentError("Name a contract to revoke, or a recipient: --to RECIPIENT --tokens.")
    if given.tokens:
        from streamstate.sharing.recipients import Recipients

        Recipients(store.layout).revoke(given.to)
        print(f"The tokens of {given.to} are not valid any more.")
    else:
        print(_of(given, store).revoke())


def _rotate(given: argparse.Namespace, store: Store) -> None:
    from streamstate.sharing.recipients import issue_profile

    issue_profile(store.layout, given.to, _endpoint(given), given.profile, lasts=given.lasts, overlap=given.overlap)
    print(f"{given.profile} has a new token of {given.to}. The old one stays valid for {given.overlap}.")


def _serve(given: argparse.Namespace, store: Store) -> None:
    require_extra("notebook")
    from streamstate.sharing.request_handler import Limits
    from streamstate.sharing.server import PORT, serve

    if (given.tls_cert is None) != (given.tls_key is None):
        raise InvalidArgumentError("--tls-cert and --tls-key belong together.")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with serve(
            store,
            host=given.host,
            port=PORT if given.port is None else given.port,
            url=given.url,
            certificate=None if given.tls_cert is None else (given.tls_cert, given.tls_key),
            limits=Limits(given.rate, given.rows_a_day),
        ) as server:
            print(f"Serving the shares of {store.path} at\n\n    {server.url}\n\nPress Ctrl+C to stop.", flush=True)
            server.wait()
    except KeyboardInterrupt:
        print("Stopped.")


_VERBS = {
    "add": _add,
    "ls": _ls,
    "show": _show,
    "accept": _answer,
    "refuse": _answer,
    "revoke": _revoke,
    "rotate": _rotate,
    "serve": _serve,
}

SHARE = Command(
    "share",
    "publish state to others, and serve it",
    "Publish a query's state to others by contracts, and serve it with the open protocol of Delta Sharing: to pandas,"
    " Spark, Power BI and other streamstates. Nothing but what a contract grants leaves the store.",
    """
    streamstate share add store delays --to partner --where "origin = 'JFK'" --profile partner.share
    streamstate share serve store --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    streamstate share ls store
    streamstate share accept store delays
    streamstate share revoke store delays
    """,
    _arguments,
    _run,
    ("History.publish", "Store.contracts", "sharing.serve"),
)
