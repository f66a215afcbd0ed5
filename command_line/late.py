"""``streamstate late``: the rows that were dropped because the watermark had passed them."""

from __future__ import annotations

import argparse

from streamstate.command_line.argument_types import epoch_or_epochs
from streamstate.command_line.arguments import add_json, add_query, add_store, add_table, history_of
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_frame, print_json, shown_rows
from streamstate.command_line.user_code import add_code, plan_by_code


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    parser.add_argument(
        "epoch",
        metavar="EPOCH",
        nargs="?",
        type=epoch_or_epochs,
        help="the epoch: 12, or live-10; several, such as 40..49, or none for the newest 50: a row for each",
    )
    add_table(parser, "a state table of the operator (default: the operator that the sources' rows reach first)")
    add_code(parser, "--code", mode=None, required=True)
    add_json(
        parser,
        "of one epoch one object: epoch, operator, watermark, came, dropped, groups and rows (the first 200 of each"
        " side); of several an object for each",
    )


def _run(given: argparse.Namespace) -> int:
    history = history_of(given)
    several = given.epoch is None or ".." in str(given.epoch)
    epoch = history.at("live" if several else given.epoch).epoch
    plan_by_code(history, given, epoch)
    if several:
        print_frame(history.late_counts(given.epoch, given.table), as_json=given.json)
        return FINE
    late = history.late(epoch, given.table)
    if given.json:
        facts = {name: getattr(late, name) for name in ("epoch", "operator", "watermark", "came", "groups")}
        print_json({**facts, "dropped": late.count(), "rows": shown_rows(late)})
    else:
        print(late)
    return FINE


LATE = Command(
    "late",
    "show the rows that were dropped because they came too late",
    "Show the rows that an operator dropped in an epoch because the watermark had passed them, how late each was, and "
    "the delay that would have kept them; of several epochs, how many. Spark reads the input again from the query's "
    "sources; nothing is changed.",
    """
    streamstate late store delays 12 --code jobs.delays:build
    streamstate late store delays 40..49 --code jobs/delays.py:build --json
    streamstate late store delays --code jobs.delays:build
    """,
    _arguments,
    _run,
    ("History.late",),
)
