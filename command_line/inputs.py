"""``streamstate inputs``: the rows that a source delivered in an epoch."""

from __future__ import annotations

import argparse
import sys

from streamstate.command_line.argument_types import count
from streamstate.command_line.arguments import add_epoch, add_json, add_query, add_store, history_of
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_frame
from streamstate.command_line.user_code import add_code, plan_by_code


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    add_epoch(parser)
    add_code(parser, "--code", mode=None, required=True)
    parser.add_argument(
        "--source", metavar="SOURCE", help="the source's name, its topic, or its place in the query from 0"
    )
    parser.add_argument("--limit", metavar="N", type=count, default=20, help="at most this many rows (default: 20)")
    add_json(parser, "an object for each row")


def _run(given: argparse.Namespace) -> int:
    from streamstate.state_inspect.inputs.shown_rows import fetched_frame

    history = history_of(given)
    epoch = history.at(given.epoch).epoch
    plan_by_code(history, given, epoch)
    rows = history.inputs(epoch, source=given.source)
    print_frame(fetched_frame(rows.limit(given.limit)), as_json=given.json)
    if (total := rows.count()) > given.limit:
        print(f"{given.limit} of {total:,} rows of epoch {epoch}; --limit shows more", file=sys.stderr)
    return FINE


INPUTS = Command(
    "inputs",
    "show the rows that a source delivered in an epoch",
    "Show the rows that a source of a query delivered in an epoch. Spark reads them from the source again; nothing is "
    "run or changed.",
    """
    streamstate inputs store delays 12 --code jobs.delays:build
    streamstate inputs store delays live --code jobs/delays.py:build --source 0 --limit 100 --json
    """,
    _arguments,
    _run,
    ("History.inputs",),
)
