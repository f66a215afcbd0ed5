"""``%stream``: the queries of this notebook. Each verb is a parser and a function; a new one joins ``VERBS``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamstate.magics.arguments import MagicParser, VerbParser, add_output, add_store, epoch, every, seconds
from streamstate.magics.catching_up import CatchingUp
from streamstate.magics.debug_verbs import DEBUG_VERBS
from streamstate.magics.magic import Magic
from streamstate.magics.notebook import Notebook
from streamstate.magics.progress import working
from streamstate.magics.rescaling import RESCALE
from streamstate.magics.running import ACTIVE, RunningQuery
from streamstate.magics.signs import signed
from streamstate.magics.status import status_table
from streamstate.magics.stream_cell import PACES, STREAM_CELL, run_launch
from streamstate.magics.table import Table
from streamstate.magics.verb import Verb
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import QueryError
from streamstate.snapshots.filesystem import local_path, location
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.names import check_name
from streamstate.snapshots.registry import check_store

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.snapshots.pace import Every

__all__ = ["STREAM_LINE", "VERBS"]


def _one_name(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", nargs="?", completes="running", help="which query (may be left out for one)")


def _several_names(parser: MagicParser) -> None:
    parser.add("names", metavar="NAME", nargs="*", completes="running", help="which queries")


def _list_arguments(parser: MagicParser) -> None:
    add_output(parser, "keep the table in a variable, as a DataFrame")


def _status_arguments(parser: MagicParser) -> None:
    _several_names(parser)
    add_output(parser, "keep the table in a variable, as a DataFrame")


def _stop_arguments(parser: MagicParser) -> None:
    _several_names(parser)
    parser.add("--all", action="store_true", help="every query of this notebook")
    add_output(parser, "keep the table in a variable, as a DataFrame")


def _wait_arguments(parser: MagicParser) -> None:
    _one_name(parser)
    parser.add("--epoch", metavar="N", type=epoch, help="until this epoch is captured")
    parser.add("--timeout", metavar="S", type=seconds, help="give up after so many seconds; the query goes on")
    add_output(parser, "keep the newest captured epoch in a variable")


def _restart_arguments(parser: MagicParser) -> None:
    _one_name(parser)
    add_output(parser, "keep the handle in a variable")


def _attach_arguments(parser: MagicParser) -> None:
    parser.add(
        "checkpoint", metavar="CHECKPOINT", completes="checkpoint", help="the checkpoint of a query, wherever it runs"
    )
    parser.add("--name", help="what it is called in the store (default: as before, or as the checkpoint's folder)")
    add_store(parser, "where the snapshots go (default: the last store used)")
    parser.add(
        "--every",
        metavar="N",
        type=every,
        suggestions=PACES,
        help="capture once per N epochs, or per 10s, 2m, … (default: 1)",
    )
    parser.add("--wait", action="store_true", help="wait until what is committed by now is captured")
    add_output(parser, "keep the handle in a variable")


def _list(notebook: Notebook, args: argparse.Namespace) -> Table:
    """Every query of this notebook, and those that Spark runs here without a capture."""
    rows = []
    for one in notebook.running.values():
        launch = one.launch
        started = (launch.mode, launch.trigger or "as data arrives", launch.sink.format) if launch else (None,) * 3
        rows.append([one.name, signed(one.state), *started, one.store, one.checkpoint])
    rows += [[query.name or str(query.id), signed("not captured"), *(None,) * 5] for query in _uncaptured(notebook)]
    columns = ["name", "state", "mode", "trigger", "sink", "store", "checkpoint"]
    table = Table(columns, rows, empty="No queries yet: start one with %%stream NAME.", caption="Streaming queries")
    return _kept(notebook, args, table)


def _status(notebook: Notebook, args: argparse.Namespace) -> Table:
    """How far each query is."""
    table = status_table([notebook.query(name) for name in args.names or notebook.running])
    return _kept(notebook, args, table)


def _stop(notebook: Notebook, args: argparse.Namespace) -> Table:
    """Stop queries; what they committed is captured first."""
    __tracebackhide__ = True
    chosen = [notebook.query(name) for name in args.names]
    if args.all:
        chosen = list(notebook.running.values())
    chosen = chosen or [notebook.only_query()]
    with working(notebook.shell, stays="the capture ends by itself once what was committed is captured.") as progress:
        for one in chosen:
            one.stop(progress=CatchingUp(progress))
        progress.line = f"Stopped: {', '.join(one.name for one in chosen)}."
    return _kept(notebook, args, status_table(chosen))


def _restart(notebook: Notebook, args: argparse.Namespace) -> RunningQuery:
    """Stop a query and start it again from its checkpoint."""
    one = _chosen(notebook, args.name)
    if one.launch is not None:
        handle = run_launch(notebook, one.launch, one.store, one.every)
    else:
        one.stop()
        handle = _follow(notebook, one.checkpoint, one.store, one.name, one.every)
    notebook.assign(args.output, handle)
    return handle


def _wait(notebook: Notebook, args: argparse.Namespace) -> None:
    """Wait for a query, showing how far it is; interrupting it leaves the query running."""
    __tracebackhide__ = True
    reached = _wait_for(notebook, _chosen(notebook, args.name), args.epoch, args.timeout)
    notebook.assign(args.output, reached)


def _wait_for(notebook: Notebook, one: RunningQuery, epoch: int | None = None, timeout: float | None = None) -> int:
    __tracebackhide__ = True
    stays = f"only the waiting ended; {one.name} goes on."
    with working(notebook.shell, stays=stays, always=True) as progress:
        return one.wait(epoch, timeout, progress=CatchingUp(progress, epoch))


def _attach(notebook: Notebook, args: argparse.Namespace) -> RunningQuery:
    """Capture a query that was started elsewhere."""
    __tracebackhide__ = True
    checkpoint, store = location(args.checkpoint), notebook.store_path(args.store)
    check_store(Layout.at(store, notebook.options(store, args.storage_options)))
    if args.name is not None:
        check_name(args.name)
    if local_path(checkpoint) is not None:
        _ = Checkpoint(checkpoint).query_id  # refuses what is no checkpoint before Spark is started for it
    for one in notebook.running.values():
        if one.state in ACTIVE and (one.checkpoint == checkpoint or one.name == args.name):
            raise QueryError(
                f"This notebook captures {one.name} from {one.checkpoint} already.\n"
                f"See %stream status {one.name}, or %stream stop {one.name} first."
            )
    handle = _follow(notebook, checkpoint, store, args.name, args.every or notebook.settings.every)
    notebook.use_store(store)
    notebook.assign(args.output, handle)
    if args.wait:
        _wait_for(notebook, handle)
    return handle


def _follow(notebook: Notebook, checkpoint: str, store: str, name: str | None, every: Every) -> RunningQuery:
    """Follow a checkpoint under a name."""
    from streamstate.snapshots.follow import follow

    options = notebook.options(store)
    capture = follow(checkpoint, store, name, every=every, spark=notebook.spark(), storage_options=options)
    handle = RunningQuery(capture.name, store, checkpoint, capture, every=every)
    notebook.running.pop(handle.name, None)
    notebook.running[handle.name] = handle
    return handle


def _kept(notebook: Notebook, args: argparse.Namespace, table: Table) -> Table:
    """The table, kept in a variable where one was asked for."""
    if args.output is not None:
        notebook.assign(args.output, table.to_pandas())
    return table


def _chosen(notebook: Notebook, name: str | None) -> RunningQuery:
    return notebook.only_query() if name is None else notebook.query(name)


def _uncaptured(notebook: Notebook) -> list[StreamingQuery]:
    """Queries that Spark runs in this process and nobody here captures."""
    from streamstate.spark_session import running_session

    spark = running_session()
    known = {one.query.id for one in notebook.running.values() if one.query is not None}
    return [] if spark is None else [query for query in spark.streams.active if query.id not in known]


VERBS = (
    Verb("list", "the queries of this notebook, how they were started and where they write", _list_arguments, _list),
    Verb(
        "status", "how far each query is: epoch, how far behind, rows of state, last error", _status_arguments, _status
    ),
    Verb("wait", "wait until a query has ended, or an epoch is captured; shows progress", _wait_arguments, _wait),
    Verb("stop", "stop a query; what it committed is captured first", _stop_arguments, _stop),
    Verb("restart", "stop a query and start it again from its checkpoint", _restart_arguments, _restart),
    Verb("attach", "capture a query that was started elsewhere", _attach_arguments, _attach),
    RESCALE,
    *DEBUG_VERBS,
)


def _parser() -> MagicParser:
    return VerbParser(
        "%stream",
        "See and steer the queries of this notebook; without a verb: their status.",
        verbs=[verb.parsed for verb in VERBS],
        epilog="Examples:\n  %stream\n  %stream wait delays --epoch 12\n  %stream attach checkpoints/delays --wait\n"
        "  %stream status -o status\n\n"
        "A cell that begins with %%stream NAME starts a query:\n\n" + STREAM_CELL.parser.format_help(),
    )


def _run(notebook: Notebook, args: argparse.Namespace, _cell: str) -> Any:
    __tracebackhide__ = True
    chosen = next((verb for verb in VERBS if verb.name == args.verb), None)
    return status_table(list(notebook.running.values())) if chosen is None else chosen.run(notebook, args)


STREAM_LINE = Magic("line", "stream", _parser(), _run)
