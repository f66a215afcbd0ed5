"""``%%stream``: start a cell's streaming DataFrame as a query, and capture each epoch."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from streamstate.command_line.argument_types import count, every, option
from streamstate.errors import InvalidSQLError, QueryError, first_line
from streamstate.launch.launch import Launch
from streamstate.launch.recorded_input import with_recorded_input
from streamstate.launch.running import Running
from streamstate.launch.shared_variables import chosen_variables, with_shared_variables
from streamstate.launch.sink import Sink
from streamstate.launch.starting import (
    EXAMPLE,
    check_launch,
    check_options,
    checkpoint_beside,
    start_launch,
    streaming_frame,
)
from streamstate.magics.arguments import MagicParser, add_output, add_store
from streamstate.magics.magic import Magic
from streamstate.magics.notebook_context import NotebookContext, require_cell
from streamstate.operations.supervision.restart_policy import BackOff, WhenStalled
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.spark.output_modes import MODES
from streamstate.snapshots.store.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.variables.shared_variable import SharedVariable

_TRIGGERS = ("available-now", "once", "500ms", "1s", "10s", "1m")
_SINKS = ("noop", "memory", "console", "parquet:", "json:", "kafka:")


def add_every(parser: MagicParser) -> None:
    """The option that says how often to capture."""
    parser.add(
        "--every",
        metavar="N",
        type=every,
        suggestions=("1", "10", "1s", "10s", "1m"),
        help="capture once per N epochs, or per 10s, 2m, … (default: 1)",
    )


def _parser() -> MagicParser:
    parser = MagicParser(
        "%%stream",
        "Start the streaming query that the cell makes, and capture the state of each of its epochs.\n\n"
        "The cell ends with a streaming DataFrame or, with --sql, is one SELECT over streaming views. The query's\n"
        "handle is returned at once. The same NAME again stops the query and resumes it from its checkpoint.",
        epilog=f"Examples:\n  %%stream delays --trigger 1s\n  {EXAMPLE}\n\n"
        "  %%stream delays --sql --mode complete -o delays_query\n"
        "  SELECT carrier, avg(delay) FROM flights GROUP BY carrier",
    )
    parser.add("name", metavar="NAME", completes="query", help="the query's name in the store and in SQL")
    parser.add("--sql", action="store_true", help="the cell is Spark SQL instead of Python")
    parser.add("--mode", choices=MODES, default="update", help="output mode (default: update)")
    parser.add(
        "--trigger",
        metavar="WHEN",
        suggestions=_TRIGGERS,
        help="1s, 500ms, 5m …; available-now; once (default: as data arrives)",
    )
    parser.add(
        "--sink",
        default="noop",
        suggestions=_SINKS,
        help="noop, memory, console, FORMAT:PATH or kafka:TOPIC (default: noop)",
    )
    parser.add(
        "--sink-option",
        dest="sink_options",
        metavar="KEY=VALUE",
        action="append",
        type=option,
        help="an option of Spark's writer, such as kafka.bootstrap.servers=host:9092; may be repeated. With one,\n"
        "--sink may be any format. Write secrets as {variable}: the text of a cell is saved with the notebook",
    )
    add_store(parser, "where to write the snapshots (default: the last store used)")
    parser.add("--checkpoint", metavar="DIR", completes="checkpoint", help="default: beside the store")
    add_every(parser)
    parser.add("--partitions", metavar="N", type=count, help="the number of state partitions of a new query")
    parser.add(
        "--restart",
        metavar="N",
        nargs="?",
        type=count,
        const=BackOff().restarts,
        help="restart the query if it fails, with growing delays, up to N times in ten minutes (default: 5)",
    )
    parser.add(
        "--stalled-after",
        metavar="K",
        type=float,
        default=BackOff().stalled_after,
        help="with --restart: an epoch that takes K times the usual is a stall (default: 10)",
    )
    parser.add(
        "--when-stalled",
        choices=[act.replace(" ", "-") for act in get_args(WhenStalled)],
        default=BackOff().when_stalled,
        help="with --restart: only show a stall and its cause (wait, the default), restart the query, or hand it over\n"
        "to its standby",
    )
    parser.add(
        "--record-input",
        action="store_true",
        help="record, in the store, the input of sources that do not keep it for good: all but files, Delta tables,\n"
        "rate and recordings. So what an epoch read can be read again later",
    )
    parser.add(
        "--shared",
        metavar="NAMES",
        type=variable_names,
        completes="shared",
        default=(),
        help="the shared variables that the query uses, such as limit,model; in --sql as shared('limit')",
    )
    add_output(parser, "keep the handle in a variable")
    return parser


def variable_names(text: str) -> tuple[str, ...]:
    """The names in a list such as ``limit,model``."""
    return tuple(name for name in text.split(",") if name)


def _back_off(args: argparse.Namespace) -> BackOff:
    act: WhenStalled = args.when_stalled.replace("-", " ")
    return BackOff(restarts=args.restart, stalled_after=args.stalled_after, when_stalled=act)


def _run(notebook: NotebookContext, args: argparse.Namespace, cell: str) -> Running:
    """Check everything, then start."""
    __tracebackhide__ = True
    store = notebook.store_path(args.store)
    require_cell(cell, "%%stream", EXAMPLE)
    options = notebook.options(store, args.storage_options)
    layout = Layout.at(store, options)
    sink = Sink.parse(args.sink, dict(args.sink_options or ()))
    check_options(args.name, layout, mode=args.mode, trigger=args.trigger, sink=sink)
    variables = chosen_variables(store, args.shared, options)
    frame = _sql_frame(notebook, cell, variables) if args.sql else _python_frame(notebook, cell)
    checkpoint = location(args.checkpoint or checkpoint_beside(store, args.name))
    restart = None if args.restart is None else _back_off(args)
    launch = Launch(args.name, frame, checkpoint, args.mode, sink, args.trigger, args.partitions, restart)
    check_launch(launch, layout, print)
    launch = with_recorded_input(launch, layout, record_input=args.record_input)
    launch = with_shared_variables(launch, variables, store, options)
    pace = args.every or notebook.settings.every
    handle = start_launch(launch, store, notebook.running, every=pace, storage_options=options, say=print)
    notebook.use_store(store)
    notebook.assign(args.output, handle)
    return handle


def _python_frame(notebook: NotebookContext, cell: str) -> DataFrame:
    """The streaming DataFrame that the cell ends with."""
    __tracebackhide__ = True
    if "spark" not in notebook.shell.user_ns:
        notebook.spark()
    value = _cell_value(notebook.shell, cell)
    if value is not None:
        return streaming_frame(value, "The cell's value")
    assigned = _last_assigned(notebook.shell, cell)
    last = f"a line that contains only {assigned}" if assigned else "the streaming DataFrame"
    raise QueryError(f"The cell has no value: its last line is not an expression, or is None.\nEnd it with {last}.")


def _sql_frame(notebook: NotebookContext, cell: str, variables: Mapping[str, SharedVariable]) -> DataFrame:
    """The streaming DataFrame that the cell's SQL defines."""
    from pyspark.errors import AnalysisException, ParseException

    spark = notebook.spark()
    if variables:
        from streamstate.variables.columns import with_variables_in_sql

        cell = with_variables_in_sql(cell, spark, variables)
    try:
        return streaming_frame(spark.sql(cell), "The result of this SQL")
    except ParseException as error:
        raise InvalidSQLError(f"Spark cannot parse this SQL: {str(error).strip()}") from None
    except AnalysisException as error:
        views = [table.name for table in spark.catalog.listTables() if table.isTemporary]
        raise InvalidSQLError(
            f"Spark refuses this SQL: {first_line(error)}\nTemporary views: {', '.join(views) or 'none'}. "
            "Create one from a stream with createOrReplaceTempView."
        ) from None


def _cell_value(shell: Any, cell: str) -> Any:
    """Run a cell's code in the user's namespace, as IPython would, with tracebacks that show the cell's own lines.

    The value is that of its last expression; None if it ends with another statement.
    """
    __tracebackhide__ = True
    source = shell.transform_cell(cell)
    filename = shell.compile.cache(source, shell.execution_count)
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=filename))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(shell.compile(tree, filename, "exec"), shell.user_ns)  # noqa: S102 (the user's own code)
    if last is None:
        return None
    return eval(shell.compile(ast.Expression(last.value), filename, "eval"), shell.user_ns)  # noqa: S307 (likewise)


def _last_assigned(shell: Any, cell: str) -> str | None:
    """The variable that the cell's last statement assigns to."""
    body = shell.compile.ast_parse(shell.transform_cell(cell)).body
    if body and isinstance(body[-1], ast.Assign) and isinstance(body[-1].targets[0], ast.Name):
        return body[-1].targets[0].id
    return None


STREAM_CELL = Magic("cell", "stream", _parser(), _run, python=("start",))
