"""``%snapshots``: the epochs that a store holds; drop, compact and export them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamstate.command_line.argument_types import count
from streamstate.errors import InvalidArgumentError
from streamstate.magics.arguments import MagicParser, Verb, add_output, add_store
from streamstate.magics.magic import Magic
from streamstate.magics.notebook_context import NotebookContext, only_query
from streamstate.snapshots.checkpoint.epoch_reads import in_a_line
from streamstate.widgets.tables.summary_table import SummaryTable

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.state_inspect import Store

_SHOWN = ("epoch", "status", "committed_at", "watermark", "input_rows", "rows", "changes")
"""Facts of an epoch that are shown; the frame has all."""
_STAYS = "the store is intact. Run the line again to continue."


def _parser() -> MagicParser:
    parser = MagicParser(
        "%snapshots",
        "Show the captured epochs of a query, one per row. Without a name, show the queries of the store.",
        verbs=_VERBS,
        before="NAME",
        epilog="Examples:\n  %snapshots\n  %snapshots delays -o epochs\n"
        "  %snapshots delays retain --last 1000 --one-in 100 --dry-run\n"
        "  %snapshots delays compact\n"
        "  %snapshots delays export --to exported/delays --epochs 3,5,10..20",
    )
    parser.add("name", metavar="NAME", nargs="?", completes="query", help="a query")
    add_store(parser)
    add_output(parser, "keep the table in a variable")
    return parser


def _run(notebook: NotebookContext, args: argparse.Namespace, _cell: str) -> pd.DataFrame:
    __tracebackhide__ = True
    from streamstate.widgets.tables.shown_frame import ShownFrame, facts_table  # loads pandas, which is slow

    store = notebook.open(args.store, args.name, args.storage_options)
    for name in store.queries() if args.name is None else [args.name]:
        store[name].recorded.count_soon(only_newest=args.name is None)
    value = _overview(store) if args.name is None else store[args.name].epochs()
    shown = ShownFrame.of(value, facts_table if args.name is None else _epochs_table)
    notebook.assign(args.output, shown)
    return shown


def _epochs_table(epochs: pd.DataFrame) -> SummaryTable:
    """Return the facts that are shown; where a query reads Kafka, from which offset to which."""
    from streamstate.widgets.tables.shown_frame import facts_table

    read = epochs["read"].map(in_a_line)
    names = [*_SHOWN]
    if epochs["records"].notna().any():
        without = ["watermark"] if epochs["watermark"].isna().all() else []  # what was read needs room
        names = [*(name for name in _SHOWN if name not in without), "read"]
    return facts_table(epochs.assign(read=read), names)


def _overview(store: Store) -> pd.DataFrame:
    """The store's queries: number of epochs and gaps, and the newest epoch."""
    import pandas as pd

    rows = [_summary(name, store[name].epochs()) for name in store.queries()]
    return pd.DataFrame(rows, columns=pd.Index(["query", "epochs", "gaps", "newest", "committed_at", "rows"]))


def _summary(name: str, epochs: pd.DataFrame) -> list[Any]:
    captured = epochs[epochs["status"] == "captured"]
    gaps = len(epochs) - len(captured)
    if captured.empty:
        return [name, 0, gaps, None, None, {}]
    newest = captured.iloc[-1]
    return [name, len(captured), gaps, newest["epoch"], newest["committed_at"], newest["rows"]]


def _add_common(parser: MagicParser) -> None:
    add_store(parser, "the store (default: the last store used)")
    add_output(parser, "keep the report in a variable")


def _retain_arguments(parser: MagicParser) -> None:
    parser.add("--last", metavar="N", type=count, help="keep the N newest epochs")
    parser.add("--since", metavar="T", help="keep epochs committed since then: 2d, 3h, 90m, or 2026-03-01T12:00+01:00")
    parser.add("--one-in", metavar="N", type=count, help="of the other epochs, keep the first of every N numbers")
    parser.add("--dry-run", action="store_true", help="only report what would be dropped")
    _add_common(parser)


def _retain(notebook: NotebookContext, args: argparse.Namespace) -> SummaryTable:
    """Drop older epochs."""
    __tracebackhide__ = True
    from streamstate.snapshots.store.retention.dropping import retain

    policy = {"last": args.last, "since": args.since, "one_in": args.one_in}
    if all(value is None for value in policy.values()):
        raise InvalidArgumentError(
            "%snapshots NAME retain needs at least one of --last 100, --since 2d and --one-in 10.\n"
            "An epoch stays if any of them keeps it. --dry-run reports what would be dropped."
        )
    store, name, options = _chosen_query(notebook, args)
    with notebook.working(stays=_STAYS) as progress:
        report = retain(store, name, **policy, dry_run=args.dry_run, storage_options=options, progress=progress.of())
    notebook.assign(args.output, report)
    columns = ["query", "would drop" if report.dry_run else "dropped", "kept", "MB freed", "files deleted"]
    row = [name, len(report.dropped), report.kept, report.bytes_freed / 1e6, report.files_deleted]
    caption = "Retention, dry run: MB freed at most" if report.dry_run else "Retention"
    return SummaryTable(columns, [row], caption=caption)


def _compact(notebook: NotebookContext, args: argparse.Namespace) -> SummaryTable:
    """Merge small files and delete unused ones."""
    __tracebackhide__ = True
    from streamstate.snapshots.store.retention.tidying import compact

    store, name, options = _chosen_query(notebook, args)
    with notebook.working(stays=_STAYS) as progress:
        tables = compact(store, name, storage_options=options, progress=progress.of())
    columns = ["table", "files before", "files after", "MB before", "MB after", "files deleted"]
    rows = [
        [of.table, of.files_before, of.files_after, of.bytes_before / 1e6, of.bytes_after / 1e6, of.deleted]
        for of in tables
    ]
    report = SummaryTable(columns, rows, caption=f"Files of {name}")
    notebook.assign(args.output, report.to_pandas())
    return report


def _export_arguments(parser: MagicParser) -> None:
    parser.add("--to", metavar="PATH", required=True, completes="path", help="the directory of the Delta table")
    parser.add("--table", completes="table", help="the state table (default: the only one)")
    parser.add("--epochs", metavar="LIST", help="epochs and ranges such as 3,5,10..20 (default: all captured epochs)")
    _add_common(parser)


def _export(notebook: NotebookContext, args: argparse.Namespace) -> SummaryTable:
    """Write epochs as a Delta table."""
    __tracebackhide__ = True
    from streamstate.snapshots.store.export import export

    store, name, options = _chosen_query(notebook, args)
    with notebook.working(stays=_STAYS) as progress:
        report = export(
            store,
            name,
            args.to,
            table=args.table,
            epochs=args.epochs,
            storage_options=options,
            progress=progress.of(),
        )
    notebook.assign(args.output, report)
    rows = [[report.table, len(report.epochs), report.written, report.rows, report.path]]
    columns = ["table", "versions", "written now", "rows written", "path"]
    return SummaryTable(columns, rows, caption=f"Export of {name}")


def _chosen_query(notebook: NotebookContext, args: argparse.Namespace) -> tuple[str, str, dict[str, str] | None]:
    """The store's path, the query (by default the store's only one), and the storage options."""
    store = notebook.open(args.store, args.name, args.storage_options)
    options = notebook.options(store.path)
    return store.path, args.name or only_query(store, f"%snapshots NAME {args.verb.name}"), options


_VERBS = (
    Verb(
        "retain",
        "drop older epochs; those that stay read as before",
        _retain_arguments,
        _retain,
        "History.retain",
    ),
    Verb(
        "compact",
        "merge small files, and delete those past their grace period",
        _add_common,
        _compact,
        "History.compact",
    ),
    Verb(
        "export", "write epochs as a Delta table, one version per epoch", _export_arguments, _export, "History.export"
    ),
)

SNAPSHOTS = Magic("line", "snapshots", _parser(), _run, python=("Store.queries", "History.epochs"))
