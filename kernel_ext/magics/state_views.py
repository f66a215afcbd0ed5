"""``%state NAME timeline``, ``load``, ``dashboard`` and ``save``: other views of a query, and its browser in a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import count, state_limit
from streamstate.magics.arguments import MagicParser, Verb, add_output, add_store
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.progress import loading
from streamstate.magics.state_rows import named_history, shown_table

if TYPE_CHECKING:
    from streamstate.state_inspect import Load
    from streamstate.widgets import LoadView, QueryDashboard, Timeline
    from streamstate.widgets.export.saving import SaveReport


def _view_arguments(parser: MagicParser) -> None:
    add_store(parser)
    add_output(parser, "keep the view in a variable")


def _view(notebook: NotebookContext, args: argparse.Namespace) -> Timeline | QueryDashboard:
    """Return the timeline, or the dashboard."""
    __tracebackhide__ = True
    from streamstate import widgets

    history, _ = named_history(notebook, args)
    with loading(notebook.shell):
        if args.verb is TIMELINE:
            view: Timeline | QueryDashboard = widgets.Timeline(history)
        else:
            view = widgets.QueryDashboard(history, notebook.running.get(history.name))
    notebook.assign(args.output, view)
    return view


def _load_arguments(parser: MagicParser) -> None:
    parser.add("--state", metavar="LIMIT", type=state_limit, help="forecast when the state has 10GB, or so many rows")
    parser.add("--backlog", metavar="ROWS", type=count, help="forecast when so many rows wait in the sources")
    add_store(parser)
    add_output(parser, "keep the load in a variable: its numbers, and forecasts")


def _load(notebook: NotebookContext, args: argparse.Namespace) -> Load | LoadView:
    """Return the view of the load, or the load itself for a variable."""
    __tracebackhide__ = True
    from streamstate import widgets

    history, _ = named_history(notebook, args)
    with loading(notebook.shell):
        value: Load | LoadView = (
            history.load() if args.output else widgets.LoadView(history, state=args.state, backlog=args.backlog)
        )
    notebook.assign(args.output, value)
    return value


def _save_arguments(parser: MagicParser) -> None:
    parser.add("file", metavar="FILE", completes="path", help="the HTML file to write")
    parser.add("--epochs", metavar="LIST", help="epochs and ranges such as 3,5,10..20 (default: as many as fit)")
    parser.add("--overwrite", action="store_true", help="replace an existing file")
    add_store(parser)
    add_output(parser, "keep the report in a variable")


def _save(notebook: NotebookContext, args: argparse.Namespace) -> SaveReport:
    """Write the browser to a file that needs no kernel."""
    __tracebackhide__ = True
    from streamstate import widgets

    history, table = named_history(notebook, args)
    with notebook.working(stays="nothing was saved.") as progress:
        view = widgets.StateBrowser(history, shown_table(history, table))
        try:
            report = view.save(args.file, epochs=args.epochs, overwrite=args.overwrite, progress=progress.of())
        finally:
            view.close()
    notebook.assign(args.output, report)
    return report


TIMELINE = Verb(
    "timeline",
    "show a chart of all epochs: input, state, changes, duration, lag",
    _view_arguments,
    _view,
    "widgets.Timeline",
)
LOAD = Verb(
    "load",
    "show whether the query keeps up: rates, phases, backlog, state, tasks, forecasts",
    _load_arguments,
    _load,
    "History.load",
)
DASHBOARD = Verb(
    "dashboard",
    "show the query's operators with rows, sizes, skew, heavy keys and rates",
    _view_arguments,
    _view,
    "widgets.QueryDashboard",
)
SAVE = Verb("save", "write the browser to an HTML file", _save_arguments, _save, "widgets.StateBrowser.save")
