"""``streamstate compact``: merge the small files of a query."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from streamstate.command_line.arguments import add_json, add_query, add_store, storage_options
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_rows

_COLUMNS = ("table", "files_before", "files_after", "bytes_before", "bytes_after", "deleted")


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    add_json(parser, f"an object for each table: {', '.join(_COLUMNS)}")


def _run(given: argparse.Namespace) -> int:
    from streamstate.snapshots.store.retention.tidying import compact

    tables = compact(given.store, given.name, storage_options=storage_options(given))
    print_rows(_COLUMNS, [list(asdict(table).values()) for table in tables], as_json=given.json)
    return FINE


COMPACT = Command(
    "compact",
    "merge the small files of a query, and delete unused ones",
    "Merge the small files of a query's tables, sort them by key, and delete those past their grace period. Every "
    "epoch reads as before. Captures in the background compact from time to time by themselves.",
    """
    streamstate compact store delays
    """,
    _arguments,
    _run,
    ("History.compact",),
)
