"""``streamstate doctor``: look at a checkpoint before, or while, it is captured."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from streamstate.commands.arguments import add_checkpoint, add_json, add_store, storage_options
from streamstate.commands.command import FAILED, FINE, WARNINGS, Command
from streamstate.commands.output import print_json
from streamstate.magics.arguments import every


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    add_store(parser, optional=True)
    parser.add_argument(
        "--every", metavar="N", type=every, default=1, help="how often it will be captured, as for follow (default: 1)"
    )
    add_json(
        parser,
        "one object: checkpoint, query_id, spark, provider, checkpoint_format, encoding, compression, partitions,"
        " first_epoch, last_epoch, epochs, epoch_seconds, tables, store, findings",
    )


def _run(given: argparse.Namespace) -> int:
    from streamstate.operations.checkup import examine

    found = examine(given.checkpoint, given.store, every=given.every, storage_options=storage_options(given))
    if given.json:
        print_json(asdict(found))
    else:
        print(found)
    if found.has("problem"):
        return FAILED
    return WARNINGS if found.has("warning") else FINE


DOCTOR = Command(
    "doctor",
    "say whether a checkpoint can be captured, and at what cost",
    "Look at a checkpoint: which query and which Spark wrote it, how its state is kept, "
    "which epochs can be captured, what capturing costs for each state table and why, "
    "which settings of the query to change, and what will become of its state: what can never shrink, and whether "
    "the watermark is stuck. With a store: whether it can be "
    "written, how far it is behind, and which rows the query has yet to return. Nothing is changed.\n\n"
    "Exits with 0 if all is well, with 3 if there are warnings, and with 1 if the query "
    "cannot be captured.",
    """
    streamstate doctor checkpoints/delays
    streamstate doctor checkpoints/delays store --every 50
    streamstate doctor checkpoints/delays --json | jq -r '.findings[] | select(.level == "warning") | .text'
    """,
    _arguments,
    _run,
)
