"""What ``%snapshots NAME`` can do beside showing: drop epochs, merge files, export."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamstate.magics.arguments import MagicParser, count, identifier
from streamstate.magics.notebook import Notebook
from streamstate.magics.stream_line import Verb
from streamstate.magics.table import Table
from streamstate.magics.waiting import show_lines
from streamstate.snapshots.errors import InvalidArgumentError

__all__ = ["VERBS"]


def _common(parser: MagicParser) -> None:
    parser.add("--store", metavar="DIR", completes="path", help="the store (default: the last store used)")
    parser.add("-o", dest="output", metavar="VAR", type=identifier, help="keep what was done in a variable")


def _keep_arguments(parser: MagicParser) -> None:
    parser.add("--last", metavar="N", type=count, help="the N newest epochs stay")
    parser.add("--since", metavar="T", help="epochs committed since then stay: 2d, 3h, 90m, or 2026-03-01T12:00+01:00")
    parser.add("--every", metavar="N", type=count, help="of the others the first of each N epoch numbers stays")
    parser.add("--dry-run", action="store_true", help="only say what would go")
    _common(parser)


def _export_arguments(parser: MagicParser) -> None:
    parser.add("path", metavar="PATH", completes="path", help="the folder of the Delta table")
    parser.add("--table", help="the state table (may be left out where there is one)")
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
    store, name = _meant(notebook, args)
    with _interruptible(notebook) as progress:
        report = keep(store, name, **policy, dry_run=args.dry_run, progress=progress)
    notebook.assign(args.output, report)
    megabytes = report.bytes_freed / 1e6
    columns = ["query", "would drop" if report.dry_run else "dropped", "stay", "MB less", "files deleted"]
    caption = "Retention, nothing changed yet: MB at most" if report.dry_run else "Retention"
    return Table(columns, [[name, len(report.dropped), report.kept, megabytes, report.files_deleted]], caption=caption)


def _compact(notebook: Notebook, args: argparse.Namespace) -> Table:
    """Merge small files and delete those that nobody reads."""
    __tracebackhide__ = True
    from streamstate.snapshots.retention.tidying import tidy_query

    store, name = _meant(notebook, args)
    with _interruptible(notebook) as progress:
        done = tidy_query(store, name, progress=progress)
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
    store, name = _meant(notebook, args)
    with _interruptible(notebook) as say:
        report = export(
            store,
            name,
            args.path,
            table=args.table,
            epochs=epochs,
            progress=lambda done, total: say(f"{done:,} of {total:,} versions"),
        )
    notebook.assign(args.output, report)
    rows = [[report.table, len(report.epochs), report.written, report.rows, report.path]]
    return Table(["table", "versions", "written now", "rows written", "path"], rows, caption=f"Export of {name}")


def _meant(notebook: Notebook, args: argparse.Namespace) -> tuple[str, str]:
    """The store's path and the query; the only one where the line names none."""
    store = notebook.open(args.store, args.name)
    if args.name is not None:
        return store.path, args.name
    queries = store.queries()
    if len(queries) != 1:
        raise InvalidArgumentError(
            f"Say which query is meant: %snapshots NAME {args.verb}. Queries: {', '.join(queries) or 'none yet'}."
        )
    return store.path, queries[0]


@contextmanager
def _interruptible(notebook: Notebook) -> Iterator[Callable[[str], None]]:
    """Progress in one place; an interrupt leaves the store whole, and the same line goes on."""
    __tracebackhide__ = True
    try:
        with show_lines(notebook.shell) as show:
            yield show
    except KeyboardInterrupt as interrupt:
        raise interrupt.with_traceback(None) from None


VERBS = (
    Verb("keep", "drop older epochs; what stays reads as before", _keep_arguments, _keep),
    Verb("compact", "merge small files, and delete those past their grace period", _common, _compact),
    Verb("export", "write epochs as a Delta table, one version an epoch", _export_arguments, _export),
)
