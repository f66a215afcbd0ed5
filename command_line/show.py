"""``streamstate show``: the rows of a state table at an epoch."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import count, snapshot_at
from streamstate.command_line.arguments import add_at, add_json, add_query, add_store, add_table, history_of
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_state

if TYPE_CHECKING:
    from streamstate.state_inspect import StateTable


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    add_table(parser)
    add_at(parser)
    parser.add_argument("--where", metavar="SQL", help="only rows that fulfil this condition")
    parser.add_argument("--by", metavar="COL", help="the rows with the largest values of this column first")
    parser.add_argument("--limit", metavar="N", type=count, default=20, help="at most this many rows (default: 20)")
    add_json(parser, "an object for each row")


def _run(given: argparse.Namespace) -> int:
    history, by = history_of(given), given.by
    state = snapshot_at(history, "live" if given.at is None else given.at).table(given.table)
    rows = state.page_arrow(limit=given.limit, order_by=by, descending=by is not None, where=given.where)
    _say_how_many(state, given.where, rows.num_rows)
    print_state(state, rows, as_json=given.json)
    return FINE


def _say_how_many(state: StateTable, where: str | None, shown: int) -> None:
    """If there are more rows, say so beside the output, which may be for a program."""
    total = state.count(where=where)
    if shown < total:
        print(f"{shown} of {total:,} rows of {state.name} at epoch {state.epoch}; --limit shows more", file=sys.stderr)


SHOW = Command(
    "show",
    "show the rows of a state table at an epoch",
    "Show the first rows of a state table at an epoch, sorted by key.",
    """
    streamstate show store delays
    streamstate show store delays --at 12 --where "count > 100" --by count --limit 5
    streamstate show store delays --at 2026-03-01T12:00+01:00
    """,
    _arguments,
    _run,
    ("History.at",),
)
