"""``%stream audit``: whether a query is deterministic, with a certificate that somebody else can check."""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING

from streamstate.magics.arguments import MagicParser, add_output, count
from streamstate.magics.debug_options import add_code, told
from streamstate.magics.debugged import code_of, debugged
from streamstate.magics.notebook import Notebook
from streamstate.magics.progress import working
from streamstate.magics.verb import Verb
from streamstate.snapshots.errors import InvalidArgumentError

if TYPE_CHECKING:
    from streamstate.debugger.audit import Audit

__all__ = ["AUDIT"]

_RANGE = re.compile(r"(\d+)\.\.(\d+)", re.ASCII)


def _arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", completes="query", help="the query; it may be running, and is only read")
    parser.add("--epochs", metavar="A..B", type=_epochs, help="those to replay (default: all that can be)")
    parser.add("--replays", metavar="N", type=count, default=2, help="how many replays (default: 2)")
    parser.add(
        "--partitions", metavar="K", type=count, help="partitions of one more replay (default: one more than it has)"
    )
    parser.add("--certificate", metavar="FILE", completes="path", help="write what was found to a new file, as JSON")
    add_code(parser)
    add_output(parser, "keep the audit in a variable")


def _audit(notebook: Notebook, args: argparse.Namespace) -> Audit:
    """Replay, compare, and say where it differs first."""
    from streamstate.debugger.audit import audit

    __tracebackhide__ = True
    query = debugged(notebook, args.name)
    code = code_of(notebook, query, args.query, args.mode)
    if args.certificate is not None and os.path.exists(args.certificate):  # noqa: PTH110 (a path as it was typed)
        raise InvalidArgumentError(f"--certificate {args.certificate}: there is such a file. Name a new one.")
    with working(notebook.shell, stays=f"{query.name} is as it was; nothing of the replays is left.") as progress:
        found = audit(
            code.build,
            query.checkpoint,
            epochs=args.epochs,
            replays=args.replays,
            partitions=args.partitions,
            mode=code.mode,
            spark=notebook.spark(),
            progress=told(progress, query.name),
        )
        progress.line = f"{query.name} was replayed."
    if args.certificate is not None:
        found.save(args.certificate)
    notebook.assign(args.output, found)
    return found


def _epochs(text: str) -> tuple[int, int]:
    """An argument that is a range of epochs."""
    found = _RANGE.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of epochs, such as 3..12")
    return int(found[1]), int(found[2])


AUDIT = Verb("audit", "replay epochs twice and more, and say where the query is not deterministic", _arguments, _audit)
