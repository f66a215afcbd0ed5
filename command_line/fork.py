"""``streamstate fork``: a checkpoint that continues from an epoch of another one."""

from __future__ import annotations

import argparse

from streamstate.command_line.argument_types import count, epoch
from streamstate.command_line.arguments import add_checkpoint, add_json
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_json

_PRINTED = ("path", "original", "epoch", "query_id", "seconds", "linked_bytes", "new_bytes", "edited_rows")


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    parser.add_argument("--to", metavar="PATH", required=True, help="the new checkpoint; it must not exist yet")
    parser.add_argument(
        "--at", metavar="EPOCH", type=epoch, help="the last epoch that both share (default: the newest committed one)"
    )
    parser.add_argument("--partitions", metavar="N", type=count, help="repartition the state into this many partitions")
    parser.add_argument(
        "--edit",
        metavar="SQL",
        action="append",
        help="edit the state first: \"UPDATE op0 SET max_delay = 0 WHERE carrier = 'HA'\"; may be repeated",
    )
    parser.add_argument(
        "--verify",
        choices=["files", "rows"],
        default="files",
        help="compare the files of both, or also the rows that Spark reads (default: files)",
    )
    add_json(parser, f"one object: {', '.join(_PRINTED)}")


def _run(given: argparse.Namespace) -> int:
    import streamstate as ss

    fork = ss.Checkpoint(given.checkpoint).fork(
        given.to, at=given.at, partitions=given.partitions, edit=given.edit, verify=given.verify
    )
    if given.json:
        print_json({name: getattr(fork, name) for name in _PRINTED})
    else:
        print(f"{fork}: a fork of {fork.original} at epoch {fork.epoch}. It runs epoch {fork.epoch + 1} next.")
    return FINE


FORK = Command(
    "fork",
    "make a checkpoint that continues from an epoch of another one",
    "Make a checkpoint that continues from an epoch of another one, with the same state or an edited one. The original "
    "is only read, and its query may be running. Start the fork with the same code and another sink.",
    """
    streamstate fork checkpoints/delays --to checkpoints/what_if --at 12
    streamstate fork checkpoints/delays --to checkpoints/zero --edit "UPDATE op0 SET max = 0 WHERE carrier = 'HA'"
    """,
    _arguments,
    _run,
    ("Checkpoint.fork",),
)
