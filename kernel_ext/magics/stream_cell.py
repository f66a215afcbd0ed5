"""``%%stream``: a cell that makes a streaming DataFrame becomes a query whose every epoch is captured."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamstate.magics.arguments import MagicParser, add_output, add_store, count, every
from streamstate.magics.cell import cell_value, last_assigned
from streamstate.magics.launch import Launch, Sink, trigger_options
from streamstate.magics.magic import Magic
from streamstate.magics.notebook import Notebook, checkpoint_beside, require_cell
from streamstate.magics.plan import MODES, check_mode, check_state, first_line
from streamstate.magics.preflight import query_id_of
from streamstate.magics.running import ACTIVE, RunningQuery
from streamstate.recovery.back_off import BackOff
from streamstate.recovery.unfinished import recover
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import InvalidSQLError, QueryError
from streamstate.snapshots.filesystem import location
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.names import check_name
from streamstate.snapshots.registry import check_name_free, check_store, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.recovery.supervision import Supervised
    from streamstate.snapshots import Capture
    from streamstate.snapshots.pace import Every

__all__ = ["PACES", "STREAM_CELL", "run_launch"]

_TRIGGERS = ("available-now", "once", "500ms", "1s", "10s", "1m")
_SINKS = ("noop", "memory", "console", "parquet:", "json:")
PACES = ("1", "10", "1s", "10s", "1m")
_EVERY = "capture once per N epochs, or per 10s, 2m, … (default: 1)"

_EXAMPLE = 'spark.readStream.schema("carrier string, delay int").json("flights").groupBy("carrier").avg("delay")'


def _parser() -> MagicParser:
    parser = MagicParser(
        "%%stream",
        "Start the streaming query that the cell makes, and capture the state of each of its epochs.\n\n"
        "The cell ends with a streaming DataFrame (or, with --sql, is one SELECT over streaming views). The handle of\n"
        "the query is returned at once. The same NAME again stops the query and resumes it from its checkpoint.",
        epilog=f"Examples:\n  %%stream delays --trigger 1s\n  {_EXAMPLE}\n\n"
        "  %%stream delays --sql --mode complete -o delays_query\n"
        "  SELECT carrier, avg(delay) FROM flights GROUP BY carrier",
    )
    parser.add("name", metavar="NAME", completes="query", help="what the query is called in the store and in SQL")
    parser.add("--sql", action="store_true", help="the cell is SQL for Spark, not Python")
    parser.add("--mode", choices=MODES, default="update", help="output mode (default: update)")
    parser.add(
        "--trigger",
        metavar="WHEN",
        suggestions=_TRIGGERS,
        help="1s, 500ms, 5m …; available-now; once (default: as data arrives)",
    )
    parser.add(
        "--sink", default="noop", suggestions=_SINKS, help="noop, memory, console or FORMAT:PATH (default: noop)"
    )
    add_store(parser, "where the snapshots go (default: the last store used)")
    parser.add("--checkpoint", metavar="DIR", completes="checkpoint", help="default: beside the store")
    parser.add("--every", metavar="N", type=every, suggestions=PACES, help=_EVERY)
    parser.add("--partitions", metavar="N", type=count, help="how many partitions a new query's state has")
    parser.add(
        "--restart",
        metavar="N",
        nargs="?",
        type=count,
        const=BackOff().restarts,
        help="start the query again when it fails, with growing waits, up to N times in ten minutes (default: 5)",
    )
    add_output(parser, "keep the handle in a variable")
    return parser


def _run(notebook: Notebook, args: argparse.Namespace, cell: str) -> RunningQuery:
    """Check everything, then start."""
    __tracebackhide__ = True
    name, sink, store = check_name(args.name), Sink.parse(args.sink), notebook.store_path(args.store)
    require_cell(cell, "%%stream", _EXAMPLE)
    trigger_options(args.trigger)
    sink.check(args.mode)
    layout = Layout.at(store, notebook.options(store, args.storage_options))
    check_store(layout)
    frame = _sql_frame(notebook, cell) if args.sql else _python_frame(notebook, cell)
    check_state(frame)
    check_mode(frame, args.mode)
    checkpoint = location(args.checkpoint or checkpoint_beside(store, name))
    check_name_free(layout, name, query_id_of(checkpoint, frame.sparkSession), checkpoint)
    restart = None if args.restart is None else BackOff(restarts=args.restart)
    launch = Launch(name, frame, checkpoint, args.mode, sink, args.trigger, args.partitions, restart)
    handle = run_launch(notebook, launch, store, args.every or notebook.settings.every)
    notebook.use_store(store)
    notebook.assign(args.output, handle)
    return handle


def run_launch(notebook: Notebook, launch: Launch, store: str, every: Every) -> RunningQuery:
    """Start a query that was found to be right, in the place of the one that has its name.

    Raises:
        QueryError: another running query has its name or its checkpoint, or Spark refuses it.
    """
    from streamstate.snapshots.follow import follow
    from streamstate.spark_session import advise

    spark = launch.frame.sparkSession
    before = notebook.running.get(launch.name)
    was_running = before is not None and before.state in ("running", "restarting")
    _check_alone(notebook, launch)
    committed = Checkpoint(launch.checkpoint, spark).committed()
    launch.check_resumes(committed)
    advise(spark)
    if before is not None:
        before.stop()
    _recover(launch)
    _announce(launch, was_running=was_running)
    query = launch.start()
    try:
        # At once, so that the next cell can look although nothing is captured yet; the plan is known to keep state.
        options = notebook.options(store)
        register(Layout.at(store, options), launch.name, str(query.id), launch.checkpoint)
        # A query that is started again goes on under another handle: its checkpoint is what stays.
        followed = query if launch.restart is None else launch.checkpoint
        capture = follow(followed, store, launch.name, every=every, spark=spark, storage_options=options)
        supervised = _supervised(launch, query, capture)
    except BaseException:
        query.stop()
        raise
    handle = RunningQuery(
        launch.name, store, launch.checkpoint, capture, query=query, launch=launch, every=every, supervised=supervised
    )
    notebook.running.pop(launch.name, None)
    notebook.running[launch.name] = handle
    return handle


def _supervised(launch: Launch, query: StreamingQuery, capture: Capture) -> Supervised | None:
    """What starts the query again, where that was asked for; its end is the capture's."""
    if launch.restart is None:
        return None
    from streamstate.recovery.supervision import Supervised

    return Supervised(launch.start, query, back_off=launch.restart, ended=capture.end)


def _recover(launch: Launch) -> None:
    """Take back a rescale that was killed, and say so."""
    spark = launch.frame.sparkSession
    found = recover(Checkpoint(launch.checkpoint, spark), spark)
    if found is not None:
        print(
            f"A rescale of {launch.name} to {found.wanted} partitions was killed before it was verified;"
            f" it was taken back: {launch.name} has {found.partitions} partitions, as before."
        )


def _python_frame(notebook: Notebook, cell: str) -> DataFrame:
    """The streaming DataFrame that the cell ends with."""
    __tracebackhide__ = True
    if "spark" not in notebook.shell.user_ns:
        notebook.spark()
    value = cell_value(notebook.shell, cell)
    if value is not None:
        return _streaming(value, "The cell's value")
    assigned = last_assigned(notebook.shell, cell)
    end = f"end it with a line that says just {assigned}" if assigned else "end it with the streaming DataFrame"
    raise QueryError(f"The cell has no value: its last line is no expression, or is None.\nTo make a query, {end}.")


def _sql_frame(notebook: Notebook, cell: str) -> DataFrame:
    """The streaming DataFrame that the cell's SQL means."""
    from pyspark.errors import AnalysisException, ParseException

    spark = notebook.spark()
    try:
        return _streaming(spark.sql(cell), "This SQL's result")
    except ParseException as error:
        raise InvalidSQLError(f"Spark cannot read this SQL: {str(error).strip()}") from None
    except AnalysisException as error:
        streaming = [table.name for table in spark.catalog.listTables() if table.isTemporary]
        raise InvalidSQLError(
            f"Spark refuses this SQL: {first_line(error)}\nTemporary views: {', '.join(streaming) or 'none'}. "
            "Make one from a stream with createOrReplaceTempView."
        ) from None


def _streaming(value: Any, what: str) -> DataFrame:
    """The value, where it is a streaming DataFrame."""
    from pyspark.sql import DataFrame

    kind = type(value).__name__
    if not isinstance(value, DataFrame):
        hint = "Leave out .writeStream and .start(): %%stream does that." if "Stream" in kind else _EXAMPLE
        raise QueryError(f"{what} is a {kind}, not a streaming DataFrame.\n{hint}")
    if not value.isStreaming:
        raise QueryError(f"{what} is a DataFrame that is read once, not a stream.\nStart from spark.readStream.")
    if not hasattr(value, "_jdf"):
        raise QueryError("This DataFrame is of Spark Connect; state can be captured only beside a classic session.")
    return value


def _check_alone(notebook: Notebook, launch: Launch) -> None:
    """Raise where another running query has the name or the checkpoint."""
    own = notebook.running.get(launch.name)
    mine = own.query.id if own is not None and own.query is not None else None
    for other in launch.frame.sparkSession.streams.active:
        if other.name == launch.name and other.id != mine:
            raise QueryError(
                f"Spark runs a query called {launch.name!r} already, which this notebook did not start with %%stream.\n"
                "Stop it first (spark.streams.active lists them), or use another name."
            )
    for one in notebook.running.values():
        if one.name != launch.name and one.checkpoint == launch.checkpoint and one.state in ACTIVE:
            raise QueryError(
                f"The checkpoint {launch.checkpoint} is in use by {one.name}.\n"
                f"%stream stop {one.name} first, or give --checkpoint another folder."
            )


def _announce(launch: Launch, *, was_running: bool) -> None:
    """Say in one line when a query goes on where it was, rather than from the start."""
    checkpoint = Checkpoint(launch.checkpoint, launch.frame.sparkSession)
    committed = checkpoint.committed()
    stopped = f"{launch.name} was stopped. " if was_running else ""
    if committed:
        print(f"{stopped}{launch.name} resumes after epoch {committed[-1]}, from {launch.checkpoint}")
        _announce_partitions(launch, checkpoint, committed[-1])
    elif stopped:
        print(f"{stopped}{launch.name} starts from the beginning, in {launch.checkpoint}")


def _announce_partitions(launch: Launch, checkpoint: Checkpoint, epoch: int) -> None:
    planned = checkpoint.planned(epoch)
    kept = planned.conf.get("spark.sql.shuffle.partitions") if planned else None
    if launch.partitions is not None and kept not in (None, str(launch.partitions)):
        print(f"{launch.name} keeps its {kept} partitions: a checkpoint fixes them.")


STREAM_CELL = Magic("cell", "stream", _parser(), _run)
