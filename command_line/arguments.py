"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from streamstate.command_line.argument_types import AT_HELP, KEY_HELP, epoch_or_time, option, past_epoch
from streamstate.command_line.command import MORE_WORDS
from streamstate.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.snapshots.capture.change_feed import Verify
    from streamstate.state_inspect import History

SEEN = "other users of this machine can see it in the list of processes"
_STORE = "the folder or URI of the store"


class CaptureOptions(TypedDict):
    """Keyword arguments of ``Checkpoint.capture`` and ``Checkpoint.follow``."""

    verify: Verify
    spark: SparkSession | None
    storage_options: dict[str, str] | None


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the store that a command acts on, and the options to reach it."""
    parser.add_argument("store", metavar="STORE", help=_STORE)
    add_storage_options(parser)


def add_store_option(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the option of a store for a command that acts on a checkpoint."""
    parser.add_argument("--store", metavar="STORE", required=required, help=_STORE)
    add_storage_options(parser)


def add_storage_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to reach an object store."""
    parser.add_argument(
        "--storage-options-file",
        metavar="FILE",
        help="options for an object store, one K=V per line; AWS_… can also be environment variables",
    )
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        type=option,
        metavar="K=V",
        help=f"an option such as AWS_REGION=eu-central-1; can be repeated. Not for secrets: {SEEN}",
    )


def add_query(parser: argparse.ArgumentParser) -> None:
    """Add the query of a store."""
    parser.add_argument("name", metavar="NAME", help="the query's name in the store")


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Add the checkpoint of a query; refuse several."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation, a path or a URI")
    parser.add_argument("others", nargs="*", action=_OneCheckpoint, help=argparse.SUPPRESS)


class _OneCheckpoint(argparse.Action):
    """An action that refuses a second checkpoint: a glob of the shell may match several."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if values:
            given = " ".join([namespace.checkpoint, *values])
            parser.error(
                f"expected one checkpoint, not {len(values) + 1}: {given}\n"
                "The store is an option: --store STORE. Give the checkpoints one at a time."
            )


def add_capture(parser: argparse.ArgumentParser) -> None:
    """Add the store, and how to capture."""
    add_store_option(parser, required=True)
    parser.add_argument(
        "--name", help="the query's name in the store (default: the one it has there, or the checkpoint folder's)"
    )
    parser.add_argument(
        "--verify",
        choices=["first", "sample", "all", "never"],
        default="never",
        help="start Spark and have it read the first epoch, a sample, or all epochs too, to compare (default: never;"
        " Spark is started only if something cannot be decoded without it)",
    )


def capture_options(given: argparse.Namespace) -> CaptureOptions:
    """Return the arguments of ``add_capture`` as keyword arguments of ``capture`` and ``follow``."""
    from streamstate.snapshots.spark.session import session

    return {
        "verify": given.verify,
        "spark": None if given.verify == "never" else session(),
        "storage_options": storage_options(given),
    }


def add_table(parser: argparse.ArgumentParser, text: str = "the state table (default: the only one)") -> None:
    """Add the option of a state table."""
    parser.add_argument("--table", help=text)


def add_epoch(parser: argparse.ArgumentParser) -> None:
    """Add an epoch of a query."""
    parser.add_argument("epoch", metavar="EPOCH", type=past_epoch, help="the epoch: 12, or live-10")


def add_at(parser: argparse.ArgumentParser, text: str = "the epoch (default: the newest)") -> None:
    """Add the option that chooses an epoch by its number or by a time."""
    parser.add_argument("--at", metavar="EPOCH", type=epoch_or_time, help=f"{text}: {AT_HELP}")


def add_key(parser: argparse.ArgumentParser) -> None:
    """Add the key, one word per key column."""
    parser.add_argument(MORE_WORDS, metavar="COL=VALUE", nargs="*", help=KEY_HELP)


def history_of(given: argparse.Namespace) -> History:
    """Return the query that the arguments of ``add_store`` and ``add_query`` name."""
    from streamstate.state_inspect import open_store

    return open_store(given.store, storage_options=storage_options(given))[given.name]


def add_json(parser: argparse._ActionsContainer, printed: str) -> None:
    """Add the option that prints JSON; ``printed`` describes it."""
    parser.add_argument("--json", action="store_true", help=f"print {printed}")


def storage_options(given: argparse.Namespace) -> dict[str, str] | None:
    """Return options for an object store, from the file and from the command line."""
    lines = [] if given.storage_options_file is None else read_text(given.storage_options_file).splitlines()
    options = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not (name and equals):
            raise InvalidArgumentError(
                f"Invalid line {number} of {given.storage_options_file}: expected K=V, such as AWS_REGION=eu-central-1."
            )
        options[name] = value
    return {**options, **dict(given.storage_option)} or None


def read_text(path: str) -> str:
    """Return the text of a file."""
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error}") from error
