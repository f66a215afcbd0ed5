"""``streamstate load``: what a query has to do in each epoch, whether it keeps up, and where that leads."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from streamstate.command_line.argument_types import count, state_limit
from streamstate.command_line.arguments import add_json, add_query, add_store, history_of
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_frame, print_json

_LISTED = 20


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    parser.add_argument(
        "--last", metavar="N", type=count, default=_LISTED, help=f"list the newest N epochs (default: {_LISTED})"
    )
    parser.add_argument(
        "--state", metavar="LIMIT", type=state_limit, help="forecast when the state has 10GB, or so many rows"
    )
    parser.add_argument("--backlog", metavar="ROWS", type=count, help="forecast when so many rows wait in the sources")
    add_json(parser, "an object for each epoch, with the columns of Load.to_pandas; with a limit, one for its forecast")


def _run(given: argparse.Namespace) -> int:
    load = history_of(given).load()
    limits = {"state": given.state, "backlog": given.backlog}
    forecasts = [load.forecast(**{name: limit}) for name, limit in limits.items() if limit is not None]
    if given.json and forecasts:
        for found in forecasts:
            print_json(asdict(found))
        return FINE
    epochs = load.to_pandas().tail(given.last)
    if given.json:
        print_frame(epochs, as_json=True)
        return FINE
    print_frame(epochs.dropna(axis="columns", how="all").round(3), as_json=False)
    for sentence in [*map(str, forecasts), *load.unknown]:
        print(sentence)
    return FINE


LOAD = Command(
    "load",
    "show whether a query keeps up, and when its state or backlog reaches a limit",
    "Show for each epoch how long it took, what came and was processed, what waits in the sources, and the size of "
    "the state; with a limit, when it is reached at this trend. What Spark reports is known of epochs that were "
    "captured in the query's process, the rest as far as the checkpoint tells. Only the store is read.",
    """
    streamstate load store delays
    streamstate load store delays --state 10GB
    streamstate load store delays --json --last 1000 | jq 'select(.seconds > 5) | .epoch'
    """,
    _arguments,
    _run,
    ("History.load",),
)
