"""``streamstate export``: epochs as the versions of an ordinary Delta table."""

from __future__ import annotations

import argparse

from streamstate.command_line.arguments import add_json, add_query, add_store, add_table, storage_options
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_report


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    parser.add_argument("--to", metavar="PATH", required=True, help="the folder or URI of the Delta table")
    add_table(parser)
    parser.add_argument("--epochs", metavar="LIST", help="such as 3,5,10..20 (default: all captured epochs)")
    add_json(parser, "one object: path, table, epochs, written, rows")


def _run(given: argparse.Namespace) -> int:
    from streamstate.snapshots.store.export import export

    report = export(
        given.store,
        given.name,
        given.to,
        table=given.table,
        epochs=given.epochs,
        storage_options=storage_options(given),
    )
    print_report(report, as_json=given.json)
    return FINE


EXPORT = Command(
    "export",
    "write epochs as the versions of a Delta table",
    "Write epochs of a state table as an ordinary Delta table: version i holds exactly "
    "the state at the i-th of them. Repeated, it continues after the last version.",
    """
    streamstate export store delays --to exported/delays
    streamstate export store delays --to exported/delays --epochs 3,5,10..20
    """,
    _arguments,
    _run,
    ("History.export",),
)
