"""``%stream``: the queries of this notebook. Each verb is a parser and a function, listed in ``_VERBS``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import epoch, seconds
from streamstate.errors import InvalidArgumentError, QueryError
from streamstate.launch.query_status import NO_QUERIES, caption, status_table
from streamstate.launch.running import ACTIVE, Running
from streamstate.launch.starting import STARTED
from streamstate.magics.arguments import MagicParser, Verb, add_output, add_store
from streamstate.magics.interruption import restart
from streamstate.magics.magic import Magic
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.progress import CaptureProgress
from streamstate.magics.query_code import add_code, builder
from streamstate.magics.stream_cell import STREAM_CELL, add_every
from streamstate.magics.stream_check import CHECK
from streamstate.magics.stream_handover import HANDOVER
from streamstate.magics.stream_migrate import MIGRATE
from streamstate.magics.stream_policy import POLICY
from streamstate.magics.stream_promote import PROMOTE
from streamstate.magics.stream_replay import REPLAY_VERBS
from streamstate.magics.stream_rescale import RESCALE
from streamstate.magics.stream_standby import STANDBY
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import local_path, location
from streamstate.snapshots.spark.connect import classic_of, connect_session, uses_connect
from streamstate.snapshots.spark.output_modes import output_mode
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.names import check_name
from streamstate.snapshots.store.query_plans.describe import streaming_frame
from streamstate.snapshots.store.query_plans.plan_table import Plans
from streamstate.snapshots.store.registry import check_store
from streamstate.widgets.tables.summary_table import SummaryTable, state_cell

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.snapshots.capture.pass_plan import Every


_UNPLANNED = (
    "The plan of {name} is not known: its columns have Spark's names, and its result is not shown. Record it: %stream"
    " attach … --query VAR, a variable with its streaming DataFrame or with a function that returns it."
)


def _add_name(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", nargs="?", completes="running", help="the query (default: the only one)")


def _add_names(parser: MagicParser, help: str) -> None:  # noqa: A002 (argparse's word)
    parser.add("names", metavar="NAME", nargs="*", completes="running", help=help)


def _add_table_output(parser: MagicParser) -> None:
    add_output(parser, "keep the table in a variable, as a DataFrame")


def _list(notebook: NotebookContext, args: argparse.Namespace) -> SummaryTable:
    """Every query of this notebook or of ``ss.start``, and those that Spark runs in this process without a capture."""
    rows = []
    for running in (STARTED | notebook.running).values():
        launch = running.launch
        started = (launch.mode, launch.trigger or "as data arrives", launch.sink.format) if launch else (None,) * 3
        kept = [running.promise, running.store, running.checkpoint.path]
        rows.append([running.name, state_cell(running.state), *started, *kept])
    rows += [[query.name or str(query.id), state_cell("not captured"), *(None,) * 6] for query in _uncaptured(notebook)]
    columns = ["name", "state", "mode", "trigger", "sink", "policy", "store", "checkpoint"]
    return _kept(notebook, args, SummaryTable(columns, rows, empty=NO_QUERIES, caption=caption()))


def _status_arguments(parser: MagicParser) -> None:
    _add_names(parser, "the queries (default: all)")
    _add_table_output(parser)


def _status(notebook: NotebookContext, args: argparse.Namespace) -> SummaryTable:
    """The status of queries."""
    return _kept(notebook, args, _table([notebook.query(name) for name in args.names or notebook.running]))


def _stop_arguments(parser: MagicParser) -> None:
    _add_names(parser, "the queries (default: the only one)")
    parser.add("--all", action="store_true", help="every query of this notebook")
    _add_table_output(parser)


def _stop(notebook: NotebookContext, args: argparse.Namespace) -> SummaryTable:
    """Stop queries; what they committed is captured first."""
    __tracebackhide__ = True
    chosen = [notebook.query(name) for name in args.names]
    if args.all:
        chosen = list(notebook.running.values())
    chosen = chosen or [notebook.query(None)]
    with notebook.working(stays="the capture ends once everything committed is captured.") as progress:
        for running in chosen:
            running.stop(on_status=CaptureProgress(progress))
        progress.line = f"Stopped: {', '.join(running.name for running in chosen)}."
    return _kept(notebook, args, _table(chosen))


def _restart_arguments(parser: MagicParser) -> None:
    _add_name(parser)
    add_output(parser, "keep the handle in a variable")


def _restart(notebook: NotebookContext, args: argparse.Namespace) -> Running:
    """Stop a query and start it again from its checkpoint."""
    running = notebook.query(args.name)
    if running.launch is not None:
        handle = restart(notebook, running.launch, running)
    else:
        running.stop()
        handle = _follow(notebook, running.checkpoint.path, running.store, running.name, running.every)
    notebook.assign(args.output, handle)
    return handle


def _wait_arguments(parser: MagicParser) -> None:
    _add_name(parser)
    parser.add("--epoch", metavar="N", type=epoch, help="wait until this epoch is captured")
    parser.add("--timeout", metavar="S", type=seconds, help="give up after S seconds; the query continues")
    add_output(parser, "keep the newest captured epoch in a variable")


def _wait(notebook: NotebookContext, args: argparse.Namespace) -> None:
    """Wait for a query and show its progress; interrupting the wait leaves the query running."""
    __tracebackhide__ = True
    reached = _wait_for(notebook, notebook.query(args.name), args.epoch, args.timeout)
    notebook.assign(args.output, reached)


def _wait_for(
    notebook: NotebookContext, running: Running, epoch: int | None = None, timeout: float | None = None
) -> int:
    __tracebackhide__ = True
    stays = f"only the wait ended. {running.name} continues."
    with notebook.working(stays=stays, always=True) as progress:
        return running.wait(epoch, timeout, on_status=CaptureProgress(progress, epoch))


def _attach_arguments(parser: MagicParser) -> None:
    parser.add(
        "checkpoint", metavar="CHECKPOINT", completes="checkpoint", help="the query's checkpoint, wherever it runs"
    )
    parser.add("--name", help="the query's name in the store (default: as before, or the checkpoint's directory)")
    add_store(parser, "where to write the snapshots (default: the last store used)")
    add_every(parser)
    parser.add("--wait", action="store_true", help="wait until everything committed by now is captured")
    add_code(parser, "to show the query's result")
    add_output(parser, "keep the handle in a variable")


def _attach(notebook: NotebookContext, args: argparse.Namespace) -> Running:
    """Capture a query that was started elsewhere."""
    __tracebackhide__ = True
    checkpoint, store = location(args.checkpoint), notebook.store_path(args.store)
    check_store(Layout.at(store, notebook.options(store, args.storage_options)))
    if args.name is not None:
        check_name(args.name)
    if local_path(checkpoint) is not None:
        _ = CheckpointFiles(checkpoint).query_id  # raises if it is not a checkpoint, before Spark is started for it
    for running in notebook.running.values():
        if running.state in ACTIVE and (running.checkpoint.path == checkpoint or running.name == args.name):
            raise QueryError(
                f"This notebook already captures {running.name} from {running.checkpoint.path}.\n"
                f"See %stream status {running.name}, or %stream stop {running.name} first."
            )
    build = None if args.query is None else builder(notebook, args.query)
    if build is None and args.mode is not None:
        raise InvalidArgumentError("--mode is the mode of the query that --query gives. Add --query VAR.")
    # Beside Spark Connect only the worker process can plan a query, and describe() makes the same checks there.
    mode = args.mode if build is None or uses_connect() else output_mode(streaming_frame(build), args.mode)
    handle = _follow(notebook, checkpoint, store, args.name, args.every or notebook.settings.every)
    notebook.use_store(store)
    if build is not None:
        notebook.open(store)[handle.name].describe(build, mode=mode)
    notebook.assign(args.output, handle)
    if args.wait:
        _wait_for(notebook, handle)
    if not Plans(Layout.at(store, notebook.options(store)), handle.name).recorded():
        print(_UNPLANNED.format(name=handle.name))
    return handle


def _follow(notebook: NotebookContext, checkpoint: str, store: str, name: str | None, every: Every) -> Running:
    """Capture a checkpoint in the background."""
    from streamstate.snapshots.capture.follow import follow

    options, spark = notebook.options(store), classic_of(notebook.known_spark())
    capture = follow(checkpoint, store, name, every=every, spark=spark, storage_options=options)
    handle = Running(capture.name, store, checkpoint, capture, every=every)
    notebook.running.pop(handle.name, None)
    notebook.running[handle.name] = handle
    return handle


def _table(queries: list[Running]) -> SummaryTable:
    return status_table(running.status() for running in queries)


def _kept(notebook: NotebookContext, args: argparse.Namespace, table: SummaryTable) -> SummaryTable:
    """The table, also kept in a variable if the line names one."""
    if args.output is not None:
        notebook.assign(args.output, table.to_pandas())
    return table


def _uncaptured(notebook: NotebookContext) -> list[StreamingQuery]:
    """The queries that Spark runs in this process without a capture."""
    from streamstate.snapshots.spark.session import running_session

    spark = running_session() or (connect_session() if "pyspark" in sys.modules else None)
    known = {running.query.id for running in (STARTED | notebook.running).values() if running.query is not None}
    if spark is None:
        return []
    from streamstate.snapshots.capture.recording.record import recorder_queries

    known |= recorder_queries()
    return [query for query in spark.streams.active if query.id not in known]


_VERBS = (
    Verb(
        "list",
        "list the queries of this notebook: how they were started, where they write",
        _add_table_output,
        _list,
        "Running",
    ),
    Verb(
        "status",
        "show each query's newest epoch, lag, rows of state and last error",
        _status_arguments,
        _status,
        "Running.status",
    ),
    Verb(
        "wait", "wait until a query ends or an epoch is captured, with progress", _wait_arguments, _wait, "Running.wait"
    ),
    Verb("stop", "stop a query; what it committed is captured first", _stop_arguments, _stop, "Running.stop"),
    Verb(
        "restart",
        "stop a query and start it again from its checkpoint",
        _restart_arguments,
        _restart,
        "Running.restart",
    ),
    Verb("attach", "capture a query that was started elsewhere", _attach_arguments, _attach, "Checkpoint.follow"),
    CHECK,
    MIGRATE,
    RESCALE,
    POLICY,
    PROMOTE,
    STANDBY,
    HANDOVER,
    *REPLAY_VERBS,
)


def _parser() -> MagicParser:
    return MagicParser(
        "%stream",
        "Monitor and control the queries of this notebook. Without a verb, show their status.",
        verbs=_VERBS,
        epilog="Examples:\n  %stream\n  %stream wait delays --epoch 12\n  %stream attach checkpoints/delays --wait\n"
        "  %stream attach checkpoints/delays --query build_delays\n"
        "  %stream status -o status\n\n"
        "A cell that begins with %%stream NAME starts a query:\n\n" + STREAM_CELL.parser.format_help(),
    )


def _run(notebook: NotebookContext, _args: argparse.Namespace, _cell: str) -> SummaryTable:
    return _table(list(notebook.running.values()))


STREAM_LINE = Magic("line", "stream", _parser(), _run, python=("Running.status",))
