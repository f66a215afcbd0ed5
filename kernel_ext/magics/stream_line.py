"""``%stream``: the queries of this notebook. Each verb is a parser and a function; a new one joins ``VERBS``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.magics.arguments import MagicParser, epoch, every
from streamstate.magics.magic import Magic
from streamstate.magics.notebook import Notebook
from streamstate.magics.running import RunningQuery, status_table
from streamstate.magics.stream_cell import STREAM_CELL, run_launch
from streamstate.magics.table import Table
from streamstate.magics.waiting import show_progress
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import QueryError
from streamstate.snapshots.filesystem import local_path, location
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.names import check_name
from streamstate.snapshots.registry import check_store

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.snapshots.pace import Every

__all__ = ["STREAM_LINE", "VERBS", "Verb"]


@dataclass(frozen=True)
class Verb:
    """One word that may follow ``%stream``."""

    name: str
    summary: str
    arguments: Callable[[MagicParser], None]
    run: Callable[[Notebook, argparse.Namespace], Any]


def _one_name(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", nargs="?", completes="running", help="which query (may be left out for one)")


def _several_names(parser: MagicParser) -> None:
    parser.add("names", metavar="NAME", nargs="*", completes="running", help="which queries")


def _stop_arguments(parser: MagicParser) -> None:
    _several_names(parser)
    parser.add("--all", action="store_true", help="every query of this notebook")


def _wait_arguments(parser: MagicParser) -> None:
    _one_name(parser)
    parser.add("--epoch", metavar="N", type=epoch, help="until this epoch is captured")
    parser.add("--timeout", metavar="S", type=float, help="give up after so many seconds; the query goes on")


def _attach_arguments(parser: MagicParser) -> None:
    parser.add("checkpoint", metavar="CHECKPOINT", completes="path", help="the checkpoint of a query, wherever it runs")
    parser.add("--name", help="what it is called in the store (default: as before, or as the checkpoint's folder)")
    parser.add("--store", metavar="DIR", completes="path", help="where the snapshots go (default: the last store used)")
    parser.add("--every", metavar="N", type=every, default=1, help="capture once per N epochs, or per 10s, 2m, …")


def _list(notebook: Notebook, _args: argparse.Namespace) -> Table:
    """Every query of this notebook, and those that Spark runs here without a capture."""
    rows = []
    for one in notebook.running.values():
        launch = one.launch
        started = (launch.mode, launch.trigger or "as data arrives", launch.sink.format) if launch else (None,) * 3
        rows.append([one.name, one.state, *started, one.store, one.checkpoint])
    rows += [[query.name or str(query.id), "not captured", *(None,) * 5] for query in _uncaptured(notebook)]
    columns = ["name", "state", "mode", "trigger", "sink", "store", "checkpoint"]
    return Table(columns, rows, empty="No queries yet: start one with %%stream NAME.", caption="Streaming queries")


def _status(notebook: Notebook, args: argparse.Namespace) -> Table:
    """How far each query is."""
    return status_table([notebook.query(name) for name in args.names or notebook.running])


def _stop(notebook: Notebook, args: argparse.Namespace) -> Table:
    """Stop queries; what they committed is captured first."""
    chosen = [notebook.query(name) for name in args.names]
    if args.all:
        chosen = list(notebook.running.values())
    chosen = chosen or [notebook.only_query()]
    for one in chosen:
        one.stop()
    return status_table(chosen)


def _restart(notebook: Notebook, args: argparse.Namespace) -> RunningQuery:
    """Stop a query and start it again from its checkpoint."""
    one = _chosen(notebook, args.name)
    if one.launch is not None:
        return run_launch(notebook, one.launch, one.store, one.every)
    one.stop()
    return _follow(notebook, one.checkpoint, one.store, one.name, one.every)


def _wait(notebook: Notebook, args: argparse.Namespace) -> None:
    """Wait for a query, showing how far it is; interrupting it leaves the query running."""
    __tracebackhide__ = True
    one = _chosen(notebook, args.name)
    try:
        with show_progress(notebook.shell) as progress:
            one.wait(args.epoch, args.timeout, progress=progress)
    except KeyboardInterrupt as interrupt:
        # Where in the waiting it struck tells nobody anything.
        raise interrupt.with_traceback(None) from None


def _attach(notebook: Notebook, args: argparse.Namespace) -> RunningQuery:
    """Capture a query that was started elsewhere."""
    checkpoint, store = location(args.checkpoint), notebook.store_path(args.store)
    check_store(Layout.at(store))
    if args.name is not None:
        check_name(args.name)
    if local_path(checkpoint) is not None:
        _ = Checkpoint(checkpoint).query_id  # refuses what is no checkpoint before Spark is started for it
    for one in notebook.running.values():
        if one.state in ("running", "followed") and (one.checkpoint == checkpoint or one.name == args.name):
            raise QueryError(
                f"This notebook captures {one.name} from {one.checkpoint} already.\n"
                f"See %stream status {one.name}, or %stream stop {one.name} first."
            )
    handle = _follow(notebook, checkpoint, store, args.name, args.every)
    notebook.use_store(store)
    return handle


def _follow(notebook: Notebook, checkpoint: str, store: str, name: str | None, every: Every) -> RunningQuery:
    """Follow a checkpoint under a name."""
    from streamstate.snapshots.follow import follow

    capture = follow(checkpoint, store, name, every=every, spark=notebook.spark())
    handle = RunningQuery(capture.name, store, checkpoint, capture, every=every)
    notebook.running.pop(handle.name, None)
    notebook.running[handle.name] = handle
    return handle


def _chosen(notebook: Notebook, name: str | None) -> RunningQuery:
    return notebook.only_query() if name is None else notebook.query(name)


def _uncaptured(notebook: Notebook) -> list[StreamingQuery]:
    """Queries that Spark runs in this process and nobody here captures."""
    from streamstate.spark_session import running_session

    spark = running_session()
    known = {one.query.id for one in notebook.running.values() if one.query is not None}
    return [] if spark is None else [query for query in spark.streams.active if query.id not in known]


VERBS = (
    Verb("list", "the queries of this notebook, how they were started and where they write", lambda _: None, _list),
    Verb("status", "how far each query is: epoch, how far behind, rows of state, last error", _several_names, _status),
    Verb("wait", "wait until a query has ended, or an epoch is captured; shows progress", _wait_arguments, _wait),
    Verb("stop", "stop a query; what it committed is captured first", _stop_arguments, _stop),
    Verb("restart", "stop a query and start it again from its checkpoint", _one_name, _restart),
    Verb("attach", "capture a query that was started elsewhere", _attach_arguments, _attach),
)


def _parser() -> MagicParser:
    parser = MagicParser(
        "%stream",
        "See and steer the queries of this notebook; without a verb: their status.",
        epilog="%stream VERB --help explains a verb. A cell that begins with %%stream NAME starts a query:\n\n"
        + STREAM_CELL.parser.format_help(),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=MagicParser)
    for verb in VERBS:
        parser.verbs[verb.name] = added = verbs.add_parser(
            verb.name, prog=f"%stream {verb.name}", description=verb.summary.capitalize() + ".", help=verb.summary
        )
        verb.arguments(added)
    return parser


def _run(notebook: Notebook, args: argparse.Namespace, _cell: str) -> Any:
    __tracebackhide__ = True
    chosen = next((verb for verb in VERBS if verb.name == args.verb), None)
    return status_table(list(notebook.running.values())) if chosen is None else chosen.run(notebook, args)


STREAM_LINE = Magic("line", "stream", _parser(), _run)
