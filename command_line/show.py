"""``streamstate show``: the rows of a state table at an epoch, or what happened to one key."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import KEY_HELP, count
from streamstate.command_line.arguments import add_json, add_query, add_store, add_table, storage_options
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_rows
from streamstate.errors import InvalidArgumentError

if TYPE_CHECKING:
    from streamstate.state_inspect import History, Snapshot, StateTable


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    add_table(parser)
    parser.add_argument(
        "--at", metavar="EPOCH", help="12, live-10, or a time such as 2026-03-01T12:00+01:00 (default: the newest)"
    )
    parser.add_argument("--key", metavar="COL=VALUE", action="append", help=KEY_HELP)
    parser.add_argument("--history", action="store_true", help="every change of the key given with --key")
    parser.add_argument("--where", metavar="SQL", help="only rows that fulfil this condition")
    parser.add_argument("--by", metavar="COL", help="the rows with the largest values of this column first")
    parser.add_argument("--limit", metavar="N", type=count, default=20, help="at most this many rows (default: 20)")
    add_json(parser, "an object for each row")


def _run(given: argparse.Namespace) -> int:
    from streamstate.state_inspect import open_store
    from streamstate.state_inspect.expiry_times import expiry_columns, rows_with_times
    from streamstate.state_inspect.keys.key_text import in_shell

    if given.history and given.at:
        raise InvalidArgumentError("--history returns all epochs: leave --at out.")
    history = open_store(given.store, storage_options=storage_options(given))[given.name]
    state = _snapshot(history, given.at).table(given.table)
    if given.history:
        key = state.table_key.read(given.key or [], whole=False, spelling=in_shell)
        rows = history.key_history_arrow(state.name, key=key)
    elif given.key:
        rows = state.lookup_many_arrow([state.table_key.read(given.key, spelling=in_shell)])
    else:
        by = given.by
        rows = state.page_arrow(limit=given.limit, order_by=by, descending=by is not None, where=given.where)
        _say_how_many(state, given.where, rows.num_rows)
    expiring = frozenset() if given.json else expiry_columns(history.recorded, state.name)
    print_rows(rows.column_names, rows_with_times(rows, expiring), as_json=given.json)
    return FINE


def _snapshot(history: History, at: str | None) -> Snapshot:
    from streamstate.state_inspect.epoch_names import moment

    if at is None:
        return history.live()
    named = moment(at)
    if isinstance(named, datetime):
        return history.at(timestamp=named)
    return history.at(named if isinstance(named, int) else at)


def _say_how_many(state: StateTable, where: str | None, shown: int) -> None:
    """If there are more rows, say so beside the output, which may be for a program."""
    total = state.count(where=where)
    if shown < total:
        print(f"{shown} of {total:,} rows of {state.name} at epoch {state.epoch}; --limit shows more", file=sys.stderr)


SHOW = Command(
    "show",
    "show the rows of a state table at an epoch, or one key",
    "Show the first rows of a state table at an epoch, sorted by key; or one key, or\neverything that happened to it.",
    """
    streamstate show store delays
    streamstate show store delays --at 12 --where "count > 100" --by count --limit 5
    streamstate show store delays --key carrier=UA --key origin=EWR --history
    """,
    _arguments,
    _run,
)
