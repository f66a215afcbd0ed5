"""``%stream migrate``: stop a query, and start its changed code with its state."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.command_line.argument_types import identifier
from streamstate.errors import InvalidArgumentError, QueryError, SparkConnectError, StateWriteError
from streamstate.launch.launch import Launch, with_partitions
from streamstate.launch.running import RUNNING, Running
from streamstate.launch.starting import check_launch, streaming_frame
from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.interruption import interruption, own_launch, restart, stop_captured
from streamstate.magics.notebook_context import NotebookContext, QueryCode
from streamstate.magics.query_code import KnownQuery, add_changed_code, check_free, code_of, known_query
from streamstate.operations.checkpoint import Checkpoint
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import files_for, location
from streamstate.snapshots.spark.connect import is_of_connect
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.names import unused

if TYPE_CHECKING:
    from streamstate.operations.new_checkpoint.written_checkpoint import WrittenCheckpoint
    from streamstate.state_inspect import Store
    from streamstate.widgets.progress import Progress


def _arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="the query before the change; it is stopped, and kept")
    add_changed_code(parser)
    parser.add(
        "--mapping",
        metavar="VAR",
        type=identifier,
        completes="variable",
        help="a dict: for each new state table, SQL over the old ones, or a function (default: what is obvious)",
    )
    parser.add("--to", metavar="DIR", completes="path", help="the new checkpoint (default: beside the old one)")
    parser.add("--as", dest="new", metavar="NEW", help="the name of the changed query (default: NAME_2, …)")
    add_output(parser, "keep the new checkpoint in a variable")


def _migrate(notebook: NotebookContext, args: argparse.Namespace) -> WrittenCheckpoint:
    """Check, stop the query, migrate, and start the changed query; if anything fails, the query continues as before."""
    __tracebackhide__ = True
    query, running = known_query(notebook, args.name), notebook.running.get(args.name)
    _check_own(query, running)
    mapping = _mapping(notebook, args.mapping)
    changed = _changed(notebook, query, running, args, code_of(notebook, query, args.code, args.mode))
    store = notebook.open(query.store)
    if mapping is None:
        _say_proposed(query, changed, store)
    ran = running is not None and running.state in RUNNING
    stays = f"{query.name} continues as before." if ran else f"{query.name} is unchanged."
    written = None

    def undo() -> None:
        assert running is not None
        _continue(notebook, running, changed, written)

    with interruption(notebook, running, stays=stays, undo=undo) as stopped:
        if running is not None:
            stop_captured(notebook, running, stopped.progress)
        written = _written(query, changed, mapping, store, stopped.progress)
        state = f"the state of {query.name} after epoch {written.epoch}"
        stopped.progress.line = f"{changed.name} has {state}."
        if running is not None and ran:
            restart(notebook, changed, running)
            written = replace(written, started=changed.name)
            stopped.progress.line = f"{query.name} was stopped. {changed.name} was started with {state}."
    if not ran:
        cell = _cell(notebook, args.code, changed)
        print(f"{query.name} was not running, so {changed.name} was not started. Start it:\n{cell}")
    notebook.assign(args.output, written)
    return written


def _check_own(query: KnownQuery, running: Running | None) -> None:
    """Refuse a query that another process may run, and one that reads more than its code does."""
    if running is None:
        return
    call = f"streamstate.Checkpoint({query.checkpoint!r}).migrate(build_query, to=…)"
    launch = own_launch(running, call)
    if launch.shared or launch.recorders():
        raise QueryError(
            f"The checkpoint of {query.name} knows shared variables or recordings of its input, which changed code"
            f" does not read by itself.\nStop it, and call {call} with code that reads them."
        )


def _mapping(notebook: NotebookContext, name: str | None) -> Mapping[str, Any] | None:
    value = None if name is None else notebook.shell.user_ns.get(name)
    if name is None or isinstance(value, Mapping):
        return value
    kind = "not defined" if value is None else f"of type {type(value).__name__}"
    raise InvalidArgumentError(
        f"Invalid --mapping {name}: {name} is {kind}.\n"
        "Expected a dict such as {'op0': 'SELECT carrier, sum(count) AS count FROM op0 GROUP BY carrier'}."
    )


def _changed(
    notebook: NotebookContext, query: KnownQuery, running: Running | None, args: argparse.Namespace, code: QueryCode
) -> Launch:
    """Return the launch of the changed query; refuse here, while the query runs, what would be refused later."""
    name = args.new or unused(query.name, {*notebook.running, *notebook.open(query.store).queries()})
    check_free(notebook, query.store, name)
    frame = streaming_frame(code.build(), args.code)
    if is_of_connect(frame):
        raise SparkConnectError(
            "Through Spark Connect, a query is migrated and started in two steps:\n"
            f"streamstate.Checkpoint({query.checkpoint!r}).migrate({args.code}, to=PATH), then"
            f" %%stream {name} --checkpoint PATH."
        )
    spark, parent = frame.sparkSession, query.checkpoint.rpartition("/")[0]
    files = files_for(spark, query.checkpoint)
    path = location(args.to) if args.to else f"{parent}/{unused(name, files.names(parent))}"
    if files_for(spark, path).names(path):
        raise StateWriteError.target_exists(path)
    before = running.launch if running is not None and running.launch is not None else Launch(name, frame, path)
    changed = replace(before, name=name, frame=frame, checkpoint=path, mode=code.mode)
    check_launch(changed, Layout.at(query.store, notebook.options(query.store)))
    changed.sink.check(changed.mode)
    old = CheckpointFiles(query.checkpoint, spark)
    changed.check_resumes(old.committed())
    _check_sources(old, changed)
    return changed


def _check_sources(old: CheckpointFiles, changed: Launch) -> None:
    """Refuse sources without a known position to continue from."""
    from streamstate.operations.new_checkpoint.migrate import carried_sources
    from streamstate.operations.new_checkpoint.target import TargetQuery

    planned = old.newest_plan()
    if planned is not None:
        carried_sources(TargetQuery.of(lambda: changed.frame, changed.mode), planned, None)


def _say_proposed(query: KnownQuery, changed: Launch, store: Store) -> None:
    """Print the mapping that is obvious, or raise if none is."""
    build, old = lambda: changed.frame, Checkpoint(query.checkpoint)
    proposed = old.propose_mapping(build, mode=changed.mode, store=store, rows=0)
    proposed.check()
    for proposal in proposed:
        print("\n  ".join([f"{proposal.table}: {proposal.sql}", *proposal.notes]))


def _written(
    query: KnownQuery, changed: Launch, mapping: Mapping[str, Any] | None, store: Store, progress: Progress
) -> WrittenCheckpoint:
    with with_partitions(changed.frame.sparkSession, changed.partitions):
        return Checkpoint(query.checkpoint).migrate(
            lambda: changed.frame,
            to=changed.checkpoint,
            mapping=mapping,
            mode=changed.mode,
            store=store,
            progress=progress.of(query.name),
        )


def _continue(notebook: NotebookContext, running: Running, changed: Launch, written: WrittenCheckpoint | None) -> None:
    """Start the query again as it was, unless the changed one has begun an epoch; else delete the new checkpoint."""
    assert running.launch is not None
    if written is not None:
        spark = changed.frame.sparkSession
        if CheckpointFiles(written.path, spark).begun()[-1] > written.epoch:
            print(f"{changed.name} had begun an epoch; its results may be in the sink: {running.name} stays stopped.")
            return
        files_for(spark, written.path).remove_tree(written.path)
    restart(notebook, running.launch, running)


def _cell(notebook: NotebookContext, code: str, changed: Launch) -> str:
    """The cell that starts the changed query."""
    sink = changed.sink
    options = {
        "checkpoint": changed.checkpoint,
        "mode": changed.mode,
        "trigger": changed.trigger,
        "sink": sink.format if sink.path is None else f"{sink.format}:{sink.path}",
    }
    given = " ".join(f"--{name} {shlex.quote(value)}" for name, value in options.items() if value is not None)
    given += "".join(f" --sink-option {name}=…" for name in sink.options)
    call = "()" if callable(notebook.shell.user_ns[code]) else ""
    return f"%%stream {changed.name} {given}\n{code}{call}"


MIGRATE = Verb(
    "migrate", "let changed code continue with the state of a query", _arguments, _migrate, "Checkpoint.migrate"
)
