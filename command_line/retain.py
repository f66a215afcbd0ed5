"""``streamstate retain``: drop older epochs of a query."""

from __future__ import annotations

import argparse

from streamstate.command_line.argument_types import count
from streamstate.command_line.arguments import add_json, add_query, add_store, storage_options
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_report
from streamstate.errors import InvalidArgumentError


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    parser.add_argument("--last", metavar="N", type=count, help="keep the N newest epochs")
    parser.add_argument(
        "--since",
        metavar="T",
        help="keep epochs committed since then: 2d, 3h, or a time such as 2026-03-01T12:00+01:00",
    )
    parser.add_argument("--one-in", metavar="N", type=count, help="of the others, keep the first of every N numbers")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be dropped")
    add_json(parser, "one object: query, store, dropped, kept, bytes_freed, files_deleted, dry_run")


def _run(given: argparse.Namespace) -> int:
    policy = {"last": given.last, "since": given.since, "one_in": given.one_in}
    if all(value is None for value in policy.values()):
        raise InvalidArgumentError(
            "retain needs at least one of --last 100, --since 2d and --one-in 10.\n"
            "An epoch stays if any of them keeps it. --dry-run says what would be dropped."
        )
    from streamstate.snapshots.store.retention.dropping import retain

    report = retain(
        given.store,
        given.name,
        **policy,
        dry_run=given.dry_run,
        storage_options=storage_options(given),
    )
    print_report(report, as_json=given.json)
    return FINE


RETAIN = Command(
    "retain",
    "drop older epochs of a query",
    "Drop older epochs of a query. Those that any of the options keeps read exactly as "
    "before, and so does the newest. Captures and readers are not disturbed.",
    """
    streamstate retain store delays --last 1000 --one-in 100 --dry-run
    streamstate retain store delays --since 7d
    """,
    _arguments,
    _run,
    ("History.retain",),
)
