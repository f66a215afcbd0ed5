"""``%stream fork``, ``step``, ``back`` and ``debug``: going back in a query and running forward again."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamstate.magics.arguments import MagicParser, add_output, count, epoch
from streamstate.magics.audit_verb import AUDIT
from streamstate.magics.debug_options import add_code, add_edits, check_free, edits_of, told
from streamstate.magics.debugged import Debugged, code_of, debugged
from streamstate.magics.keys import typed_key
from streamstate.magics.notebook import Notebook, checkpoint_beside
from streamstate.magics.progress import working
from streamstate.magics.replaying import REPLAY
from streamstate.magics.verb import Verb
from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.snapshots.names import check_name, unused

if TYPE_CHECKING:
    from streamstate.debugger.report import StepReport
    from streamstate.debugger.session import DebugSession

__all__ = ["DEBUG_VERBS"]

_FAR = 1_000


def _fork_arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="the query to fork; it may be running")
    parser.add(
        "--at",
        metavar="N",
        type=epoch,
        completes="epoch",
        help="the last epoch that both share (default: the newest committed)",
    )
    parser.add("--as", dest="new", metavar="NEW", required=True, help="what the fork is called")
    add_edits(parser)
    add_code(parser)
    add_output(parser, "keep the fork in a variable")


def _step_arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="a fork")
    parser.add("--epochs", metavar="N", type=count, help="how many epochs to run at most (default: 1)")
    parser.add(
        "--until",
        metavar="CONDITION",
        completes="where",
        help='stop after the epoch in which this holds of a row that changed, such as "max_delay > 300"; or error',
    )
    parser.add(
        "--key",
        metavar="COLUMN=VALUE",
        action="append",
        completes="key",
        help="stop after the epoch that changes this key; once for each key column",
    )
    parser.add("--new-input", action="store_true", help="go on with new input where the original has no further epoch")
    add_code(parser)
    add_output(parser, "keep the report in a variable")


def _back_arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="a fork; it stays as it is")
    parser.add("--epochs", metavar="N", type=count, default=1, help="how many epochs to go back (default: 1)")
    parser.add("--as", dest="new", metavar="NEW", help="what the new branch is called (default: NAME_2, …)")
    add_output(parser, "keep the new branch in a variable")


def _debug_arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="the query to debug; it may be running")
    parser.add(
        "--at", metavar="N", type=epoch, completes="epoch", help="the epoch to begin at (default: the oldest possible)"
    )
    parser.add("--as", dest="new", metavar="NEW", help="what the branches are called (default: debug_NAME)")
    add_code(parser)
    add_output(parser, "keep the session in a variable")


def _fork(notebook: Notebook, args: argparse.Namespace) -> None:
    """A fork in the same store, under a name of its own."""
    __tracebackhide__ = True
    query = debugged(notebook, args.name)
    check_free(notebook, query.store, args.new)
    if args.query is not None:
        notebook.codes[args.new] = code_of(notebook, query, args.query, args.mode)
    fork = _made(notebook, query, args.at, args.new, **edits_of(args))
    print(
        f"{args.new} stands where {query.name} stood after epoch {fork.epoch}.\n"
        f"Run its next epoch with %stream step {args.new}; look at it with %state {args.new}."
    )
    notebook.assign(args.output, fork)


def _step(notebook: Notebook, args: argparse.Namespace) -> StepReport:
    """The next epochs of a fork, each captured."""
    from streamstate.debugger import step

    __tracebackhide__ = True
    if args.until is not None and args.key:
        raise InvalidArgumentError("Give --until or --key, not both: one says when to stop.")
    query = debugged(notebook, args.name)
    code = code_of(notebook, query, args.query, args.mode)
    until: Any = args.until
    if args.key:
        until = typed_key(notebook.open(query.store)[query.name].live().table(), args.key)
    stays = f"{query.name} stands at its last whole epoch."
    with working(notebook.shell, stays=stays) as progress:
        report = step(
            code.build,
            query.checkpoint,
            epochs=args.epochs or (1 if until is None else _FAR),
            until=until,
            mode=code.mode,
            store=query.store,
            name=query.name,
            new_input=args.new_input,
            spark=notebook.spark(),
            progress=told(progress, query.name),
        )
        progress.line = f"{query.name} stands at epoch {report.epoch}."
    notebook.assign(args.output, report)
    return report


def _back(notebook: Notebook, args: argparse.Namespace) -> None:
    """A new branch at an earlier epoch of a fork."""
    __tracebackhide__ = True
    query = debugged(notebook, args.name)
    if query.parent is None or query.forked_at is None:
        raise InvalidArgumentError(
            f"{query.name} is no fork: the original is never taken back.\n"
            f"Make a fork at the epoch that is meant: %stream fork {query.name} --at N --as NEW."
        )
    to = _newest(notebook, query) - args.epochs
    if to < 0:
        raise InvalidArgumentError(f"{query.name} has not {args.epochs} epochs before the one it stands at.")
    name = unused(query.name, notebook.open(query.store).queries()) if args.new is None else args.new
    check_free(notebook, query.store, name)
    parent = _holding(notebook, query, to)
    if query.name in notebook.codes:
        notebook.codes[name] = notebook.codes[query.name]
    fork = _made(notebook, parent, to, name)
    print(f"{name} stands at epoch {to}, a branch of {parent.name}. {query.name} stays as it is.")
    notebook.assign(args.output, fork)


def _debug(notebook: Notebook, args: argparse.Namespace) -> DebugSession:
    """A session, which the notebook shows as the debugger view."""
    from streamstate.debugger import debug

    __tracebackhide__ = True
    query = debugged(notebook, args.name)
    code = code_of(notebook, query, args.query, args.mode)
    name = check_name(args.new or f"debug_{query.name}")
    with working(notebook.shell, stays="No session was begun.") as progress:
        progress.say(f"Making a fork of {query.name}")
        session = debug(
            code.build,
            query.checkpoint,
            at=args.at,
            directory=checkpoint_beside(query.store, ""),
            store=query.store,
            name=name,
            mode=code.mode,
            spark=notebook.spark(),
        )
        progress.line = f"{session.name} stands at epoch {session.epoch}."
    notebook.sessions.append(session)
    notebook.codes.setdefault(name, code)
    notebook.assign(args.output, session)
    return session


def _made(notebook: Notebook, query: Debugged, at: int | None, name: str, **changes: Any) -> Any:
    """A fork beside the store, captured into it."""
    from streamstate.capturing import capture
    from streamstate.debugger import fork

    __tracebackhide__ = True
    with working(notebook.shell, stays="No fork was made, or it is whole.") as progress:
        progress.say(f"{name}: linking the state of {query.name}")
        made = fork(query.checkpoint, checkpoint_beside(query.store, name), at=at, spark=notebook.spark(), **changes)
        progress.say(f"{name}: capturing its first epoch")
        capture(
            made.checkpoint, query.store, name, spark=notebook.spark(), storage_options=notebook.options(query.store)
        )
        progress.line = ""
    return made


def _newest(notebook: Notebook, query: Debugged) -> int:
    """The epoch at which a fork stands."""
    from streamstate.snapshots.checkpoint import Checkpoint

    return Checkpoint(query.checkpoint, notebook.spark()).committed()[-1]


def _holding(notebook: Notebook, query: Debugged, to: int) -> Debugged:
    """The query of a fork's line whose own epoch it is."""
    while query.parent is not None and query.forked_at is not None and to <= query.forked_at:
        query = debugged(notebook, query.parent)
    return query


DEBUG_VERBS = (
    Verb("fork", "make a query that stands where another stood at an epoch", _fork_arguments, _fork),
    Verb("step", "run the next epochs of a fork, with the original's input", _step_arguments, _step),
    Verb("back", "go back: a new branch at an earlier epoch of a fork", _back_arguments, _back),
    Verb("debug", "step forward and back in a view, with branches and watches", _debug_arguments, _debug),
    REPLAY,
    AUDIT,
)
"""What joins the verbs of ``%stream``."""
