"""``streamstate diff``: what changed in a state table between two epochs, and why."""

from __future__ import annotations

import argparse
import sys

from streamstate.command_line.argument_types import count, past_epoch
from streamstate.command_line.arguments import add_json, add_query, add_store, add_table, history_of
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_json, print_table


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    parser.add_argument("a", metavar="A", type=past_epoch, help="the epoch to compare from: 10, or live-10")
    parser.add_argument("b", metavar="B", type=past_epoch, help="the epoch to compare to: 12, or live")
    add_table(parser)
    parser.add_argument("--change", choices=("added", "removed", "changed"), help="only keys that changed in this way")
    parser.add_argument("--limit", metavar="N", type=count, default=20, help="at most this many keys (default: 20)")
    parser.add_argument("--count", action="store_true", help="print only how many keys were added, removed and changed")
    add_json(parser, "an object for each key; with --count one object: table, a, b, added, removed, changed")


def _run(given: argparse.Namespace) -> int:
    diff = history_of(given).diff(given.a, given.b, table=given.table)
    if given.count and given.json:
        print_json({"table": diff.table, "a": diff.a, "b": diff.b, **diff.counts})
        return FINE
    counted = ", ".join(f"{number:,} {change}" for change, number in diff.counts.items())
    # Beside the rows, if these are printed: they may be for a program.
    print(f"{diff.table} from epoch {diff.a} to {diff.b}: {counted}", file=sys.stdout if given.count else sys.stderr)
    if not given.count:
        print_table(diff.page_arrow(limit=given.limit, change=given.change), as_json=given.json)
    return FINE


DIFF = Command(
    "diff",
    "show what changed between two epochs",
    "Show which keys of a state table were added, removed or changed between two epochs: "
    "old and new values, the difference, the cause, and the epochs of the changes.",
    """
    streamstate diff store delays 10 12
    streamstate diff store delays live-1 live --change removed --json
    streamstate diff store delays 10 12 --count
    """,
    _arguments,
    _run,
    ("History.diff",),
)
