"""``%state NAME why``, ``inputs`` and ``late``: the input rows of an epoch, read again; ``why-policy``: its levels."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamstate.command_line.argument_types import epoch_or_epochs, key_of, past_epoch
from streamstate.magics.arguments import MagicParser, Verb, add_output, add_store
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.progress import loading
from streamstate.magics.state_rows import add_key, named_history, shown_table

if TYPE_CHECKING:
    from streamstate.state_inspect import Why
    from streamstate.state_inspect.control import WhyPolicy


def _add_epoch(parser: MagicParser) -> None:
    parser.add("epoch", metavar="EPOCH", type=past_epoch, completes="epoch", help="the epoch: 12, or live-10")


def _why_arguments(parser: MagicParser) -> None:
    _add_epoch(parser)
    add_key(parser)
    add_store(parser)
    add_output(parser, "keep the answer, with its rows, in a variable")


def _why(notebook: NotebookContext, args: argparse.Namespace) -> Why:
    """Return the input rows behind a key's change."""
    __tracebackhide__ = True
    from streamstate.state_inspect.keys.key_rows import row_number_column

    history, table = named_history(notebook, args)
    with loading(notebook.shell):
        state = history.live().table(shown_table(history, table))
        number = row_number_column(state.name, state.key_columns)
        why = history.why(args.epoch, table=state.name, key=key_of(state, args.key, args, without=number))
    notebook.assign(args.output, why)
    return why


def _inputs_arguments(parser: MagicParser) -> None:
    _add_epoch(parser)
    parser.add("--source", metavar="SOURCE", help="the source's name, its topic, or its place in the query from 0")
    add_store(parser)
    add_output(parser, "keep a DataFrame of Spark with all rows in a variable")


def _inputs(notebook: NotebookContext, args: argparse.Namespace) -> Any:
    """Return an epoch's input as a DataFrame of Spark or, if it is only displayed, its first rows."""
    __tracebackhide__ = True
    from streamstate.state_inspect.inputs.shown_rows import fetched_frame
    from streamstate.widgets.tables.shown_frame import ShownFrame

    history, _ = named_history(notebook, args)
    with loading(notebook.shell):
        rows = history.inputs(args.epoch, source=args.source)
        if args.output:
            notebook.assign(args.output, rows)
            return rows
        shown = fetched_frame(rows.limit(notebook.settings.rows))
        total = rows.count()
    if total > len(shown):
        print(f"{len(shown)} of {total:,} rows. -o VAR keeps a DataFrame of Spark with all of them.")
    return ShownFrame.of(shown)


def _late_arguments(parser: MagicParser) -> None:
    parser.add(
        "epoch",
        metavar="EPOCH",
        nargs="?",
        type=epoch_or_epochs,
        completes="epoch",
        help="the epoch: 12, or live-10; several, such as 40..49, or none for the newest 50: a chart of how many",
    )
    add_store(parser)
    add_output(parser, "keep the rows in a variable; of several epochs a DataFrame with their counts")


def _late(notebook: NotebookContext, args: argparse.Namespace) -> Any:
    """Return the rows that were dropped in an epoch, or a chart of how many in several epochs."""
    __tracebackhide__ = True
    from streamstate import widgets
    from streamstate.widgets.number_text import amount

    history, table = named_history(notebook, args)
    value: Any
    if args.epoch is not None and ".." not in str(args.epoch):
        with loading(notebook.shell):
            value = history.late(args.epoch, table)
    else:
        stays = "nothing was changed. Name fewer epochs, such as %state NAME late 40..49."
        with notebook.working(stays=stays) as progress:
            rows = history.late_counts(args.epoch, table, progress=progress.of())
            progress.line = f"Read the input of {amount(len(rows), 'epoch')} again."
        value = rows if args.output else widgets.LateRowsView(rows, query=history.name)
    notebook.assign(args.output, value)
    return value


def _policy_arguments(parser: MagicParser) -> None:
    _add_epoch(parser)
    add_store(parser)
    add_output(parser, "keep the answer in a variable")


def _why_policy(notebook: NotebookContext, args: argparse.Namespace) -> WhyPolicy:
    """Return the policy and the levels of an epoch, and the decisions that set them."""
    __tracebackhide__ = True
    history, _ = named_history(notebook, args)
    why = history.why_policy(args.epoch)
    notebook.assign(args.output, why)
    return why


WHY_POLICY = Verb(
    "why-policy",
    "explain what a load policy did to an epoch, and why",
    _policy_arguments,
    _why_policy,
    "History.why_policy",
)
WHY = Verb("why", "return the input rows that changed a key in an epoch", _why_arguments, _why, "History.why")
INPUTS = Verb(
    "inputs", "return the rows that a source delivered in an epoch", _inputs_arguments, _inputs, "History.inputs"
)
LATE = Verb(
    "late",
    "return the rows that were dropped because the watermark had passed them",
    _late_arguments,
    _late,
    "History.late",
)
