"""``streamstate restore``: a checkpoint that can run, from an epoch of a store."""

from __future__ import annotations

import argparse

from streamstate.command_line.argument_types import snapshot_at
from streamstate.command_line.arguments import add_at, add_query, add_store, history_of
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.user_code import add_code, loaded


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    add_at(parser)
    parser.add_argument("--to", metavar="PATH", required=True, help="the new checkpoint; it must not exist yet")
    parser.add_argument(
        "--checkpoint", metavar="PATH", help="the query's checkpoint, which is read (default: where the store says)"
    )
    add_code(parser, "--code", "; needed if the query's checkpoint is gone")
    parser.add_argument(
        "--files",
        metavar="PATTERN",
        action="append",
        help="with --code, the files that the query's only source had read, if some have been deleted, moved or "
        "written again; may be repeated",
    )


def _run(given: argparse.Namespace) -> int:

    snapshot = snapshot_at(history_of(given), "live" if given.at is None else given.at)
    build = loaded(*given.code) if given.code else None
    offsets = [given.files] if given.files else None
    restored = snapshot.restore(
        to=given.to, build_query=build, checkpoint=given.checkpoint, offsets=offsets, mode=given.mode
    )
    print(repr(restored))
    return FINE


RESTORE = Command(
    "restore",
    "make a checkpoint that can run, from an epoch in a store",
    "Make a checkpoint from an epoch in a store, even if Spark has purged that epoch, or its state files are damaged. "
    "The query's own checkpoint is only read; if it is gone, pass the query's code. Spark reads back what was written, "
    "and every row is compared, before the new checkpoint appears.",
    """
    streamstate restore store delays --at 40 --to checkpoints/delays_40
    streamstate restore store delays --at live-1 --to checkpoints/again
    streamstate restore store delays --to checkpoints/delays --code jobs.delays:build
    """,
    _arguments,
    _run,
    ("Snapshot.restore",),
)
