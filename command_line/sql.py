"""``streamstate sql``: a statement over the state tables."""

from __future__ import annotations

import argparse
import sys

from streamstate.command_line.arguments import add_at, add_json, add_store, storage_options
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_table


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("sql", metavar="SQL", help="one SELECT statement in DuckDB's SQL; - reads it from the input")
    add_at(parser, "the epoch of relations that do not name one (default: the newest)")
    parser.add_argument("--files", action="store_true", help="let the statement read local files: FROM 'x.csv'")
    add_json(parser, "an object for each row")


def _run(given: argparse.Namespace) -> int:
    from streamstate.state_inspect import open_store

    text = sys.stdin.read() if given.sql == "-" else given.sql
    store = open_store(given.store, storage_options=storage_options(given))
    rows = store.sql(text, at=given.at, allow_files=given.files).to_arrow()
    print_table(rows, as_json=given.json)
    return FINE


SQL = Command(
    "sql",
    "run SQL over state, at any epoch",
    "Run SQL over the state tables. A query with one state table is a relation by its "
    "name; delays.op0 names one of several. VERSION AS OF 12 or TIMESTAMP AS OF '…' "
    "after a relation chooses its epoch. Only statements that read are allowed.",
    """
    streamstate sql store "SELECT carrier, max FROM delays VERSION AS OF 12 ORDER BY max DESC LIMIT 5"
    streamstate sql store "FROM delays.changes" --json | head
    streamstate sql store - < report.sql
    """,
    _arguments,
    _run,
    ("Store.sql",),
)
