"""``%stream fork``, ``step``, ``back``, ``debug``, ``replay`` and ``audit``: run epochs of a query again, beside it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamstate.command_line.argument_types import KEY_HELP, count, epoch, epochs
from streamstate.errors import EpochGoneError, InvalidArgumentError, NotACheckpointError
from streamstate.launch.starting import checkpoint_beside
from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.query_code import (
    CodeRun,
    KnownQuery,
    add_code,
    add_edits,
    check_free,
    code_of,
    edits_of,
    known_code,
    known_query,
)
from streamstate.operations.checkpoint import Checkpoint
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.connect import classic_of
from streamstate.snapshots.store.names import check_name, unused

if TYPE_CHECKING:
    from streamstate.operations.fork import Fork
    from streamstate.operations.new_checkpoint.written_checkpoint import WrittenCheckpoint
    from streamstate.replay.audit import Audit
    from streamstate.replay.debugging.session import DebugSession
    from streamstate.replay.replay import Replay
    from streamstate.replay.stepping.step_report import StepReport

_UNLIMITED = 1_000
"""How many epochs to run at most if a condition says when to stop."""


def _add_at(parser: MagicParser, help: str) -> None:  # noqa: A002 (argparse's word)
    parser.add("--at", metavar="N", type=epoch, completes="epoch", help=help)


def _fork_arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="the query to fork; it may be running")
    _add_at(parser, "the last epoch that both share (default: the newest committed epoch)")
    parser.add("--as", dest="new", metavar="NEW", required=True, help="the name of the fork")
    parser.add(
        "--verify",
        choices=("files", "rows"),
        default="files",
        help="compare the files of both, or also the rows that Spark reads (default: files)",
    )
    add_edits(parser)
    add_code(parser)
    add_output(parser, "keep the fork in a variable")


def _fork(notebook: NotebookContext, args: argparse.Namespace) -> None:
    """A fork in the same store."""
    __tracebackhide__ = True
    query = known_query(notebook, args.name)
    check_free(notebook, query.store, args.new)
    if args.query is not None:
        notebook.codes[args.new] = code_of(notebook, query, args.query, args.mode)
    fork = _make_fork(notebook, query, args.at, args.new, verify=args.verify, **edits_of(args))
    print(
        f"{args.new} is a fork of {query.name} at epoch {fork.epoch}.\n"
        f"%stream step {args.new} runs its next epoch, %state {args.new} shows its state."
    )
    notebook.assign(args.output, fork)


def _step_arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="a fork")
    parser.add("--epochs", metavar="N", type=count, help="the maximum number of epochs to run (default: 1)")
    parser.add(
        "--until",
        metavar="CONDITION",
        completes="where",
        help='stop after an epoch in which this holds for a changed row, such as "max > 300"; or error',
    )
    parser.add(
        "--key",
        metavar="COL=VALUE",
        nargs="+",
        action="extend",
        completes="key",
        help=f"stop after the epoch that changes a key: {KEY_HELP}",
    )
    parser.add("--new-input", action="store_true", help="continue with new input after the original's last epoch")
    add_code(parser)
    add_output(parser, "keep the report in a variable")


def _step(notebook: NotebookContext, args: argparse.Namespace) -> StepReport:
    """The next epochs of a fork, each captured."""
    __tracebackhide__ = True
    if args.until is not None and args.key:
        raise InvalidArgumentError("--until and --key cannot be combined: each says when to stop. Use one of them.")
    run = CodeRun.of(notebook, args, args.query)
    until: Any = args.until
    if args.key:
        until = notebook.open(run.query.store)[run.query.name].live().table().table_key.read(args.key)
    return run.report(
        Checkpoint.step,
        stays=f"{run.query.name} is at its last complete epoch.",
        line=lambda report: f"{run.query.name} is at epoch {report.epoch}.",
        epochs=args.epochs or (1 if until is None else _UNLIMITED),
        until=until,
        store=run.query.store,
        name=run.query.name,
        new_input=args.new_input,
    )


def _back_arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="a fork; it stays as it is")
    parser.add("--epochs", metavar="N", type=count, default=1, help="how many epochs to go back (default: 1)")
    parser.add("--as", dest="new", metavar="NEW", help="the name of the new branch (default: NAME_2, …)")
    add_output(parser, "keep the new branch in a variable")


def _back(notebook: NotebookContext, args: argparse.Namespace) -> None:
    """A new branch at an earlier epoch of a fork."""
    __tracebackhide__ = True
    query = known_query(notebook, args.name)
    if query.parent is None or query.forked_at is None:
        raise InvalidArgumentError(
            f"{query.name} is not a fork, and an original query cannot go back.\n"
            f"Fork it at the epoch to go back to: %stream fork {query.name} --at N --as NEW."
        )
    target = CheckpointFiles(query.checkpoint, classic_of(notebook.spark())).committed()[-1] - args.epochs
    if target < 0:
        raise InvalidArgumentError(f"{query.name} cannot go back {args.epochs} epochs: it has fewer.")
    name = unused(query.name, notebook.open(query.store).queries()) if args.new is None else args.new
    check_free(notebook, query.store, name)
    parent = _owner(notebook, query, target)
    if query.name in notebook.codes:
        notebook.codes[name] = notebook.codes[query.name]
    fork = _make_fork(notebook, parent, target, name)
    print(f"{name} is a branch of {parent.name} at epoch {target}. {query.name} stays as it is.")
    notebook.assign(args.output, fork)


def _debug_arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="the query to debug; it may be running")
    _add_at(parser, "the epoch to begin at (default: the oldest one possible)")
    parser.add("--as", dest="new", metavar="NEW", help="the name of the branches (default: debug_NAME)")
    add_code(parser)
    add_output(parser, "keep the session in a variable")


def _debug(notebook: NotebookContext, args: argparse.Namespace) -> DebugSession:
    """A session, which the notebook displays as the debugger view."""
    __tracebackhide__ = True
    run = CodeRun.of(notebook, args, args.query)
    name = check_name(args.new or f"debug_{run.query.name}")
    session = run.report(
        Checkpoint.debug,
        stays="no debug session was started.",
        line=lambda session: f"{session.name} is at epoch {session.epoch}.",
        at=args.at,
        directory=checkpoint_beside(run.query.store, ""),
        store=run.query.store,
        name=name,
    )
    notebook.sessions.append(session)
    notebook.codes.setdefault(name, run.code)
    return session


def _make_fork(
    notebook: NotebookContext, query: KnownQuery, at: int | None, name: str, *, verify: str = "files", **changes: Any
) -> Fork | WrittenCheckpoint:
    """A fork beside the store, captured into it; restored from the store if the epoch or the checkpoint is gone."""
    __tracebackhide__ = True
    with notebook.working(stays="the fork is either complete or was not created.") as progress:
        target, spark, options = checkpoint_beside(query.store, name), notebook.spark(), notebook.options(query.store)
        progress.say(f"{name}: linking the state of {query.name}")
        try:
            made: Fork | WrittenCheckpoint = Checkpoint(query.checkpoint, storage_options=options).fork(
                target, at=at, verify=verify, spark=spark, **changes
            )
        except (EpochGoneError, NotACheckpointError) as error:
            history = notebook.open(query.store)[query.name]
            code = None if isinstance(error, EpochGoneError) else known_code(notebook, query)
            epoch = history.live().epoch if at is None and code is not None else at
            if epoch not in history.captured() or changes:
                raise
            progress.say(f"{name}: restoring the state of {query.name} from the store")
            made = history.at(epoch).restore(
                to=target,
                build_query=None if code is None or code.in_server else code.build,
                mode=code.mode if code else "update",
                spark=spark,
                progress=progress.of(query.name),
            )
        progress.say(f"{name}: capturing its first epoch")
        Checkpoint(made, storage_options=options).capture(query.store, name, spark=classic_of(spark))
        progress.line = ""
    return made


def _owner(notebook: NotebookContext, query: KnownQuery, epoch: int) -> KnownQuery:
    """The query of a fork's lineage that ran an epoch itself."""
    while query.parent is not None and query.forked_at is not None and epoch <= query.forked_at:
        query = known_query(notebook, query.parent)
    return query


def _replay_arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="the query; it may be running")
    parser.add("--epochs", metavar="A..B", required=True, type=epochs, help="the epochs to replay, both ends included")
    parser.add("--as", dest="new", metavar="NEW", required=True, help="the name of the replay")
    parser.add(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=_setting,
        help="a Spark setting for the replay only; may be repeated",
    )
    add_edits(parser)
    add_code(parser)
    add_output(parser, "keep the replay in a variable")


def _replay(notebook: NotebookContext, args: argparse.Namespace) -> Replay:
    """Run a range of epochs again, capture it, and compare it."""
    __tracebackhide__ = True
    run = CodeRun.of(notebook, args, args.query)
    check_free(notebook, run.query.store, args.new)
    done = run.report(
        Checkpoint.replay,
        stays="the epochs replayed so far are captured.",
        line=lambda done: f"{args.new}: {done.steps.reason}",
        always=True,
        to=checkpoint_beside(run.query.store, args.new),
        epochs=args.epochs,
        store=run.query.store,
        name=args.new,
        conf=dict(args.conf) or None,
        **edits_of(args),
    )
    notebook.codes[args.new] = run.code
    return done


def _setting(text: str) -> tuple[str, str]:
    """An argument that is a Spark setting."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(
            f"invalid setting {text!r}: expected KEY=VALUE, such as spark.sql.ansi.enabled=false"
        )
    return key, value


def _audit_arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="the query; it may be running, and is only read")
    parser.add("--epochs", metavar="A..B", type=epochs, help="the epochs to replay (default: as many as possible)")
    parser.add("--replays", metavar="N", type=count, default=2, help="the number of replays (default: 2)")
    parser.add(
        "--partitions",
        metavar="K",
        type=count,
        help="the number of partitions of one more replay (default: one more than the query has)",
    )
    add_code(parser)
    add_output(parser, "keep the audit in a variable")


def _audit(notebook: NotebookContext, args: argparse.Namespace) -> Audit:
    """Replay, compare, and report where the replays first differ."""
    __tracebackhide__ = True
    run = CodeRun.of(notebook, args, args.query)
    return run.report(
        Checkpoint.audit,
        stays=f"{run.query.name} is unchanged, and the replays were deleted.",
        line=lambda _: f"{run.query.name} was replayed.",
        epochs=args.epochs,
        replays=args.replays,
        partitions=args.partitions,
    )


REPLAY_VERBS = (
    Verb("fork", "create a query that continues from an epoch of another", _fork_arguments, _fork, "Checkpoint.fork"),
    Verb("step", "run the next epochs of a fork, with the original's input", _step_arguments, _step, "Fork.step"),
    Verb("back", "go back: create a branch at an earlier epoch of a fork", _back_arguments, _back, "Checkpoint.fork"),
    Verb(
        "debug",
        "step forward and back in a view, with branches and watches",
        _debug_arguments,
        _debug,
        "Checkpoint.debug",
    ),
    Verb(
        "replay",
        "run a range of epochs again with other code, settings or state, and compare",
        _replay_arguments,
        _replay,
        "Checkpoint.replay",
    ),
    Verb(
        "audit",
        "replay epochs, and show where the query is not deterministic",
        _audit_arguments,
        _audit,
        "Checkpoint.audit",
    ),
)
