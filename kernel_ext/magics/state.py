"""``%state``: a query's state as a browser, and as data at an epoch, between two epochs, or of one key."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from streamstate.command_line.argument_types import KEY_HELP, count, past_epoch, port
from streamstate.errors import InvalidArgumentError
from streamstate.magics.arguments import MagicParser, Verb, add_output, add_store
from streamstate.magics.magic import Magic
from streamstate.magics.notebook_context import NotebookContext, ServedStore
from streamstate.magics.progress import loading

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.state_inspect import History, StateTable

# Each of these options asks its own question, which the options behind it cannot narrow.
_EXCLUDES = {
    "inputs": ("why", "late", "diff", "at", "as_of", "key", "where", "top", "by", "history", "timeline", "dashboard"),
    "late": ("why", "diff", "at", "as_of", "key", "where", "top", "by", "history", "timeline", "dashboard"),
    "why": ("diff", "at", "as_of", "where", "top", "by", "history", "timeline", "dashboard"),
    "diff": ("at", "as_of", "key", "where", "top", "by", "history", "timeline", "dashboard"),
    "history": ("at", "as_of", "where", "top", "by", "timeline", "dashboard"),
    "key": ("where", "top", "by", "timeline", "dashboard"),
    "as_of": ("at", "timeline", "dashboard"),
    "timeline": ("at", "where", "top", "by", "dashboard"),
    "dashboard": ("at", "where", "top", "by"),
}

_QUESTIONS = (*_EXCLUDES, "at", "where", "top", "by")


class _StateParser(MagicParser):
    """The parser of ``%state``, where ``--diff A..B`` is ``--diff A B``."""

    def words(self, line: str, expand: Callable[[str], str] = str) -> list[str]:
        """The line's words."""
        found = super().words(line, expand)
        for at in [at for at, word in enumerate(found[:-1]) if word == "--diff"]:
            ends = found[at + 1].split("..")
            if len(ends) == 2 and all(ends):
                found[at + 1 : at + 2] = ends
        return found


def _parser() -> MagicParser:
    parser = _StateParser(
        "%state",
        "Explore the state of a query. Without options, show a browser with a slider over the epochs; without a name,\n"
        "the store's queries. With options, return data: a DataFrame or, with --key, one row as a dict.",
        verbs=[Verb("serve", "serve the store as a read-only page in the browser", _serve_arguments, _serve)],
        epilog="Examples:\n"
        "  %state\n"
        "  %state delays\n"
        "  %state delays.op0                 (Spark's own columns instead of the query's)\n"
        "  %state delays --at 12 --top 5 --by count\n"
        "  %state delays --where \"carrier = 'UA' and count > 10\"\n"
        "  %state delays --key carrier=UA --key origin=JFK --history\n"
        "  %state rotations.op0_legs --diff live-10 live -o changes\n"
        "  %state delays --key carrier=HA --key origin=JFK --why 12\n"
        "  %state delays --late              (late rows over the newest 50 epochs)\n"
        "  %state delays --timeline\n"
        '  late = %state delays --at 12 --where "max > 60"',
    )
    parser.add(
        "relation",
        metavar="NAME[.TABLE]",
        nargs="?",
        completes="relation",
        help="a query, or one of its tables",
    )
    parser.add(
        "--at",
        metavar="EPOCH",
        type=past_epoch,
        completes="epoch",
        help="the state at an epoch: 12, or live-10 (default: live, the newest)",
    )
    parser.add(
        "--as-of",
        metavar="TIME",
        completes="time",
        help="the state at a time with its zone, such as 2013-01-01T12:00+01:00",
    )
    parser.add("--key", metavar="COL=VALUE", action="append", completes="key", help=KEY_HELP)
    parser.add("--where", metavar="SQL", completes="where", help="only rows that fulfil this condition")
    parser.add("--top", metavar="N", type=count, help="the N rows with the largest values of a column")
    parser.add("--by", metavar="COL", completes="column", help="the column for --top")
    parser.add(
        "--diff",
        nargs=2,
        metavar=("A", "B"),
        type=past_epoch,
        completes="epoch",
        help="the changes from epoch A to epoch B (or A..B)",
    )
    parser.add("--history", action="store_true", help="every change of the key given with --key")
    parser.add(
        "--why",
        metavar="EPOCH",
        type=past_epoch,
        completes="epoch",
        help="the input rows that changed the key given with --key in an epoch",
    )
    parser.add(
        "--inputs",
        metavar="EPOCH",
        type=past_epoch,
        completes="epoch",
        help="the rows that a source delivered in an epoch",
    )
    parser.add("--source", metavar="SOURCE", help="for --inputs: the source's name, or its place in the query from 0")
    parser.add(
        "--late",
        nargs="?",
        const=True,
        metavar="EPOCH",
        type=_epoch_or_epochs,
        completes="epoch",
        help="the rows that were dropped in an epoch, because the watermark had passed them; of several"
        " (40..49) or, without EPOCH, the newest 50: a chart of how many",
    )
    parser.add("--timeline", action="store_true", help="a chart of all epochs: input, state, changes, duration, lag")
    parser.add(
        "--dashboard", action="store_true", help="the query's operators with rows, sizes, skew, heavy keys and rates"
    )
    add_store(parser)
    add_output(parser, "keep the full value in a variable")
    return parser


def _run(notebook: NotebookContext, args: argparse.Namespace, _cell: str) -> Any:
    __tracebackhide__ = True
    from streamstate import widgets

    _check_combination(args)
    moment = None if args.as_of is None else _aware_time(args.as_of)
    query, _, table = (args.relation or "").partition(".")
    store = notebook.open(args.store, query or None, args.storage_options)
    if args.late is True or ".." in str(args.late):
        value = _late_over_epochs(notebook, args, store[query], table or None)
        notebook.assign(args.output, value)
        return value
    with loading(notebook.shell):
        if not args.relation:
            value = widgets.StoreOverview(store)
        elif args.inputs is not None or args.late is not None:
            value = _input_again(notebook, args, store[query], table or None)
        else:
            value = _answer(notebook, args, store[query], table or None, moment)
    notebook.assign(args.output, value)
    return value


def _answer(
    notebook: NotebookContext, args: argparse.Namespace, history: History, table: str | None, moment: datetime | None
) -> Any:
    """What the line asks for; without a table the query's result, where it is known."""
    from streamstate.state_inspect.results.results import state_of

    if table is None and not (args.timeline or args.dashboard) and history.captured():
        table = next(iter(history.results()), None)
    if args.diff:
        before, after = args.diff
        return history.diff(before, after, table=table)
    if args.history or args.why is not None:
        return _of_key(args, history, history.live().table(table))
    if not (args.at is not None or moment or args.key or args.where or args.top or args.by):
        return _view(notebook, args, history, table)
    snapshot = history.live() if args.at is None and moment is None else history.at(args.at, timestamp=moment)
    of, is_result = state_of(table)
    state = snapshot.result(of) if is_result else snapshot.table(table)
    return _one_key(state, args.key) if args.key else _rows(notebook, args, state)


def _of_key(args: argparse.Namespace, history: History, state: StateTable) -> Any:
    """A key's history, or why it changed."""
    from streamstate.widgets.tables.shown_frame import ShownFrame  # loads pandas, which is slow

    given = args.key or []
    if args.why is None:
        return ShownFrame.of(history.key_history(state.name, key=state.table_key.read(given, whole=False)))
    from streamstate.state_inspect.keys.key_rows import row_number_column

    number = row_number_column(state.name, state.key_columns)
    return history.why(args.why, table=state.name, key=state.table_key.read(given, without=number))


def _input_again(notebook: NotebookContext, args: argparse.Namespace, history: History, table: str | None) -> Any:
    """An epoch's late rows, or its input: a DataFrame of Spark or, if it is only displayed, its first rows."""
    if args.late is not None:
        return history.late(args.late, table)
    from streamstate.state_inspect.inputs.shown_rows import fetched_frame
    from streamstate.widgets.tables.shown_frame import ShownFrame

    rows = history.inputs(args.inputs, source=args.source)
    if args.output:
        return rows
    shown = fetched_frame(rows.limit(notebook.settings.rows))
    if (total := rows.count()) > len(shown):
        print(f"{len(shown)} of {total:,} rows. -o VAR keeps a DataFrame of Spark with all of them.")
    return ShownFrame.of(shown)


def _late_over_epochs(notebook: NotebookContext, args: argparse.Namespace, history: History, table: str | None) -> Any:
    """The late rows of many epochs: a chart or, if it is kept in a variable, a DataFrame."""
    __tracebackhide__ = True
    from streamstate import widgets
    from streamstate.widgets.number_text import amount

    epochs = None if args.late is True else args.late
    with notebook.working(stays="nothing was changed. Name fewer epochs, such as --late 40..49.") as progress:
        rows = history.late_counts(epochs, table, progress=progress.of())
        progress.line = f"Read the input of {amount(len(rows), 'epoch')} again."
    return rows if args.output else widgets.LateRowsView(rows, query=history.name)


def _epoch_or_epochs(text: str) -> int | str:
    """An epoch, or several such as ``40..49``."""
    return text if ".." in text else past_epoch(text)


def _view(notebook: NotebookContext, args: argparse.Namespace, history: History, table: str | None) -> Any:
    from streamstate import widgets

    if args.timeline:
        return widgets.Timeline(history)
    if args.dashboard:
        return widgets.QueryDashboard(history, notebook.running.get(history.name))
    return widgets.StateBrowser(history, table)


def _one_key(state: StateTable, given: list[str]) -> dict[str, Any] | None:
    from streamstate.state_inspect.keys.key_text import in_magic

    row = state.lookup(key=state.table_key.read(given))
    if row is None:
        example = state.table_key.example(in_magic)
        print(f"{state.name} has no row with {', '.join(given)} at epoch {state.epoch}.{example}")
    return row


def _rows(notebook: NotebookContext, args: argparse.Namespace, state: StateTable) -> pd.DataFrame:
    """The rows; if they are only displayed, the first of them, with a note."""
    from streamstate.widgets.tables.shown_frame import ShownFrame  # loads pandas, which is slow

    total = state.count(where=args.where)
    limit = args.top or (max(total, 1) if args.output else notebook.settings.rows)
    page = state.page(limit=limit, order_by=args.by, descending=args.by is not None, where=args.where)
    if len(page) < total and not args.top:
        print(
            f"{len(page)} of {total:,} rows of {state.name} at epoch {state.epoch}. -o VAR keeps all of them, "
            "%config StreamState.rows = N displays more."
        )
    return ShownFrame.of(page)


def _check_combination(args: argparse.Namespace) -> None:
    """Refuse options that exclude each other, or that lack another."""
    given = {name for name, value in vars(args).items() if value not in (None, False)}
    asked = [_flag(name) for name in _QUESTIONS if name in given]
    if args.relation is None and asked:
        raise InvalidArgumentError(f"{asked[0]} needs a query: %state NAME {asked[0]} … Without a name: all queries.")
    for option, excluded in _EXCLUDES.items():
        clash = [_flag(name) for name in excluded if name in given]
        if option in given and clash:
            raise InvalidArgumentError(f"{_flag(option)} cannot be combined with {', '.join(clash)}. Use one of them.")
    if "source" in given and "inputs" not in given:
        raise InvalidArgumentError("--source belongs to --inputs EPOCH.")
    if "top" in given and "by" not in given:
        raise InvalidArgumentError("--top needs a column to sort by: --top 10 --by COLUMN.")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _aware_time(text: str) -> datetime:
    """A time with its zone: ISO 8601 with an offset, or followed by the name of a zone."""
    from streamstate.state_inspect.epoch_names import aware

    written, _, zone = text.strip().rpartition(" ")
    if not written or not zone[:1].isalpha():
        return aware(text)
    try:
        return datetime.fromisoformat(written).replace(tzinfo=ZoneInfo(zone))
    except (ValueError, LookupError, OSError) as error:  # ZoneInfo looks for a file with the zone's name
        raise InvalidArgumentError(
            f"Invalid --as-of {text!r}: {error}.\n"
            "Expected a time such as 2013-01-01T12:00+01:00 or '2013-01-01 12:00 Europe/Rome'."
        ) from None


def _serve_arguments(parser: MagicParser) -> None:
    parser.add("store", metavar="STORE", nargs="?", completes="store", help="the store (default: the last store used)")
    parser.add("--port", metavar="N", type=port, help="the port on this machine (default: any free port)")
    parser.add("--stop", action="store_true", help="stop serving")
    add_output(parser, "keep the server in a variable")


def _serve(notebook: NotebookContext, args: argparse.Namespace) -> None:
    """Serve a store, or show where it is already served."""
    __tracebackhide__ = True
    if args.stop:
        _stop_serving(notebook)
        return
    path = notebook.store_path(args.store)
    served = notebook.served
    if served is not None and (served.path != path or args.port not in (None, served.port)):
        raise InvalidArgumentError(
            f"This notebook already serves {served.path} at {served.server.url}\nStop that first: %state serve --stop"
        )
    if served is None:
        from streamstate.widgets.page import serve

        server = serve(notebook.open(args.store), port=args.port or 0)
        served = notebook.served = ServedStore(path, server, args.port)
    print(f"{served.path} is served at {served.server.url}")
    notebook.assign(args.output, served.server)


def _stop_serving(notebook: NotebookContext) -> None:
    if notebook.served is None:
        raise InvalidArgumentError("This notebook serves no store. %state serve [STORE] serves one.")
    path = notebook.served.path
    for line in notebook.stop_serving() or [f"{path} is no longer served."]:
        print(line)


STATE = Magic("line", "state", _parser(), _run)
