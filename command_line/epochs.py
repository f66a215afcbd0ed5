"""``streamstate epochs``: the epochs in a checkpoint's logs, with the position in each source."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from streamstate.command_line.arguments import add_checkpoint, add_json, add_storage_options, storage_options
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_frame
from streamstate.command_line.user_code import add_code_alone, given_code
from streamstate.snapshots.checkpoint.epoch_reads import in_a_line

_COLUMNS = (
    *("epoch", "status", "began_at", "committed_at", "watermark", "partitions", "offsets", "sources", "records", "lag"),
)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    add_storage_options(parser)
    add_code_alone(parser, more=": Kafka is asked how many records the newest epoch left unread")
    add_json(parser, f"an object for each row: {', '.join(_COLUMNS)}")


def _run(given: argparse.Namespace) -> int:
    import streamstate as ss

    epochs = ss.Checkpoint(given.checkpoint, storage_options=storage_options(given)).epochs(given_code(given))
    if given.json:
        offsets = [text and json.loads(text) for text in epochs["offsets"]]
        epochs = epochs.assign(offsets=offsets, sources=epochs["sources"].map(_by_name))
    else:
        unknown = [name for name in ("records", "lag") if epochs[name].isna().all()]
        epochs = epochs.drop(columns=["offsets", *unknown]).assign(sources=epochs["sources"].map(in_a_line))
    print_frame(epochs, as_json=given.json)
    return FINE


def _by_name(sources: Mapping[str | int, str]) -> dict[str, str]:
    """Return the positions with text as keys, as JSON has them."""
    return {str(source): words for source, words in sources.items()}


EPOCHS = Command(
    "epochs",
    "list the epochs of a checkpoint, with the position in each source",
    "List the epochs that a checkpoint's logs still hold: when each began and was committed, its watermark, and "
    "what it read of each source, in words: of a topic of Kafka, from which offset to which, by partition. Epochs that "
    "Spark has purged are missing. Nothing is changed, "
    "and without code Spark is not started.",
    """
    streamstate epochs checkpoints/delays
    streamstate epochs checkpoints/delays --code jobs/delays.py:build
    streamstate epochs checkpoints/delays --json | jq 'select(.status == "begun") | .offsets'
    """,
    _arguments,
    _run,
    ("Checkpoint.epochs",),
)
