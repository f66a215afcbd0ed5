"""``streamstate find``: the checkpoints under a folder."""

from __future__ import annotations

import argparse

from streamstate.command_line.arguments import add_json, add_storage_options, storage_options
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_frame

_COLUMNS = ("name", "stateful", "spark_version", "epoch", "committed_at", "checkpoint", "problem")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", metavar="ROOT", help="the folder, a path or a URI")
    add_storage_options(parser)
    add_json(parser, f"an object for each checkpoint: {', '.join(_COLUMNS)}")


def _run(given: argparse.Namespace) -> int:
    from streamstate.operations.find_checkpoints import checkpoints

    found = checkpoints(given.root, storage_options=storage_options(given)).overview()
    if not given.json and found["problem"].isna().all():
        found = found.drop(columns="problem")
    print_frame(found, as_json=given.json)
    return FINE


FIND = Command(
    "find",
    "list the checkpoints under a folder",
    "List every checkpoint under a folder, at any depth, one a line: the name that a store gives its query by default, "
    "whether it keeps state, the version of Spark, the newest epoch and when it was committed. Those of a pipeline "
    "are named after their table and flow. Spark is not started.",
    """
    streamstate find checkpoints
    streamstate find s3://bucket/checkpoints --json | jq -r 'select(.stateful) | .checkpoint'
    """,
    _arguments,
    _run,
    ("checkpoints",),
)
