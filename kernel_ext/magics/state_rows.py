"""``%state NAME at``, ``key`` and ``diff``: rows at an epoch, of one key, and between two epochs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamstate.command_line.argument_types import (
    AT_HELP,
    KEY_HELP,
    count,
    epoch_or_time,
    key_of,
    past_epoch,
    snapshot_at,
)
from streamstate.errors import InvalidArgumentError
from streamstate.magics.arguments import MagicParser, Verb, add_output, add_store
from streamstate.magics.notebook_context import NotebookContext, only_query
from streamstate.magics.progress import loading

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd

    from streamstate.state_inspect import History, StateTable
    from streamstate.state_inspect.differences.diff import Diff


def split(relation: str | None) -> tuple[str | None, str | None]:
    """Split ``NAME.TABLE`` into a query and a table; either may be missing."""
    query, _, table = (relation or "").partition(".")
    return query or None, table or None


def named_history(notebook: NotebookContext, args: argparse.Namespace) -> tuple[History, str | None]:
    """Return the query that a line names, or the store's only one, and the table."""
    query, table = split(args.name)
    store = notebook.open(args.store, query, args.storage_options)
    return store[query or only_query(store, f"%state NAME {args.verb.name}")], table


def shown_table(history: History, table: str | None) -> str | None:
    """Return the table given, else the query's result if it is known."""
    return next(iter(history.results()), None) if table is None and history.captured() else table


def add_key(parser: MagicParser) -> None:
    """Add the key, one word per key column."""
    parser.add("key", metavar="COL=VALUE", nargs="*", completes="key", help=KEY_HELP)
    parser.set_defaults(parser=parser)  # for key_of


def _at_arguments(parser: MagicParser) -> None:
    parser.add("epoch", metavar="EPOCH", type=epoch_or_time, completes="moment", help=f"the epoch: {AT_HELP}")
    parser.add("--where", metavar="SQL", completes="where", help="only rows that fulfil this condition")
    parser.add("--by", metavar="COL", completes="column", help="the rows with the largest values of this column first")
    parser.add("--limit", metavar="N", type=count, help="at most this many rows")
    add_store(parser)
    add_output(parser, "keep the rows in a variable: all of them, unless --limit is given")


def _at(notebook: NotebookContext, args: argparse.Namespace) -> pd.DataFrame:
    """Return rows at an epoch; if they are only displayed, the first of them, with a note."""
    __tracebackhide__ = True
    from streamstate.widgets.tables.shown_frame import ShownFrame  # loads pandas, which is slow

    with loading(notebook.shell):
        state = _state(*named_history(notebook, args), args.epoch)
        total = state.count(where=args.where)
        limit = args.limit or (max(total, 1) if args.output else notebook.settings.rows)
        page = state.page(limit=limit, order_by=args.by, descending=args.by is not None, where=args.where)
    if len(page) < total and args.limit is None:
        print(
            f"{len(page)} of {total:,} rows of {state.name} at epoch {state.epoch}. -o VAR keeps all of them, "
            "%config StreamState.rows = N displays more."
        )
    rows = ShownFrame.of(page)
    notebook.assign(args.output, rows)
    return rows


def _state(history: History, table: str | None, at: int | str | datetime) -> StateTable:
    """Return a table or a result at an epoch."""
    from streamstate.state_inspect.results.results import state_of

    snapshot = snapshot_at(history, at)
    table, is_result = state_of(shown_table(history, table))
    return snapshot.result(table) if is_result else snapshot.table(table)


def _key_arguments(parser: MagicParser) -> None:
    add_key(parser)
    parser.add(
        "--at",
        metavar="EPOCH",
        type=epoch_or_time,
        completes="moment",
        help=f"the key's row at this epoch, as a dict, instead of its changes: {AT_HELP}",
    )
    add_store(parser)
    add_output(parser, "keep the changes, or the row, in a variable")


def _key(notebook: NotebookContext, args: argparse.Namespace) -> Any:
    """Return every change of a key, or its row at an epoch."""
    __tracebackhide__ = True
    from streamstate.widgets.tables.shown_frame import ShownFrame  # loads pandas, which is slow

    history, table = named_history(notebook, args)
    with loading(notebook.shell):
        if args.at is None:
            state = history.live().table(shown_table(history, table))
            key = key_of(state, args.key, args, whole=False)
            value: Any = ShownFrame.of(history.key_history(state.name, key=key))
        else:
            value = _row(_state(history, table, args.at), args)
    notebook.assign(args.output, value)
    return value


def _row(state: StateTable, args: argparse.Namespace) -> dict[str, Any] | None:
    from streamstate.state_inspect.keys.key_text import in_magic

    row = state.lookup(key=key_of(state, args.key, args))
    if row is None:
        example = state.table_key.example(in_magic)
        print(f"{state.name} has no row with {', '.join(args.key)} at epoch {state.epoch}.{example}")
    return row


def _diff_arguments(parser: MagicParser) -> None:
    parser.add("a", metavar="A", completes="epoch", help="the epoch to compare from: 10, or live-10; or both, 10..12")
    parser.add("b", metavar="B", nargs="?", completes="epoch", help="the epoch to compare to: 12, or live")
    add_store(parser)
    add_output(parser, "keep the differences in a variable")


def _diff(notebook: NotebookContext, args: argparse.Namespace) -> Diff:
    """Return the changes from epoch A to epoch B."""
    __tracebackhide__ = True
    a, b = _two_epochs(args.a, args.b)
    history, table = named_history(notebook, args)
    with loading(notebook.shell):
        diff = history.diff(a, b, table=shown_table(history, table))
    notebook.assign(args.output, diff)
    return diff


def _two_epochs(a: str, b: str | None) -> tuple[int | str, int | str]:
    """Return the epochs that ``A B`` or ``A..B`` names."""
    first, _, second = a.partition("..") if b is None else (a, "", b)
    if not (first and second):
        raise InvalidArgumentError("Expected two epochs: %state NAME diff 10 12, or diff live-10 live.")
    return past_epoch(first), past_epoch(second)


AT = Verb("at", "return the rows at an epoch or a time", _at_arguments, _at, "History.at")
KEY = Verb("key", "return every change of one key, or its row at an epoch", _key_arguments, _key, "History.key_history")
DIFF = Verb("diff", "return the changes from one epoch to another", _diff_arguments, _diff, "History.diff")
