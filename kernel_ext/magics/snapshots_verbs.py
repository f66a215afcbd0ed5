"""What ``%snapshots NAME`` can do beside showing: drop epochs, merge files, export."""

from __future__ import annotations

import argparse

from streamstate.magics.arguments import MagicParser, add_output, add_store, count
from streamstate.magics.notebook import Notebook
from streamstate.magics.progress import working
from streamstate.magics.table import Table
from streamstate.magics.verb import Verb
from streamstate.snapshots.errors import InvalidArgumentError

__all__ = ["VERBS"]

_WHOLE = "the store is whole; run the line again to go on."


def _common(parser: MagicParser) -> None:
    add_store(parser, "the store (default: the last store used)")
    add_output(parser, "keep what was done in a variable")


def _keep_arguments(parser: MagicParser) -> None:
    parser.add("--last", metavar="N", type=count, help="the N newest epochs stay")
    parser.add("--since", metavar="T", help="epochs committed since then stay: 2d, 3h, 90m, or 2026-03-01T12:00+01:00")
    parser.add("--every", metavar="N", type=count, help="of the others the first of each N epoch numbers stays")
    parser.add("--dry-run", action="store_true", help="only say what would go")
    _common(parser)


def _export_arguments(parser: MagicParser) -> None:
    parser.add("path", metavar="PATH", completes="path", help="the folder of the Delta table")
    parser.add("--table", completes="table", help="the state table (may be left out where there is one)")
    parser.add("--epochs", metavar="LIST", help="numbers and ranges such as 3,5,10:20 (default: all captured)")
    _common(parser)


def _keep(notebook: Notebook, args: argparse.Namespace) -> Table:
    """Drop older epochs."""
    __tracebackhide__ = True
    from streamstate.snapshots.retention.run import keep

    policy = {"last": args.last, "since": args.since, "every": args.every}
    if all(value is None for value in policy.values()):
        raise InvalidArgumentError(
            "%snapshots NAME keep: say what is to stay: --last 100, --since 2d, --every 10, or several of them.\n"
            "What any of them keeps stays. --dry-run says what would go."
        )
    store, name, options = _meant(notebook, args)
    with working(notebook.shell, stays=_WHOLE) as progress:
        report = keep(store, name, **policy, dry_run=args.dry_run, storage_options=options, progress=progress.say)
    notebook.assign(args.output, report)
    megabytes = report.bytes_freed / 1e6
    columns = ["query", "would drop" if report.dry_run else "dropped", "stay", "MB less", "files deleted"]
    caption = "Retention, nothing changed yet: MB at most" if report.dry_run else "Retention"
    return Table(columns, [[name, len(report.dropped), report.kept, megabytes, report.files_deleted]], caption=caption)


def _compact(notebook: Notebook, args: argparse.Namespace) -> Table:
    """Merge small files and delete those that nobody reads."""
    __tracebackhide__ = True
    from streamstate.snapshots.retention.tidying import tidy_query

    store, name, options = _meant(notebook, args)
    with working(notebook.shell, stays=_WHOLE) as progress:
        done = tidy_query(store, name, storage_options=options, progress=progress.say)
    table = Table(
        ["table", "files before", "files after", "MB before", "MB after", "files deleted"],
        [
            [one.table, one.files_before, one.files_after, one.bytes_before / 1e6, one.bytes_after / 1e6, one.deleted]
            for one in done
        ],
        caption=f"Files of {name}",
    )
    notebook.assign(args.output, table.to_pandas())
    return table


def _export(notebook: Notebook, args: argparse.Namespace) -> Table:
    """Write epochs as a Delta table."""
    __tracebackhide__ = True
    from streamstate.snapshots.export import export, parsed

    epochs = None if args.epochs is None else parsed(args.epochs)
    store, name, options = _meant(notebook, args)
    with working(notebook.shell, stays=_WHOLE) as progress:
        report = export(
            store,
            name,
            args.path,
            table=args.table,
            epochs=epochs,
            storage_options=options,
            progress=lambda done, total: progress.say(f"{done:,} of {total:,} versions", done, total),
        )
    notebook.assign(args.output, report)
    rows = [[report.table, len(report.epochs), report.written, report.rows, report.path]]
    return Table(["table", "versions", "written now", "rows written", "path"], rows, caption=f"Export of {name}")


def _meant(notebook: Notebook, args: argparse.Namespace) -> tuple[str, str, dict[str, str] | None]:
    """The store's path, the query (the only one where the line names none), and how to reach the store."""
    store = notebook.open(args.store, args.name, args.storage_options)
    options = notebook.options(store.path)
    if args.name is not None:
        return store.path, args.name, options
    queries = store.queries()
    if len(queries) != 1:
        raise InvalidArgumentError(
            f"Say which query is meant: %snapshots NAME {args.verb}. Queries: {', '.join(queries) or 'none yet'}."
        )
    return store.path, queries[0], options


VERBS = (
    Verb("keep", "drop older epochs; what stays reads as before", _keep_arguments, _keep),
    Verb("compact", "merge small files, and delete those past their grace period", _common, _compact),
    Verb("export", "write epochs as a Delta table, one version an epoch", _export_arguments, _export),
)
