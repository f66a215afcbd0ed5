"""``%stream replay``: a range of a query's epochs again, with other code, settings or state, beside the original."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamstate.magics.arguments import MagicParser, add_output, epoch
from streamstate.magics.debug_options import add_code, add_edits, check_free, edits_of, told
from streamstate.magics.debugged import code_of, debugged
from streamstate.magics.notebook import Notebook, checkpoint_beside
from streamstate.magics.progress import working
from streamstate.magics.verb import Verb
from streamstate.snapshots.errors import InvalidArgumentError

if TYPE_CHECKING:
    from streamstate.debugger.replay import Replay

__all__ = ["REPLAY"]


def _arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="the query; it may be running")
    parser.add(
        "--from", dest="first", metavar="A", type=epoch, required=True, completes="epoch", help="the first epoch"
    )
    parser.add("--to", dest="last", metavar="B", type=epoch, required=True, completes="epoch", help="the last epoch")
    parser.add("--as", dest="new", metavar="NEW", required=True, help="what the replay is called")
    parser.add(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=_setting,
        help="a setting of Spark for the replay alone; may be repeated",
    )
    add_edits(parser)
    add_code(parser)
    add_output(parser, "keep the replay in a variable")


def _replay(notebook: Notebook, args: argparse.Namespace) -> Replay:
    """Run the range again, capture it, and compare."""
    from streamstate.debugger import replay

    __tracebackhide__ = True
    if args.last < args.first:
        raise InvalidArgumentError(f"--from {args.first} --to {args.last}: the last epoch comes before the first.")
    query = debugged(notebook, args.name)
    code = code_of(notebook, query, args.query, args.mode)
    check_free(notebook, query.store, args.new)
    with working(notebook.shell, stays="What was replayed so far can be looked at.", always=True) as progress:
        done = replay(
            code.build,
            query.checkpoint,
            checkpoint_beside(query.store, args.new),
            epochs=(args.first, args.last),
            store=query.store,
            name=args.new,
            conf=dict(args.conf) or None,
            mode=code.mode,
            spark=notebook.spark(),
            progress=told(progress, args.new),
            **edits_of(args),
        )
        progress.line = f"{args.new}: {done.steps.reason}"
    notebook.codes[args.new] = code
    notebook.assign(args.output, done)
    return done


def _setting(text: str) -> tuple[str, str]:
    """An argument that is a setting."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as spark.sql.ansi.enabled=false")
    return key, value


REPLAY = Verb(
    "replay", "run a range of epochs again with other code, settings or state, and compare", _arguments, _replay
)
