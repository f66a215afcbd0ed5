"""``streamstate ls``: the queries of a store, or the epochs of a query."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from streamstate.command_line.arguments import add_json, add_store, storage_options
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_rows

if TYPE_CHECKING:
    from streamstate.state_inspect import Store
    from streamstate.state_inspect.captured_query import CapturedQuery

_Counts = Callable[[Mapping[str, int | None]], object]
"""How counts by state table are printed."""
_QUERIES = (
    *("query", "epochs", "gaps", "newest", "committed_at", "rows", "changes", "behind", "watermark", "bytes"),
    *("version", "replaced_by", "checkpoint", "problem"),
)
_EPOCHS = ("epoch", "status", "committed_at", "watermark", "input_rows", "rows", "changes", "read")


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("name", metavar="NAME", nargs="?", help="a query, to list its epochs")
    add_json(parser, f"an object for each row: {', '.join(_QUERIES)}; with NAME {', '.join(_EPOCHS)}")


def _run(given: argparse.Namespace) -> int:
    from streamstate.state_inspect import open_store
    from streamstate.widgets.tables.shown_frame import counts_text

    store = open_store(given.store, storage_options=storage_options(given))
    counts: _Counts = dict if given.json else counts_text
    if given.name is None:
        print_rows(_QUERIES, _queries(store, counts, as_json=given.json), as_json=given.json)
    else:
        print_rows(_EPOCHS, _epochs(store[given.name].recorded, counts, as_json=given.json), as_json=given.json)
    return FINE


def _queries(store: Store, counts: _Counts, *, as_json: bool) -> Iterator[list[Any]]:
    """Yield a row per query, those first that need a look; people see a size in words."""
    from streamstate.state_inspect.store_facts import StoreFacts
    from streamstate.widgets.number_text import size

    for query in StoreFacts(store).listed():
        rows = counts({table.name: table.rows for table in query.tables})
        yield [
            *(query.name, query.captured, query.gaps, query.epoch, query.committed),
            *(rows, query.changes, query.backlog, query.watermark, query.bytes if as_json else size(query.bytes)),
            *((version.number, version.after) if (version := query.version) else (None, None)),
            *(query.branch.checkpoint, query.problem or None),
        ]


def _epochs(query: CapturedQuery, counts: _Counts, *, as_json: bool) -> Iterator[list[Any]]:
    from streamstate.snapshots.checkpoint.epoch_reads import in_a_line, reads_in_manifest

    entries = query.count_soon()
    for entry, reads in zip(entries, reads_in_manifest(entries), strict=True):
        rows = counts({table: facts.rows for table, facts in entry.tables.items()})
        changes = counts({table: facts.changes for table, facts in entry.tables.items()})
        read = {str(source): words for source, words in reads.words.items()} if as_json else in_a_line(reads.words)
        yield [entry.epoch, entry.status, entry.committed_at, entry.watermark, entry.input_rows, rows, changes, read]


LS = Command(
    "ls",
    "list the queries of a store, or the epochs of a query",
    "List the queries of a store, one a line, with their newest epochs: first those that "
    "cannot be read, and those whose capture is behind the checkpoint. The column behind "
    "is empty if the checkpoint is not on this machine. The columns version and replaced_by are "
    "for flows of pipelines: a full refresh replaces a version by the next. With NAME, list all epochs of one query.",
    """
    streamstate ls store
    streamstate ls store --json | jq 'select(.behind > 0) | .query'
    streamstate ls store delays
    streamstate ls store delays --json | jq 'select(.status == "gap") | .epoch'
    """,
    _arguments,
    _run,
    ("Store.queries", "History.epochs"),
)
