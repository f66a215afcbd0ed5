"""``streamstate doctor``: whether a checkpoint can be captured, and whether Spark can restart from it."""

from __future__ import annotations

import argparse
import sys

from streamstate.command_line.argument_types import every
from streamstate.command_line.arguments import add_json, add_store_option, storage_options
from streamstate.command_line.command import FAILED, FINE, WARNINGS, Command
from streamstate.command_line.many import add_checkpoints, named, only_checkpoint, required_checkpoints
from streamstate.command_line.output import print_report
from streamstate.command_line.user_code import add_code_alone, given_code
from streamstate.errors import InvalidArgumentError, StreamStateError


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoints(parser)
    add_store_option(parser)
    add_code_alone(parser, more=": Kafka is asked which records it still has, and how many are unread")
    parser.add_argument(
        "--every", metavar="N", type=every, default=1, help="how often it will be captured, as for follow (default: 1)"
    )
    add_json(
        parser,
        "one object: checkpoint, query_id, spark, provider, checkpoint_format, encoding, compression,"
        " partitions, first_epoch, newest_epoch, last_epoch, committed, epochs, epoch_seconds, tables, store,"
        " can_capture, can_restart, findings (level, text, setting, file)",
    )


def _run(given: argparse.Namespace) -> int:
    checkpoint = only_checkpoint(given)
    if checkpoint is not None:
        return _examined(given, checkpoint)
    if given.code is not None:
        raise InvalidArgumentError("--code is the code of one query.\nName its checkpoint.")
    statuses: list[int] = []
    for number, path in enumerate(required_checkpoints(given)):
        if number and not given.json:
            print()
        try:
            statuses.append(_examined(given, path))
        except StreamStateError as error:
            print(f"streamstate: {named(path, error)}", file=sys.stderr)
            statuses.append(FAILED)
    failed, warned = statuses.count(FAILED), statuses.count(WARNINGS)
    if not given.json:
        print(f"\n{len(statuses)} checkpoints: {failed} with problems, {warned} with warnings.")
    return FAILED if failed else WARNINGS if warned else FINE


def _examined(given: argparse.Namespace, checkpoint: str) -> int:
    """Print the report on a checkpoint, and return its exit status."""
    from streamstate.operations.checkup import examine

    found = examine(
        checkpoint,
        given.store,
        build_query=given_code(given),
        every=given.every,
        storage_options=storage_options(given),
    )
    print_report(found, as_json=given.json)
    if found.has("problem") or False in (found.can_capture, found.can_restart):
        return FAILED
    return WARNINGS if found.has("warning") else FINE


DOCTOR = Command(
    "doctor",
    "say whether a checkpoint can be captured, and whether Spark can restart from it",
    "Look at a checkpoint: which query and which Spark wrote it, how its state is kept, "
    "which epochs can be captured, what capturing costs for each state table and why, "
    "which settings of the query to change, and what will become of its state: what can never shrink, and whether "
    "the watermark is stuck. Whether Spark can restart from it: every file that the next start "
    "reads is there and whole. With a store: whether it can be "
    "written, how far it is behind, and which rows the query has yet to return. With the code of a query over Kafka: "
    "which epochs its topics still have the records of, and how many records are unread. Nothing is changed, and "
    "without code Spark is not started.\n\n"
    "Several checkpoints, a glob or --root are looked at one after the other.\n\n"
    "Exits with 0 if all is well, with 3 if there are warnings, and with 1 if the query "
    "cannot be captured, or Spark cannot restart.",
    """
    streamstate doctor checkpoints/delays
    streamstate doctor checkpoints/delays --store store --every 50
    streamstate doctor checkpoints/delays --store store --code jobs/delays.py:build
    streamstate doctor --root checkpoints
    streamstate doctor checkpoints/delays --json | jq -r '.findings[] | select(.level == "warning") | .text'
    """,
    _arguments,
    _run,
    ("Checkpoint.doctor",),
)
