"""``streamstate ls``: the queries of a store, or the epochs of a query, from the manifest alone."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streamstate.commands.arguments import add_json, add_store, storage_options
from streamstate.commands.command import FINE, Command
from streamstate.commands.output import print_rows

if TYPE_CHECKING:
    from streamstate.snapshots.layout import Layout
    from streamstate.snapshots.manifest import Manifest

_QUERIES = ("query", "epochs", "gaps", "newest", "committed_at", "rows", "checkpoint")
_EPOCHS = ("epoch", "status", "committed_at", "watermark", "input_rows", "rows", "changes")


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("name", metavar="NAME", nargs="?", help="a query, to list its epochs")
    add_json(parser, f"an object for each row: {', '.join(_QUERIES)}; with NAME {', '.join(_EPOCHS)}")


def _run(given: argparse.Namespace) -> int:
    # Not through the history, which loads what reading state needs.
    from streamstate.snapshots.layout import Layout

    layout = Layout.at(given.store, storage_options(given))
    if given.name is None:
        print_rows(_QUERIES, _queries(layout), as_json=given.json)
    else:
        print_rows(_EPOCHS, _epochs(layout, given.name), as_json=given.json)
    return FINE


def _queries(layout: Layout) -> Iterator[list[Any]]:
    from streamstate.snapshots.registry import read_queries, require_store

    for query in read_queries(require_store(layout), layout).values():
        manifest = _manifest(layout, query.name)
        captured = sum(entry.captured for entry in manifest.entries)
        newest = manifest.newest
        state = (
            [newest.epoch, newest.committed_at, {name: facts.rows for name, facts in newest.tables.items()}]
            if newest
            else [None, None, {}]
        )
        yield [query.name, captured, len(manifest.entries) - captured, *state, query.checkpoint]


def _epochs(layout: Layout, name: str) -> Iterator[list[Any]]:
    from streamstate.snapshots.registry import required_query

    required_query(layout, name)
    for entry in _manifest(layout, name).entries:
        rows = {table: facts.rows for table, facts in entry.tables.items()}
        changes = {table: facts.changes for table, facts in entry.tables.items()}
        yield [entry.epoch, entry.status, entry.committed_at, entry.watermark, entry.input_rows, rows, changes]


def _manifest(layout: Layout, name: str) -> Manifest:
    from streamstate.snapshots.manifest import Manifest

    manifest = Manifest(layout, name)
    manifest.refresh()
    return manifest


LS = Command(
    "ls",
    "list the queries of a store, or the epochs of a query",
    "List the queries of a store, one a line, with their newest epochs; or all epochs\nof one query.",
    """
    streamstate ls store
    streamstate ls store delays
    streamstate ls store delays --json | jq 'select(.status == "gap") | .epoch'
    """,
    _arguments,
    _run,
)
